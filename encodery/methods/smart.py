"""SMART: a smooth answer around the embeddings, small steps in function space (Jiang et al. 2020, arXiv 1911.03437).

loss(E) + weight · distance(f(E), f(E + δ)) + proximal_weight · distance(f(E), f̃(E))

δ_0 ~ N(0, init_mag²);  δ_{k+1} = project(δ_k + adv_lr · ∇δ / ‖∇δ‖, max_norm)   of distance(f(E + δ), sg f(E))
f̃ has the weights θ̃ ← ema · θ̃ + (1 − ema) · θ, a moving mean (Bregman proximal point, "momentum" variant)
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from pydantic import Field
from torch import Tensor

from encodery.data.batches import Batch
from encodery.methods._smoothness import AscendingSmoothness, again, distance
from encodery.methods.base import Totals, add, each, note, seed_dropout, step_of
from encodery.methods.plain import Plain
from encodery.models.model import Model, Outputs, Terms


class Smart(AscendingSmoothness):
    """The loss, plus the divergence between the outputs for clean and for adversarially perturbed embeddings, plus that
    from the outputs of an exponential moving average of the weights."""

    proximal_weight: float = Field(default=1.0, ge=0)
    """μ, the weight of the divergence from the averaged model. 0: keep no average."""
    ema: float = Field(default=0.99, ge=0, lt=1)
    """β, the decay of the exponential moving average of the weights."""
    ema_late: float = Field(default=0.999, ge=0, lt=1)
    """The decay from late_step on."""
    late_step: int | None = Field(default=None, ge=0)
    """Step at which ema_late takes effect (in the paper after 10 % of all steps). null: never."""

    def start(self, model: Model) -> "_Smart":
        """The method with its moving mean."""
        self.require(model)
        return _Smart(self.sized(model))

    def __call__(self, model: Model, micro: Sequence[Batch], totals: Totals) -> Terms:
        """Without `start` there is no moving mean."""
        raise TypeError("SMART has state: use what start(model) returns")

    def rate(self, step: int) -> float:
        """Share of the old weights in this step."""
        return self.ema if self.late_step is None or step < self.late_step else self.ema_late


class _Smart:
    """SMART at work: the options, and the moving mean of the weights."""

    def __init__(self, options: Smart):
        self.options = options
        self.mean: dict[str, Tensor] = {}
        self.step = -1  # the latest one whose weights are in the mean

    def __call__(self, model: Model, micro: Sequence[Batch], totals: Totals) -> Terms:
        step = step_of(micro, totals)
        if step < self.options.start_step:
            return Plain()(model, micro, totals)
        if self.options.proximal_weight and step != self.step:  # a step may be tried again after a lack of memory
            self.follow(model, step)
        return each(self.on_batch, model, micro, totals)

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

    def on_batch(self, model: Model, batch: Batch, totals: Totals) -> Terms:
        options = self.options
        loss, clean, summed = options.smoothed(model, batch, totals)
        if options.proximal_weight:
            drift = distance(model, batch, clean, self.past(model, again(model, batch, clean)))
            loss = loss + options.proximal_weight * totals.per_example(drift)
            add(summed, note("drift", drift, batch.examples))
        loss.backward()  # type: ignore[no-untyped-call]
        return summed

    @torch.no_grad()
    def past(self, model: Model, batch: Batch) -> Outputs:
        """The answer of the moving mean, with the dropout masks of the clean pass."""
        seed_dropout(batch, 0)
        with self.in_place(model):
            outputs: Outputs = model(batch)[0]
        return outputs

    @contextmanager
    def in_place(self, model: Model) -> Iterator[None]:
        """Inside, the weights are the moving mean's. The parameters stay the same objects: torch's functional_call
        would leave copies behind where two networks share a module."""
        now = {name: (parameter, parameter.data) for name, parameter in model.named_parameters() if name in self.mean}
        try:
            for name, (parameter, _) in now.items():
                parameter.data = self.mean[name]
            yield
        finally:
            for parameter, own in now.values():
                parameter.data = own

    def tensors(self) -> dict[str, Tensor]:
        """The moving mean and how far it has come."""
        return {**self.mean, "step": torch.tensor(self.step)} if self.mean else {}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on with a stored mean."""
        self.step = int(tensors["step"])
        self.mean = {name: value.clone() for name, value in tensors.items() if name != "step"}
