"""Uncertainty weighting (Kendall, Gal and Cipolla 2018, arXiv 1705.07115): noisy tasks count less, and it is learnt.

labels   exp(−s) · L + s          s = log σ², 0 at first
numbers  ½ · exp(−s) · L + ½ · s
The gradient in s is taken in closed form: c · (1 − exp(−s) · L), c = 1 or ½. Weight decay does not touch s.
"""

import math
from collections.abc import Mapping, Sequence

import torch
from pydantic import Field
from torch import Tensor, nn

from encodery.methods.base import ActiveMethod, add, note
from encodery.models.model import Model, Terms
from encodery.weighting.base import ActiveWeighting, Learnt, Part, Weighting, put, taken


class Uncertainty(Weighting):
    """Learns a log variance for each task, which scales its loss."""

    lr: float = Field(default=1e-3, gt=0)
    """Peak learning rate of the log variances, which need a much larger one than the weights. It follows
    optim.schedule."""

    def start(self, model: Model, tasks: Sequence[str], seed: int) -> ActiveWeighting:
        """What holds the log variances."""
        return _Uncertainty(self, model, tasks)


class _Uncertainty:
    """Uncertainty weighting at work."""

    def __init__(self, options: Uncertainty, model: Model, tasks: Sequence[str]):
        place = next(model.parameters()).device
        self.options = options
        self.logs = {task: nn.Parameter(torch.zeros((), device=place)) for task in tasks}
        self.half = {task: 0.5 if is_number(model, task) else 1.0 for task in tasks}

    def __call__(self, method: ActiveMethod, model: Model, parts: Sequence[Part]) -> Terms:
        """Each task's loss by its precision; the log variances of idle tasks have no gradient and stay."""
        summed: Terms = {}
        gradients = []
        for part in parts:
            log, half = self.logs[part.task], self.half[part.task]
            precision = math.exp(-float(log.detach()))
            terms, gradient = taken(method, model, part, half * precision)
            gradients.append(gradient)
            add(summed, terms)
            add(summed, note(f"weighting.{part.task}", log.new_tensor(half * precision), 1.0))
            log.grad = log.new_tensor(part.share * half * (1 - precision * part.loss(terms)))
        put(gradients)
        return summed

    def learnt(self) -> dict[str, Learnt]:
        return {f"log_variance.{task}": Learnt(log, self.options.lr) for task, log in self.logs.items()}

    def tensors(self) -> dict[str, Tensor]:
        """The log variances; their moments are the optimiser's."""
        return {task: log.detach() for task, log in self.logs.items()}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        with torch.no_grad():
            for task, log in self.logs.items():
                log.copy_(tensors[task])


def is_number(model: Model, task: str) -> bool:
    """Whether the task asks for a number."""
    return getattr(getattr(model.objective(task), "options", None), "form", None) == "regression"
