"""Metrics of labels by name: `f1`, `macro_recall`, `roc_auc_spam`. Which there are, and what each needs."""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

BY_LABEL = ("f1", "precision", "recall", "roc_auc", "average_precision")
MEANS = {
    "macro": BY_LABEL,
    "micro": BY_LABEL,
    "weighted": ("f1", "precision", "recall"),
}
WHOLE = {
    "single": ("accuracy", "balanced_accuracy", "mcc", "ece", "brier", "nll"),
    "multilabel": ("subset_accuracy",),
    "regression": ("pearson", "spearman", "rmse"),
}
RANKING = ("roc_auc", "average_precision")  # of the order of the probabilities: no threshold changes them
CALIBRATION = ("ece", "brier", "nll")


@dataclass(frozen=True)
class ParsedMetric:
    """A name, taken apart."""

    name: str
    base: str  # f1, roc_auc, accuracy, …
    mean: str | None = None  # macro, micro or weighted
    label: str | None = None  # the label that it is about

    @property
    def of_probabilities(self) -> bool:
        """Whether it is computed from probabilities instead of answers."""
        return self.base in RANKING or self.base in CALIBRATION


def parse(name: str, form: str) -> ParsedMetric:
    """The metric that a name stands for; ValueError with a sentence where a form of task has no such metric."""
    if name in WHOLE[form]:
        return ParsedMetric(name, name)
    if form != "regression":
        mean, _, base = name.partition("_")
        if base in MEANS.get(mean, ()):
            return ParsedMetric(name, base, mean=mean)
        for base in BY_LABEL:
            if name == base:
                return ParsedMetric(name, base)
            if name.startswith(f"{base}_"):
                return ParsedMetric(name, base, label=name.removeprefix(f"{base}_"))
    legal = names(form)
    near = get_close_matches(name, legal, n=1)
    hint = f" Did you mean {near[0]}?" if near else ""
    more = "" if form == "regression" else f"; of one label {BY_LABEL[0]}_LABEL and so on"
    raise ValueError(f"form {form} has no metric {name}.{hint} There are {', '.join(legal)}{more}")


def names(form: str) -> list[str]:
    """All names of a form but those of single labels."""
    means = [f"{mean}_{base}" for mean, bases in MEANS.items() for base in bases]
    return [*WHOLE[form], *([] if form == "regression" else [*BY_LABEL, *means])]


def fit(metric: ParsedMetric, labels: Sequence[str], form: str) -> str | None:
    """A sentence if a metric does not go with the labels of a task."""
    if metric.label is not None and metric.label not in labels:
        return f"there is no label {metric.label}; there are {', '.join(labels)}"
    if metric.base in BY_LABEL and not metric.mean and metric.label is None and (form != "single" or len(labels) != 2):
        some = ", ".join(f"{metric.base}_{label}" for label in labels[:3])
        means = ", ".join(f"{mean}_{metric.base}" for mean, bases in MEANS.items() if metric.base in bases)
        return f"without a label it needs exactly two labels, not {len(labels)}; use {some}, … or {means}"
    return None
