"""A method turns the micro-batches of one step into a gradient. This page holds what all of them share."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from encodery.data import draws
from encodery.data.batches import Batch
from encodery.models.model import Model, Outputs, Terms
from encodery.options import Options


@dataclass(frozen=True)
class Totals:
    """What each term counts over the whole step: all micro-batches, all processes."""

    counts: Mapping[tuple[str, str], float]
    scale: float = 1.0  # of the loss: the fp16 scaler's, or 1 / passes of a method that averages several

    def times(self, factor: float) -> "Totals":
        """The same with a loss that weighs `factor`."""
        return replace(self, scale=self.scale * factor)

    def mean(self, terms: Terms) -> Tensor:
        """Σ term / total, scaled: the number whose gradient is wanted."""
        parts = [value / max(self.counts[key], 1e-12) for key, value in terms.items()]
        return torch.stack(parts).sum() * self.scale


class Method(Options):
    """Options of a method; calling it adds the step's gradient into .grad and returns the detached sums."""

    def __call__(self, model: Model, micro: Sequence[Batch], totals: Totals) -> Terms:
        """All micro-batches of the step."""
        raise NotImplementedError


def seed_dropout(batch: Batch, draw: int = 0) -> None:
    """Everything random inside a pass follows from the batch: the same draw gives the same dropout masks."""
    key = draws.key(batch.seed, "pass", draw) >> 1
    torch.default_generator.manual_seed(key)  # 1 µs; torch.manual_seed costs 230
    device = batch.ids.device if not batch.inputs else batch.inputs["input_ids"].device
    if device.type != "cpu":
        torch.manual_seed(key)


def backward(model: Model, batch: Batch, totals: Totals, draw: int = 0) -> tuple[Outputs, Terms]:
    """One forward and backward pass: gradients add up in .grad."""
    seed_dropout(batch, draw)
    outputs, terms = model(batch)
    totals.mean(terms).backward()  # type: ignore[no-untyped-call]
    return outputs, detached(terms)


def detached(terms: Terms) -> Terms:
    """The terms without their graph."""
    return {key: value.detach() for key, value in terms.items()}


def each(one: Callable[[Model, Batch, Totals], Terms], model: Model, micro: Sequence[Batch], totals: Totals) -> Terms:
    """For methods that work batch by batch: run `one` on every micro-batch and add the terms up."""
    whole: Terms = {}
    for batch in micro:
        for key, value in one(model, batch, totals).items():
            whole[key] = whole[key] + value if key in whole else value
    return whole
