"""From head importance to a ranking of candidates: correlations by seed, their intervals, and where chance decides."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from encodery.core.rank_correlation import Kind, Numbers, correlations, resampled_means
from encodery.gradts.rules import ranked
from encodery.report import stats
from encodery.report.task_choice import Candidate
from encodery.runs.head_matrices import SAME, Comparison, Importance, Norm, compare, flat, normalised

DRAWS = 200  # of the bootstrap over examples
Heads = Mapping[int, Mapping[str, Importance]]  # seed → task → importance


def uncertain(by_seed: Sequence[float], drawn: Numbers) -> tuple[float, float]:
    """95 % interval of a mean over fine-tunings that share their examples. `drawn`: the same mean with other examples.

    From three seeds on both sources count: the spread over fine-tunings, and that over examples, which all of them
    share and which therefore does not shrink with their number. With fewer it is that over examples alone.
    """
    if len(by_seed) < stats.FEW:
        low, high = np.quantile(drawn, [0.025, 0.975])
        return float(low), float(high)
    error = math.sqrt(np.var(by_seed, ddof=1) / len(by_seed) + np.var(drawn, ddof=1))
    half = stats.t_quantile(len(by_seed) - 1) * error
    return stats.mean(by_seed) - half, stats.mean(by_seed) + half


@dataclass
class Correlations:
    """The correlations of all tasks, seed by seed; what was drawn for one task is kept."""

    heads: Heads
    kind: Kind
    norm: Norm

    def __post_init__(self) -> None:
        self.matrices: dict[int, Comparison] = {
            seed: compare(list(tasks.values()), self.kind, self.norm) for seed, tasks in self.heads.items()
        }
        self._drawn: dict[tuple[int, str], Numbers] = {}

    def between(self, first: str, second: str) -> dict[int, float]:
        """Of two tasks, by seed."""
        by_seed = {}
        for seed, matrix in self.matrices.items():
            names = list(self.heads[seed])
            by_seed[seed] = float(matrix.values[names.index(first), names.index(second)])
        return by_seed

    def draws(self, primary: str, other: str) -> Numbers:
        """The correlation with other examples drawn from the same ones, again and again; its mean over the seeds."""
        each = [correlations(self._means(seed, primary), self._means(seed, other), self.kind) for seed in self.heads]
        return np.asarray(np.mean([np.diagonal(one) for one in each], axis=0))

    def _means(self, seed: int, name: str) -> Numbers:
        if (seed, name) not in self._drawn:
            here = self.heads[seed][name]
            number = list(self.heads[seed]).index(name)
            means = resampled_means(flat(here.instances), DRAWS, seed=number)
            self._drawn[seed, name] = flat(normalised(means.reshape(DRAWS, *here.raw.shape), self.norm))
        return self._drawn[seed, name]

    def ranking(self, primary: str, candidates: Sequence[str]) -> list[Candidate]:
        """The most alike first. The primary is never its own candidate."""
        values = {name: self.between(primary, name) for name in candidates if name != primary}
        order = ranked({name: stats.mean(list(by_seed.values())) for name, by_seed in values.items()})
        drawn = {name: self.draws(primary, name) for name in order}
        ranked_tasks = []
        for rank, name in enumerate(order):
            interval = uncertain(list(values[name].values()), drawn[name])
            unsure = False
            for after in order[rank + 1 : rank + 2]:
                ahead = [values[name][seed] - values[after][seed] for seed in values[name]]
                unsure = uncertain(ahead, drawn[name] - drawn[after])[0] <= 0
            ranked_tasks.append(Candidate(name, values[name], interval, unsure))
        return ranked_tasks

    def stability(self) -> dict[str, float]:
        """How alike a task's own matrices of different seeds are; nothing where they began with other weights."""
        by_task: dict[str, list[Importance]] = {}
        for tasks in self.heads.values():
            for name, one in tasks.items():
                by_task.setdefault(name, []).append(one)
        stability = {}
        for name, several in by_task.items():
            same = all(one.meta.get(key) == several[0].meta.get(key) for one in several for key in SAME)
            if len(several) > 1 and same:
                rows = flat(np.stack([one.matrix(self.norm) for one in several]))
                values = correlations(rows, rows, self.kind)
                stability[name] = stats.mean([float(values[i, j]) for i, j in combinations(range(len(rows)), 2)])
        return stability
