"""A weighting makes one gradient of the gradients of a step's tasks. Methods work on one task at a time below it.

A run with one task has a weighting too, the constant one, which then changes no bit.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from encodery.core.options import Options
from encodery.data.batches import Batch, Batches
from encodery.distributed import comm
from encodery.methods.base import ActiveMethod, Presampling, Totals, losses_of, step_of
from encodery.models.model import Model, Terms

Gradient = dict[nn.Parameter, Tensor]


@dataclass(frozen=True)
class Part:
    """One task's part of a step."""

    task: str
    micro: Sequence[Batch]
    totals: Totals
    counts: Mapping[tuple[str, str], float]
    source: Batches  # the task's own stream
    share: float = 1.0  # how much the task counts in this step

    @property
    def step(self) -> int:
        """Steps done before this one."""
        return step_of(self.micro, self.totals)

    def add_gradient(self, method: ActiveMethod, model: Model, factor: float = 1.0) -> Terms:
        """Add the gradient of `factor` times the task's loss into .grad; detached sums of the loss as it is."""
        if isinstance(method, Presampling):  # importance sampling alone: it draws rows itself
            method.source = self.source
        return method(model, self.micro, self.totals.times(self.share * factor))

    def loss(self, terms: Terms) -> float:
        """The mean loss that the sums of all processes amount to, its terms added up."""
        return sum(float(value) / self.counts[key] for key, value in comm.add_terms(losses_of(terms)).items())


class Learnt(NamedTuple):
    """A number that a weighting learns with the run's optimiser, and its peak rate."""

    tensor: nn.Parameter
    lr: float


class ActiveWeighting(Protocol):
    """A weighting at work."""

    def __call__(self, method: ActiveMethod, model: Model, parts: Sequence[Part]) -> Terms:
        """Add the step's gradient into .grad; the detached sums of all parts."""

    def learnt(self) -> dict[str, Learnt]:
        """What the optimiser moves besides the model."""

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint must hold besides weights and optimiser."""

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Resume from what `tensors` gave."""


class Weighting(Options):
    """Options of a weighting. One without state is at work by itself; one with state builds what holds it."""

    together: ClassVar[bool] = False
    """Whether it needs the gradients of several tasks in a step."""

    def start(self, model: Model, tasks: Sequence[str], seed: int) -> ActiveWeighting:
        """What weighs the steps of a run."""
        return self

    def __call__(self, method: ActiveMethod, model: Model, parts: Sequence[Part]) -> Terms:
        """Add the step's gradient into .grad; the detached sums of all parts."""
        raise NotImplementedError

    def learnt(self) -> dict[str, Learnt]:
        return {}

    def tensors(self) -> dict[str, Tensor]:
        return {}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """No state."""


def taken(
    method: ActiveMethod, model: Model, part: Part, factor: float = 1.0, *, reduced: bool = False
) -> tuple[Terms, Gradient]:
    """The gradient of one part by itself, out of .grad: methods that read .grad (SAM) must not see another task's.

    `reduced`: that of all processes, for those that look at the gradient; it goes back by `put_reduced`.
    """
    terms = part.add_gradient(method, model, factor)
    if reduced:
        comm.reduce_gradients(p for p in model.parameters() if p.requires_grad)
    found = {p: p.grad for p in model.parameters() if p.grad is not None}
    for parameter in found:
        parameter.grad = None
    return terms, found


def put_reduced(gradients: Iterable[Gradient]) -> None:
    """As `put`, of gradients that every process has: one of them puts it, and the loop adds the others' nothing."""
    if comm.is_main():
        put(gradients)


@torch.no_grad()
def put(gradients: Iterable[Gradient]) -> None:
    """Add gradients up in .grad; what none of them has stays None, so that idle heads stay idle."""
    for gradient in gradients:
        for parameter, value in gradient.items():
            parameter.grad = value if parameter.grad is None else parameter.grad.add_(value)
