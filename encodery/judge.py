"""Which evaluation is the best, of a task and over tasks, and what a collapse looks like in the losses."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from encodery.errors import UserError
from encodery.metric_table import direction, lower_is_better

Headline = tuple[str, float]  # metric and score


def means(values: Sequence[float]) -> float:
    """Their mean."""
    return math.fsum(values) / len(values)


def better(found: Headline, known: Mapping[str, Any] | None) -> bool:
    """Whether a score beats the best one so far."""
    metric, value = found
    sign = -1 if lower_is_better(metric) else 1
    return known is None or sign * value > sign * known["score"]


def over_tasks(found: Mapping[str, Headline], decides: str | None) -> Headline:
    """The score that choices go by: that of one task, or the mean, in which losses of plain text have no place."""
    if decides is not None:
        if decides not in found:
            raise UserError(f"train.select_on: {decides} is not scored on the way; there are {', '.join(found)}")
        return found[decides]
    if len(found) == 1:
        return next(iter(found.values()))
    up = [value for metric, value in found.values() if not lower_is_better(metric)]
    return ("mean", means(up)) if up else ("nll", means([value for _, value in found.values()]))


def require_metric(metric: str, scores: Mapping[str, float], task: str) -> None:
    """What nobody could know before the first scores."""
    if metric not in scores:
        raise UserError(f"train.select_metric: {task} has no {metric}; it has {', '.join(scores)}")
    direction(metric, "train.select_metric")


def stuck(losses: Sequence[float], classes: int) -> str | None:
    """A sentence if the training loss never left ln(classes): the usual face of a collapse (R15)."""
    if classes < 2 or len(losses) < 20:
        return None
    mean, limit = means(losses), math.log(classes)
    if mean < 0.985 * limit:
        return None
    return f"training loss {mean:.4f} over the last {len(losses)} steps is near ln {classes} = {limit:.4f}"
