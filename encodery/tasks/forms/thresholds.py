"""Thresholds of probabilities: what they make of an answer, and how they are chosen on rows whose labels are known."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from encodery.tasks.forms.metric_names import CALIBRATION, RANKING, ParsedMetric

if TYPE_CHECKING:  # numpy is imported where it computes: `encodery tasks` must answer at once
    from encodery.tasks.forms.label_metrics import Tables
    from encodery.tasks.forms.metrics import Floats

HALF = 0.5
CANDIDATES = 500  # most thresholds that are tried for a label
ROUNDS = 5  # most passes over the labels


def decide(chances: Mapping[str, float], thresholds: Mapping[str, float], several: bool) -> Any:
    """All labels above their thresholds; of two labels the one with a threshold if it is above it, else the other."""
    if several:
        return [label for label, chance in chances.items() if chance > thresholds.get(label, HALF)]
    (label, limit), *_ = thresholds.items()
    return label if chances[label] > limit else next(name for name in chances if name != label)


def unfit(metric: ParsedMetric) -> str | None:
    """A sentence if no threshold can be chosen by a metric."""
    if metric.base in RANKING or metric.base in CALIBRATION:
        return f"{metric.name} does not depend on a threshold"
    if metric.base in ("precision", "recall"):
        return f"{metric.name} alone would be best at a threshold that gives the label to hardly any row, or to all"
    return None


@dataclass(frozen=True)
class Choice:
    """Thresholds chosen by a metric on some rows."""

    thresholds: Mapping[str, float]
    score: float
    at_half: float  # the score with 0.5 everywhere

    def to_dict(self) -> dict[str, Any]:
        """As a model's card keeps it."""
        return {"labels": dict(self.thresholds), "score": self.score, "score_at_0.5": self.at_half}


def choose(tables: "Tables", metric: ParsedMetric, by_label: bool) -> Choice:
    """The thresholds with the best score: one for the positive label, one for all labels, or one for each of them.

    One for each label: from the best common one, label by label, as long as that makes the score better. Of equal
    scores the threshold that is nearest to 0.5 wins, so that few rows do not move it far.
    """
    search = _Search(tables, metric)
    labels = [tables.positive] if tables.single and tables.positive else list(tables.labels)
    at_half = search.score(dict.fromkeys(labels, HALF))
    limits, best = dict.fromkeys(labels, HALF), at_half
    for limit in search.candidates(labels):
        limits, best = search.better(dict.fromkeys(labels, limit), limits, best)
    for _ in range(ROUNDS if by_label else 0):
        before = best
        for label in labels:
            for limit in search.candidates([label]):
                limits, best = search.better({**limits, label: limit}, limits, best)
        if best == before:
            break
    return Choice(limits, best, at_half)


class _Search:
    """Scores of thresholds; counts come from sorted probabilities, so that a trial does not read all rows again."""

    def __init__(self, tables: "Tables", metric: ParsedMetric) -> None:
        import numpy as np

        assert tables.chances is not None
        self.tables, self.metric = tables, metric
        self.there = tables.gold.sum(axis=0)
        order = np.argsort(tables.chances, axis=0, kind="stable")
        self.sorted = np.take_along_axis(tables.chances, order, axis=0)
        gold = np.take_along_axis(tables.gold, order, axis=0)
        self.above = np.concatenate([gold[::-1].cumsum(axis=0)[::-1], np.zeros((1, gold.shape[1]))])

    def candidates(self, labels: Sequence[str]) -> list[float]:
        """Halfway between neighbouring probabilities, and below and above all of them; nearest to 0.5 first."""
        import numpy as np

        columns = [self.tables.labels.index(label) for label in labels]
        values = np.unique(np.append(self.sorted[:, columns].ravel(), [0.0, 1.0]))
        low, high = values[:-1], values[1:]
        middle = (low + high) / 2
        cuts = np.append(np.where(middle < high, middle, low), 1.0)  # neighbouring floats have no middle
        if len(cuts) > CANDIDATES:
            cuts = cuts[np.linspace(0, len(cuts) - 1, CANDIDATES).round().astype(int)]
        return sorted(cuts.tolist(), key=lambda cut: (abs(cut - HALF), cut))

    def better(self, trial: dict[str, float], found: dict[str, float], best: float) -> tuple[dict[str, float], float]:
        """The trial if its score is higher by more than rounding."""
        score = self.score(trial)
        return (trial, score) if score > best + 1e-12 else (found, best)

    def score(self, thresholds: Mapping[str, float]) -> float:
        """The metric with these thresholds."""
        if self.metric.base == "subset_accuracy":
            return self._exact(thresholds)
        hits, said = self._counts(thresholds)
        return self.tables.counted(self.metric, hits, self.there, said)

    def _counts(self, thresholds: Mapping[str, float]) -> tuple["Floats", "Floats"]:
        import numpy as np

        rows, places = len(self.sorted), range(len(self.tables.labels))
        if not self.tables.single:
            limits = [thresholds[label] for label in self.tables.labels]
            first = [int(np.searchsorted(self.sorted[:, i], limits[i], side="right")) for i in places]
            return np.array([self.above[first[i], i] for i in places]), np.array([float(rows - k) for k in first])
        (label, limit), *_ = thresholds.items()
        yes = self.tables.labels.index(label)
        first_yes = int(np.searchsorted(self.sorted[:, yes], limit, side="right"))
        said_yes, hit_yes = float(rows - first_yes), float(self.above[first_yes, yes])
        hits, said = np.zeros(2), np.zeros(2)
        hits[yes], said[yes] = hit_yes, said_yes
        hits[1 - yes] = self.there[1 - yes] - (said_yes - hit_yes)
        said[1 - yes] = rows - said_yes
        return hits, said

    def _exact(self, thresholds: Mapping[str, float]) -> float:
        import numpy as np

        assert self.tables.chances is not None
        limits = np.array([thresholds[label] for label in self.tables.labels])
        guess = (self.tables.chances > limits).astype(np.float64)
        return float(replace(self.tables, guess=guess).value(self.metric) or 0.0)
