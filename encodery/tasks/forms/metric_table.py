"""Every metric that a task gives: which way is better, how tables scale it, and how else people spell it.

This is the one place that knows: the choice of a checkpoint, tables, pages, sweeps and studies look here. A new metric
of a task is a line in METRICS (or in FAMILIES, where part of the name varies). One that `tasks.metrics` may name for
any labels is also a name in metric_names.WHOLE, and is computed in label_metrics.py: from counts of labels in
BY_COUNTS, from probabilities in Tables.value. What GLUE's own parts report is chosen in tasks/glue.py.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from encodery.errors import UserError

Better = Literal["higher", "lower", "neither"]
PERCENT, PLAIN = 100.0, 1.0


@dataclass(frozen=True)
class Metric:
    """What is known of a metric."""

    better: Better = "higher"
    scale: float = PERCENT  # what tables multiply it with
    spellings: tuple[str, ...] = ()  # what other programs call it

    @property
    def lower(self) -> bool:
        """Whether less is better."""
        return self.better == "lower"

    @property
    def digits(self) -> int:
        """Behind the point, in a table."""
        return 2 if self.scale == PERCENT else 4

    def text(self, value: float) -> str:
        """A value as tables show it: `81.23` for a share of 0.8123, `0.6931` for a loss."""
        return f"{value * self.scale:.{self.digits}f}"


SHARE = Metric()  # of 1, or a correlation: better when higher, in percent
LOSS = Metric("lower", PLAIN)
AMOUNT = Metric("neither", PLAIN)  # says something, but neither more nor less of it is better
PORTION = Metric("neither", PERCENT)

METRICS: dict[str, Metric] = {
    # Labels
    "accuracy": Metric(spellings=("acc",)),
    "f1": Metric(),
    "macro_f1": Metric(spellings=("f1_macro",)),
    "micro_f1": Metric(spellings=("f1_micro",)),
    "subset_accuracy": SHARE,
    "balanced_accuracy": SHARE,
    "roc_auc": Metric(spellings=("auroc", "rocauc")),
    "average_precision": Metric(spellings=("auprc",)),
    "mcc": Metric(spellings=("matthews", "matthews_correlation", "matthews_corrcoef")),
    "ece": LOSS,
    "brier": LOSS,
    "nll": LOSS,
    # Numbers
    "pearson": Metric(spellings=("pearsonr",)),
    "spearman": Metric(spellings=("spearmanr",)),
    "rmse": LOSS,
    # Rankings
    "mrr": SHARE,
    # Tags
    "precision": SHARE,
    "recall": SHARE,
    "strict_f1": SHARE,
    # Answers in a text
    "exact": Metric(spellings=("em", "exact_match")),
    "best_exact": SHARE,
    "best_f1": SHARE,
    "best_exact_threshold": AMOUNT,
    "best_f1_threshold": AMOUNT,
    # HANS
    "predicted_entailment": PORTION,
    # Pretraining
    "loss": LOSS,
    "perplexity": Metric("lower", PLAIN, ("ppl",)),
    "masked_loss": LOSS,
    "masked_accuracy": SHARE,
    "generator_loss": LOSS,
    "generator_accuracy": SHARE,
    "generator_masked_loss": LOSS,
    "generator_masked_accuracy": SHARE,
    "discriminator_loss": LOSS,
    "discriminator_accuracy": SHARE,
    "sampled_accuracy": SHARE,
    "auc": SHARE,
    "replaced": PORTION,
    "mixture_entropy": AMOUNT,
    # Several tasks
    "mean": SHARE,
}
FAMILIES: tuple[tuple[str, Metric], ...] = (
    (r"(macro|micro|weighted)_(f1|precision|recall|roc_auc|average_precision)", SHARE),
    (r"(f1|precision|recall|roc_auc|average_precision)_.+", SHARE),  # of one label, whatever it is called
    (r"(has|no)_answer_(exact|f1)", SHARE),
    (r"((non_)?entailed|mean)_[a-z_]+", SHARE),  # a heuristic of HANS
    (r"mlm_loss_\d+", LOSS),  # of one of AMOS's readouts
    (r"mlm_accuracy_\d+", SHARE),
    (r"(replaced|share)_\d+", PORTION),
)
# An own task may call its scores as it likes: a loss and an error are still better when lower.
_OWN = re.compile(r"(.+_)?(loss|error|perplexity)([._].+)?|(.+_)?(mse|mae|rmse|nll|ece|brier|wer|cer|ppl)")
_SPELLINGS = {other: name for name, metric in METRICS.items() for other in metric.spellings}


def is_listed(name: str) -> bool:
    """Whether a metric has a line here."""
    return name in METRICS or any(re.fullmatch(pattern, name) for pattern, _ in FAMILIES)


def metric(name: str) -> Metric:
    """What is known of a metric; one of an own task counts as a share, or as a loss if it is called one."""
    name = name.removeprefix("eval.")
    if name in METRICS:
        return METRICS[name]
    found = next((one for pattern, one in FAMILIES if re.fullmatch(pattern, name)), None)
    return found or (LOSS if _OWN.fullmatch(name) else SHARE)


def lower_is_better(name: str) -> bool:
    """Whether less of it is better."""
    return metric(name).lower


def spelled(name: str) -> str:
    """Our name of a metric: `acc`, `eval_accuracy` and `eval.accuracy` are accuracy, `Matthews` is mcc."""
    name = name.removeprefix("eval.").removeprefix("eval_")
    plain = name.lower().replace("-", "_").replace(" ", "_")
    return name if name in METRICS else plain if plain in METRICS else _SPELLINGS.get(plain, name)


def among(name: str, there: Collection[str]) -> str:
    """The metric of those that are there which a name means: itself, or what we call it."""
    own = name.removeprefix("eval.")
    return own if own in there or spelled(own) not in there else spelled(own)


def direction(name: str, key: str) -> Literal["max", "min"]:
    """Which values of a metric to look for; `key` is the setting that names it, for an error."""
    better = metric(name).better
    if better == "neither":
        raise UserError(f"{key}: {name} is neither better when higher nor when lower, so nothing can be chosen by it.")
    return "min" if better == "lower" else "max"
