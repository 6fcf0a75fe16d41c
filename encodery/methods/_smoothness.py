"""What methods share that ask for the same answer at the worst point nearby: SMART, ALUM, SiFT and VAT.

loss(E) + weight · distance(f(E), f(E + δ)),   δ found by a few ascents of that distance
"""

from dataclasses import replace
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from encodery.data.batches import Batch
from encodery.methods._notes import both_losses, size_notes
from encodery.methods._perturbation import Norm, Perturbation, Space
from encodery.methods.base import Totals, add, detached, note
from encodery.models.model import Model, Outputs, Terms

# How far two answers to the same batch are: for methods that ask for consistency.


def again(model: Model, batch: Batch, outputs: Outputs) -> Batch:
    """The batch for another pass whose answer is to be compared with these outputs."""
    found: Batch = model.objective(batch.task).again(outputs, batch)
    return found


def distance(model: Model, batch: Batch, a: Outputs, b: Outputs, one_sided: bool = False) -> Tensor:
    """Sum over the examples of how far two answers are, with the weights of task and examples."""
    objective = model.objective(batch.task)
    apart: Tensor = (objective.divergence if one_sided else objective.distance)(a, b, batch)
    if batch.weights is not None:
        apart = apart * batch.weights
    return apart.sum() * model.weights.get(batch.task, 1.0)


class Smooth(Perturbation):
    """Options of all of them."""

    detach: ClassVar[bool] = False  # whether perturbed passes give the embeddings no gradient
    one_sided: ClassVar[bool] = False  # whether the clean answer is a fixed target, and the distance KL(clean ‖ other)

    weight: float = Field(default=1.0, ge=0)
    """λ, the weight of the smoothness term."""

    def on_batch(self, model: Model, batch: Batch, totals: Totals) -> Terms:
        loss, _, whole = self.smoothed(model, batch, totals)
        loss.backward()  # type: ignore[no-untyped-call]
        return whole

    def smoothed(self, model: Model, batch: Batch, totals: Totals) -> tuple[Tensor, Outputs, Terms]:
        """The whole loss, the clean answer, and what is reported."""
        space = self.space(model, batch)
        clean, terms = self.run(model, batch, None)
        fixed = {name: value.detach() for name, value in clean.items()}
        batch = again(model, batch, clean)
        space = replace(space, batch=batch)
        delta, notes = self.worst(model, batch, totals, fixed, space)
        outputs, others = self.run(model, batch, delta, self.last_draw, detach=self.detach)
        apart = distance(model, batch, fixed if self.one_sided else clean, outputs, self.one_sided)
        add(notes, size_notes(space, totals, self.last_draw, delta, None))
        add(notes, note("distance", apart, batch.examples))
        add(notes, both_losses(model, batch, terms, others))
        add(notes, self.costly_notes(model, space, delta, clean=False))
        return totals.mean(terms) + self.weight * totals.per_example(apart), clean, detached(terms) | notes

    @property
    def last_draw(self) -> int:
        """The number of the perturbed pass that is trained on."""
        raise NotImplementedError

    def worst(self, model: Model, batch: Batch, totals: Totals, fixed: Outputs, space: Space) -> tuple[Tensor, Terms]:
        """The perturbation at which the answer differs most from the clean one, which is `fixed`."""
        raise NotImplementedError

    def slope(
        self, model: Model, space: Space, totals: Totals, fixed: Outputs, delta: Tensor, k: int
    ) -> tuple[Tensor, Terms]:
        """Gradient of the distance at a perturbation, for the perturbation alone: the weights get none."""
        outputs, _ = self.run(model, space.batch, delta.requires_grad_(), k, detach=self.detach)
        apart = totals.per_example(distance(model, space.batch, fixed, outputs, self.one_sided))
        (grad,) = torch.autograd.grad(apart, delta)
        return grad, size_notes(space, totals, k, delta, grad)


class AscendingSmoothness(Smooth):
    """Options of those that climb from a small random start: SMART, ALUM, SiFT."""

    ascent_steps: int = Field(default=1, ge=0)
    """Number of ascent steps."""
    adv_lr: float = Field(default=1e-3, ge=0)
    """η, the step size of the ascent."""
    init_mag: float = Field(default=1e-5, ge=0)
    """σ, the standard deviation of the random start. With 0 the perturbation cannot grow, because the gradient of the
    distance is zero there."""
    max_norm: float | None = Field(default=1e-5, ge=0)
    """ε, the maximum norm of the perturbation; null or 0: no limit. The default is the published value, which has
    almost no effect on small encoders."""
    norm: Norm = "linf"
    """Norm of the perturbation: l2, or linf (the largest absolute value)."""

    lengths: ClassVar[tuple[str, ...]] = ("adv_lr", "max_norm")
    numbers: ClassVar[tuple[str, ...]] = ("init_mag",)

    @property
    def reach(self) -> float:
        """Within the ball, where there is one; else nearly all of the random start, and the ascents."""
        return self.max_norm or 2 * self.init_mag + self.adv_lr * self.ascent_steps

    @property
    def last_draw(self) -> int:
        return self.ascent_steps + 1

    def start_at(self, space: Space) -> Tensor:
        return space.normal(self.init_mag)

    def worst(self, model: Model, batch: Batch, totals: Totals, fixed: Outputs, space: Space) -> tuple[Tensor, Terms]:
        delta, notes = self.start_at(space), Terms()
        for k in range(1, self.ascent_steps + 1):
            grad, sizes = self.slope(model, space, totals, fixed, delta, k)
            add(notes, sizes)
            delta = space.climb(delta, grad, self.adv_lr, self.max_norm)
        return delta, notes
