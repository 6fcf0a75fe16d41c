"""GradNorm (Chen et al. 2018, arXiv 1711.02257): weights that let all tasks learn at a like pace.

G_i = ‖∇_W w_i · L_i‖₂ at W, the encoder's top layer;  r_i = (L_i / L_i(0)) / mean;  target_i = mean(G) · r_i^alpha
w_i ← w_i − lr · sign(G_i − target_i) · (G_i / w_i) / mean(G / w), then Σ w = number of tasks

The slope of |G_i − target_i| in w_i is divided by the mean norm, so that lr means the same for every model.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from encodery.errors import UserError
from encodery.methods.base import ActiveMethod, add, note
from encodery.models.model import Model, Terms
from encodery.weighting.base import ActiveWeighting, Gradient, Learnt, Part, Weighting, put_reduced, taken

SMALLEST = 1e-3  # no weight falls below: a task that does not count would never come back


class GradNorm(Weighting):
    """Learns task weights that give slow tasks larger gradients than fast ones."""

    together: ClassVar[bool] = True

    alpha: float = Field(default=1.5, ge=0)
    """How strongly slow tasks are favoured: about 1.5 for very different tasks, 0.12 for similar ones."""
    lr: float = Field(default=0.025, gt=0)
    """Learning rate of the task weights."""

    def start(self, model: Model, tasks: Sequence[str], seed: int) -> ActiveWeighting:
        """What holds the weights."""
        return _GradNorm(self, tasks)


class _GradNorm:
    """GradNorm at work."""

    def __init__(self, options: GradNorm, tasks: Sequence[str]):
        self.options, self.tasks = options, list(tasks)
        self.weights = torch.ones(len(tasks), dtype=torch.float64)
        self.first = torch.full((len(tasks),), torch.nan, dtype=torch.float64)  # losses of the first step
        self.step = -1  # the latest one whose losses are in the weights

    def __call__(self, method: ActiveMethod, model: Model, parts: Sequence[Part]) -> Terms:
        """Each task by its weight; then the weights move, for the next step."""
        if [part.task for part in parts] != self.tasks:
            raise UserError("weighting.kind: gradnorm needs every task in every step; remove mix or set together")
        summed: Terms = {}
        gradients, losses, sizes = [], [], []
        for part, weight in zip(parts, self.weights.tolist(), strict=True):
            terms, gradient = taken(method, model, part, weight, reduced=True)
            add(summed, terms)
            add(summed, note(f"weighting.{part.task}", torch.tensor(weight), 1.0))
            gradients.append(gradient)
            losses.append(part.loss(terms))
            sizes.append(top_norm(model, gradient) / part.totals.scale)
        put_reduced(gradients)
        self.learn(parts[0].step, torch.tensor(losses).double(), torch.tensor(sizes).double())
        return summed

    def learn(self, step: int, losses: Tensor, sizes: Tensor) -> None:
        """One move of the weights; an fp16 overflow moves nothing."""
        if step == self.step or not bool(torch.isfinite(sizes).all() & torch.isfinite(losses).all()):
            return
        self.step = step
        self.first = torch.where(self.first.isnan(), losses, self.first)
        pace = losses / self.first.clamp(min=1e-12)
        target = sizes.mean() * (pace / pace.mean().clamp(min=1e-12)) ** self.options.alpha
        raw = sizes / self.weights
        slope = torch.sign(sizes - target) * raw / raw.mean().clamp(min=1e-30)
        moved = (self.weights - self.options.lr * slope).clamp(min=SMALLEST)
        self.weights = moved * len(moved) / moved.sum()

    def learnt(self) -> dict[str, Learnt]:
        """Nothing: it moves its weights itself."""
        return {}

    def tensors(self) -> dict[str, Tensor]:
        """Weights, first losses, and how far it has come."""
        return {"weights": self.weights, "first": self.first, "step": torch.tensor(self.step)}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        self.weights, self.first = tensors["weights"].clone(), tensors["first"].clone()
        self.step = int(tensors["step"])


def top_norm(model: Model, gradient: Gradient) -> float:
    """Norm of a gradient at the encoder's top layer, the last one that the tasks share."""
    encoder = model.encoder
    top = {p for _, p, depth in encoder.named_depths() if depth == encoder.layers}
    parts = [torch.linalg.vector_norm(value).double().cpu() for p, value in gradient.items() if p in top]
    if not parts:
        raise UserError("weighting.kind: gradnorm measures the encoder's top layer, which is frozen (model.tune)")
    return float(torch.stack(parts).norm())
