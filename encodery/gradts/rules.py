"""The rules of a choice, without any training: when trials stop, which one wins, what passes a threshold.

A trial with number k trains the primary task with the k candidates at the top of the ranking; 0 is the primary alone.

sound      a trial's score is the one that its run reports (the same checkpoint rule for all), its mean over the seeds;
           trials end after the first k ≥ 2 that is worse than k - 1; single-task is a candidate; ties: fewer tasks
released   as the GradTS release: the best epoch is that of the highest first metric (accuracy, where there is one);
           trial k + 1 is run if the score of k's best epoch is no worse than that of the last epoch of k - 1 (and 2 in
           any case); the choice goes by the first metric of the best epoch; ties: more tasks; single-task is no
           candidate
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from encodery.report import stats

Rule = Literal["sound", "released"]


@dataclass(frozen=True)
class Trial:
    """The scores of one set of tasks, by seed."""

    scores: Mapping[int, float]  # what the runs report
    best: Mapping[int, float] = field(default_factory=dict)  # of the best epoch, which is best by the first metric
    last: Mapping[int, float] = field(default_factory=dict)  # of the last epoch
    first: Mapping[int, float] = field(default_factory=dict)  # of the best epoch, by the task's first metric

    @property
    def mean(self) -> float:
        return stats.mean(list(self.scores.values()))


def ranked(correlations: Mapping[str, float]) -> list[str]:
    """Candidates, the most alike first; equal ones in the given order, what is not a number last."""
    return sorted(correlations, key=lambda name: (math.isnan(correlations[name]), -_number(correlations[name])))


def _number(value: float) -> float:
    return 0.0 if math.isnan(value) else value


def above(correlations: Mapping[str, float], threshold: float) -> list[str]:
    """Candidates at or above the threshold, in the given order."""
    return [name for name, value in correlations.items() if value >= threshold]


def ended(trials: Sequence[Trial], candidates: int, rule: Rule) -> bool:
    """Whether no further trial follows those with 1, 2, … tasks (without 0)."""
    done = len(trials)
    return done >= candidates or any(_drop(trials[k - 1], trials[k], rule) for k in range(1, done))


def counted(trials: Sequence[Trial], rule: Rule) -> int:
    """How many trials the rule would have run: those behind a drop were run ahead of it and do not count."""
    drops = (k + 1 for k in range(1, len(trials)) if _drop(trials[k - 1], trials[k], rule))
    return next(drops, len(trials))


def _drop(before: Trial, now: Trial, rule: Rule) -> bool:
    if rule == "sound":
        return now.mean < before.mean
    return stats.mean(list(now.best.values())) < stats.mean(list(before.last.values()))


def winner(trials: Sequence[Trial], rule: Rule) -> int:
    """Which of the trials is chosen, by its place."""
    if rule == "sound":
        scores = [trial.mean for trial in trials]
        return scores.index(max(scores))
    scores = [stats.mean(list(trial.first.values())) for trial in trials]
    return len(scores) - 1 - scores[::-1].index(max(scores))


@dataclass(frozen=True)
class Gain:
    """How much better one set of runs is than another on the same seeds."""

    mean: float
    interval: tuple[float, float] | None
    p: float | None
    seeds: int

    @property
    def clear(self) -> bool:
        """Whether the interval is above zero; never below three seeds."""
        return self.interval is not None and self.interval[0] > 0


def gain(mine: Mapping[int, float], theirs: Mapping[int, float], picked_from: int = 1) -> Gain:
    """Differences on the seeds that both have: mean, Student's 95 % interval, p of a paired t-test."""
    # the best of several trials looks better than it is: its interval is widened by their number
    differences = [mine[seed] - theirs[seed] for seed in mine if seed in theirs]
    if not differences:
        raise ValueError("no seed in common")
    interval = stats.t_interval(differences, comparisons=picked_from)
    return Gain(stats.mean(differences), interval, stats.paired_t(differences), len(differences))


def best_epoch(way: Sequence[Mapping[str, float]], first: str) -> Mapping[str, float]:
    """The scores of the epoch whose first metric is highest, of equal ones the earliest: all from one epoch."""
    return max(way, key=lambda scores: scores[first])


def most_alike(correlations: np.ndarray, ids: Sequence[str]) -> np.ndarray:
    """Places, the most alike first. Equal ones, of which few heads give many, are drawn by their ids: by place they
    would be those that the file begins with, and files are often sorted."""
    drawn = [hashlib.sha256(id.encode(errors="surrogatepass")).digest()[:8] for id in ids]
    return np.lexsort((np.array([int.from_bytes(one, "big") for one in drawn], np.uint64), -correlations))


def kept(correlations: np.ndarray, threshold: float | None, fraction: float | None, ids: Sequence[str]) -> np.ndarray:
    """Which examples are alike enough: at or above the threshold, or so large a share of the most alike ones."""
    if fraction is None:
        return np.asarray(correlations >= (-1.0 if threshold is None else threshold))
    count = math.floor(len(correlations) * fraction + 1e-9)
    found = np.zeros(len(correlations), bool)
    found[most_alike(correlations, ids)[:count]] = True
    return found
