"""Metrics of labels, from tables of 0 and 1 [example, label]; the names are those of metric_names.py."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from encodery.tasks.forms import metrics
from encodery.tasks.forms.metric_names import CALIBRATION, ParsedMetric
from encodery.tasks.forms.metrics import Floats


@dataclass(frozen=True)
class Tables:
    """Gold labels and answers as tables of 0 and 1, and the probability of each label where it is known."""

    labels: Sequence[str]
    gold: Floats
    guess: Floats
    chances: Floats | None
    positive: str | None = None  # of two labels the one that a metric without a label is about
    single: bool = True  # every row has exactly one label

    @cached_property
    def counts(self) -> tuple[Floats, Floats, Floats]:
        """Of each label: how often it is right, is there, is guessed."""
        return (self.gold * self.guess).sum(axis=0), self.gold.sum(axis=0), self.guess.sum(axis=0)

    def value(self, metric: ParsedMetric) -> float | None:
        """The metric; None where it needs probabilities and there are none."""
        if metric.of_probabilities and self.chances is None:
            return None
        if metric.base in CALIBRATION:
            assert self.chances is not None
            return metrics.calibration(self.gold.argmax(axis=1), self.chances)[metric.base]
        if metric.base == "subset_accuracy":
            return float((self.gold == self.guess).all(axis=1).mean())
        return self._curve(metric) if metric.base in CURVES else self.counted(metric, *self.counts)

    def counted(self, metric: ParsedMetric, hits: Floats, there: Floats, said: Floats) -> float:
        """A metric that the counts of each label decide."""
        if metric.base in BY_COUNTS:
            return BY_COUNTS[metric.base](hits, there, said)
        return rate(metric, hits, there, said, index=self.column(metric), single=self.single)

    def column(self, metric: ParsedMetric) -> int | None:
        """The column of the label that a metric is about."""
        label = metric.label if metric.label is not None else self.positive
        return None if metric.mean or label is None else self.labels.index(label)

    def _curve(self, metric: ParsedMetric) -> float:
        """Of one label, of all cells at once, or the mean over the labels for which it is defined."""
        assert self.chances is not None
        of, needs_both = CURVES[metric.base]
        if (index := self.column(metric)) is not None:
            return of(self.gold[:, index], self.chances[:, index])
        if metric.mean == "micro":
            return of(self.gold.ravel(), self.chances.ravel())
        there, rows = self.counts[1], len(self.gold)
        defined = np.flatnonzero((there > 0) & ((there < rows) | (not needs_both)))
        each = [of(self.gold[:, i], self.chances[:, i]) for i in defined]
        return float(np.mean(each)) if each else of(np.zeros(1), np.zeros(1))


def rate(metric: ParsedMetric, hits: Floats, there: Floats, said: Floats, index: int | None, single: bool) -> float:
    """F1, precision or recall from the counts of each label; 0 where nothing is counted."""
    above, below = PARTS[metric.base](hits, there, said)
    if index is not None:
        return metrics.ratio(above[index], below[index])
    if metric.mean == "micro":
        return metrics.ratio(above.sum(), below.sum())
    each = np.divide(above, below, out=np.zeros_like(above, dtype=np.float64), where=below > 0)
    if metric.mean == "weighted":
        return metrics.ratio(float(each @ there), there.sum())
    if single:  # as sklearn: a label that neither occurs nor is guessed does not count
        each = each[there + said > 0]
    return float(each.mean()) if len(each) else 0.0


Parts = Callable[[Floats, Floats, Floats], tuple[Floats, Floats]]
PARTS: dict[str, Parts] = {
    "f1": lambda hits, there, said: (2 * hits, there + said),
    "precision": lambda hits, there, said: (hits, said),
    "recall": lambda hits, there, said: (hits, there),
}


def roc_auc(gold: Floats, chances: Floats) -> float:
    """How often a row with the label has the higher score, ties counted half; 0.5 if all rows or none have it."""
    there = gold > 0
    n, m = int(there.sum()), int((~there).sum())
    if not (n and m):
        return 0.5
    return float((metrics.ranks(chances)[there].sum() - n * (n + 1) / 2) / (n * m))


def average_precision(gold: Floats, chances: Floats) -> float:
    """Mean of the precisions at each score, weighted by the recall that it adds; rows of equal score come together."""
    if not gold.any():
        return 0.0
    order = np.argsort(-chances, kind="stable")
    last = np.flatnonzero(np.append(np.diff(chances[order]) != 0, True))
    hits = np.cumsum(gold[order])[last]
    return float((np.diff(hits, prepend=0) * hits / (last + 1)).sum() / hits[-1])


CURVES: dict[str, tuple[Callable[[Floats, Floats], float], bool]] = {
    "roc_auc": (roc_auc, True),  # needs rows with the label and rows without it
    "average_precision": (average_precision, False),
}


def _accuracy(hits: Floats, there: Floats, said: Floats) -> float:
    return metrics.ratio(hits.sum(), there.sum())


def _balanced(hits: Floats, there: Floats, said: Floats) -> float:
    return float((hits[there > 0] / there[there > 0]).mean())


def _matthews(hits: Floats, there: Floats, said: Floats) -> float:
    return metrics.matthews_of(float(hits.sum()), there, said)


BY_COUNTS: dict[str, Callable[[Floats, Floats, Floats], float]] = {
    "accuracy": _accuracy,
    "balanced_accuracy": _balanced,
    "mcc": _matthews,
}  # of rows with one label each
