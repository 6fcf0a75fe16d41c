"""Scores of pretraining on held-out text, from sums over its sequences."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

READOUT = "mlm_loss_"  # and the layer: of one of AMOS's readouts
MLM = ("loss", "perplexity", "accuracy", "masked_loss", "masked_accuracy")
ELECTRA = (
    "loss", "discriminator_loss", "discriminator_accuracy", "auc", "precision", "recall", "replaced",
    "sampled_accuracy", "generator_loss", "generator_accuracy", "generator_masked_loss", "generator_masked_accuracy",
)  # fmt: skip
AMOS = (*ELECTRA, "mixture_entropy")  # and of each readout: mlm_loss_4, mlm_accuracy_4, replaced_4, share_4


def scores(sums: Mapping[str, Any]) -> dict[str, float]:
    """Means and shares; those of ELECTRA where its sums are given, else those of a masked language model."""
    asked = sums["asked"]
    if "tokens" not in sums:
        loss, hidden = share(sums["mlm_loss"], asked), sums["masked_asked"]
        by_name = {"loss": loss, "perplexity": math.exp(min(loss, 700.0)), "accuracy": share(sums["mlm_right"], asked)}
        # Words that are asked about and shown are copied soon; only hidden ones tell what was learnt of language.
        hidden_ones = (share(sums["masked_mlm_loss"], hidden), share(sums["masked_mlm_right"], hidden))
        return by_name | dict(zip(("masked_loss", "masked_accuracy"), hidden_ones, strict=True))
    tokens = sums["tokens"]
    by_name = {
        "loss": share(sums["weighted_loss"], tokens),
        "discriminator_loss": share(sums["discriminator_loss"], tokens),
        "discriminator_accuracy": share(sums["discriminator_right"], tokens),
        "auc": area(*sums["histogram"]),
        "precision": share(sums["found"], sums["flagged"]),
        "recall": share(sums["found"], sums["replaced"]),
        "replaced": share(sums["replaced"], tokens),
        "sampled_accuracy": share(sums["sampled_right"], asked),
    }
    if "generator_loss" in sums:
        by_name["generator_loss"] = share(sums["generator_loss"], asked)
        by_name["generator_accuracy"] = share(sums["generator_right"], asked)
        by_name["loss"] += share(sums["weighted_generator_loss"], asked)
    if "masked_asked" in sums:
        by_name["generator_masked_loss"] = share(sums["masked_loss"], sums["masked_asked"])
        by_name["generator_masked_accuracy"] = share(sums["masked_right"], sums["masked_asked"])
    return by_name | readouts(sums)


def readouts(sums: Mapping[str, Any]) -> dict[str, float]:
    """What each of AMOS's readouts is worth: loss, accuracy, share that it would replace, weight in the mixture."""
    depths = [name.removeprefix(READOUT) for name in sums if name.startswith(READOUT)]
    by_name = {"mixture_entropy": share(sums["mixture_entropy"], sums["asked"])} if depths else {}
    for depth in depths:
        for name in ("mlm_loss", "mlm_accuracy", "replaced", "share"):
            by_name[f"{name}_{depth}"] = share(sums[f"{name}_{depth}"], sums["asked"])
    return by_name


def add_up(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Sums of sums, by name; lists are added place by place."""
    total: dict[str, Any] = {}
    for row in rows:
        for name, value in row.items():
            if name != "id":
                total[name] = _plus(total[name], value) if name in total else value
    return total


def _plus(a: Any, b: Any) -> Any:
    return [_plus(x, y) for x, y in zip(a, b, strict=True)] if isinstance(a, list) else a + b


def share(part: float, whole: float) -> float:
    """Part of whole; 0 of nothing."""
    return part / whole if whole else 0.0


def area(original: Sequence[float], replaced: Sequence[float]) -> float:
    """Area under the ROC curve, from counts in bins of rising score; a tie within a bin counts half."""
    below = won = 0.0
    for no, yes in zip(original, replaced, strict=True):
        won += yes * (below + no / 2)
        below += no
    total = below * math.fsum(replaced)
    return won / total if total else 0.5
