"""SMART: a smooth answer around the embeddings, small steps in function space (Jiang et al. 2020, arXiv 1911.03437).

loss(E) + weight · distance(f(E), f(E + δ)) + proximal_weight · distance(f(E), f̃(E))

δ_0 ~ N(0, init_mag²);  δ_{k+1} = project(δ_k + adv_lr · ∇δ / ‖∇δ‖, max_norm)   of distance(f(E + δ), sg f(E))
f̃ has the weights θ̃ ← ema · θ̃ + (1 − ema) · θ, a moving mean (Bregman proximal point, "momentum" variant)
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.func import functional_call

from encodery.data.batches import Batch
from encodery.methods._perturb import Perturbation, Space, distance, size_notes
from encodery.methods.base import Totals, add, detached, each, note, seed_dropout
from encodery.methods.plain import Plain
from encodery.models.model import Model, Outputs, Terms


class Smart(Perturbation):
    """The loss, plus the distance to the answer at the worst point nearby, plus that to the answer of past weights."""

    weight: float = Field(default=1.0, ge=0)
    """How much smoothness counts, λ."""
    proximal_weight: float = Field(default=1.0, ge=0)
    """How much the distance to the moving mean's answer counts, μ; 0: no moving mean is kept."""
    ascent_steps: int = Field(default=1, ge=0)
    """Ascents of the perturbation."""
    adv_lr: float = Field(default=1e-3, ge=0)
    """Length of an ascent step, η."""
    init_mag: float = Field(default=1e-5, ge=0)
    """Standard deviation of the random start, σ. At 0 nothing can climb: the distance is flat there."""
    max_norm: float | None = Field(default=1e-5, ge=0)
    """Radius of the ball, ε; null or 0: no limit."""
    norm: Literal["l2", "linf"] = "linf"
    """l2, or linf (the largest absolute number)."""
    ema: float = Field(default=0.99, ge=0, lt=1)
    """Share of the old in the moving mean of the weights, β."""
    ema_late: float = Field(default=0.999, ge=0, lt=1)
    """The same from late_step on."""
    late_step: int | None = Field(default=None, ge=0)
    """When ema_late begins (published: after a tenth of all steps); null: never."""

    def start(self, model: Model) -> "_Smart":
        """The method with its moving mean."""
        return _Smart(self)

    def __call__(self, model: Model, micro: Sequence[Batch], totals: Totals) -> Terms:
        """Without `start` there is no moving mean."""
        raise TypeError("SMART has state: use what start(model) returns")

    def rate(self, step: int) -> float:
        """Share of the old weights in this step."""
        return self.ema if self.late_step is None or step < self.late_step else self.ema_late

    def worst(self, model: Model, batch: Batch, totals: Totals, clean: Outputs, space: Space) -> tuple[Tensor, Terms]:
        """The perturbation at which the answer differs most, found by a few ascents; the weights get no gradient."""
        fixed = {name: value.detach() for name, value in clean.items()}
        shift, notes = space.normal(self.init_mag), Terms()
        for k in range(1, self.ascent_steps + 1):
            outputs, _ = self.run(model, batch, shift.requires_grad_(), draw=k)
            apart = totals.per_example(distance(model, batch, outputs, fixed))
            (grad,) = torch.autograd.grad(apart, shift)
            add(notes, size_notes(space, totals, k, shift, grad))
            shift = space.climb(shift, grad, self.adv_lr, self.max_norm)
        add(notes, size_notes(space, totals, self.ascent_steps + 1, shift, None))
        return shift, notes


class _Smart:
    """SMART at work: the options, and the moving mean of the weights."""

    def __init__(self, options: Smart):
        self.options = options
        self.mean: dict[str, Tensor] = {}
        self.step = -1  # the latest one whose weights are in the mean

    def __call__(self, model: Model, micro: Sequence[Batch], totals: Totals) -> Terms:
        """All micro-batches of the step."""
        step = micro[0].step
        if step < self.options.start_step:
            return Plain()(model, micro, totals)
        if self.options.proximal_weight and step != self.step:  # a step may be tried again after a lack of memory
            self.follow(model, step)
        return each(self.one, model, micro, totals)

    @torch.no_grad()
    def follow(self, model: Model, step: int) -> None:
        """Move the mean towards the weights; it begins at them."""
        trained = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
        if not self.mean:
            self.mean = {name: value.clone() for name, value in trained.items()}
        rate = self.options.rate(step)
        for name, value in trained.items():
            self.mean[name] = torch.lerp(self.mean[name].to(value.device), value, 1 - rate)
        self.step = step

    def one(self, model: Model, batch: Batch, totals: Totals) -> Terms:
        """One micro-batch."""
        options, space = self.options, self.options.space(model, batch)
        seed_dropout(batch, 0)
        clean, terms = model(batch)
        shift, notes = options.worst(model, batch, totals, clean, space)
        outputs, _ = options.run(model, batch, shift, draw=options.ascent_steps + 1)
        apart = distance(model, batch, clean, outputs)
        loss = totals.mean(terms) + options.weight * totals.per_example(apart)
        add(notes, note("distance", apart, len(batch)))
        if options.proximal_weight:
            drift = distance(model, batch, clean, self.past(model, batch))
            loss = loss + options.proximal_weight * totals.per_example(drift)
            add(notes, note("drift", drift, len(batch)))
        loss.backward()  # type: ignore[no-untyped-call]
        return detached(terms) | notes | options.look(model, space, shift, clean=False)

    @torch.no_grad()
    def past(self, model: Model, batch: Batch) -> Outputs:
        """The answer of the moving mean, with the dropout masks of the clean pass."""
        seed_dropout(batch, 0)
        outputs: Outputs = functional_call(model, self.mean, (batch,))[0]
        return outputs

    def tensors(self) -> dict[str, Tensor]:
        """The moving mean and how far it has come."""
        return {**self.mean, "step": torch.tensor(self.step)} if self.mean else {}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on with a stored mean."""
        self.step = int(tensors["step"])
        self.mean = {name: value.clone() for name, value in tensors.items() if name != "step"}
