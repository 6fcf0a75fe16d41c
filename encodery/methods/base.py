"""A method turns the micro-batches of one step into a gradient. This page holds what all of them share."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from encodery.core.options import Options
from encodery.data import rng, tensor_rng
from encodery.data.batches import Batch, Batches
from encodery.models.model import Model, Outputs, Terms


@dataclass(frozen=True)
class Totals:
    """What each term counts over the whole step: all micro-batches, all processes."""

    counts: Mapping[tuple[str, str], float]
    scale: float = 1.0  # of the loss: the fp16 scaler's, or 1 / passes of a method that averages several
    examples: float = 1.0  # sequences of the step: what a term of a method itself (a distance) is divided by
    step: int = 0  # steps done before this one, for a process that has no micro-batch

    def times(self, factor: float) -> "Totals":
        """The same with a loss that weighs `factor`."""
        return replace(self, scale=self.scale * factor)

    def mean(self, terms: Terms) -> Tensor:
        """Σ term / total, scaled: the number whose gradient is wanted."""
        parts = [value / max(self.counts[key], 1e-12) for key, value in terms.items()]
        return torch.stack(parts).sum() * self.scale

    def per_example(self, total: Tensor) -> Tensor:
        """A sum over sequences that is no term of the task (a distance), as a mean over the step, scaled."""
        return total / self.examples * self.scale


class ActiveMethod(Protocol):
    """A method at work: calling it adds the step's gradient into .grad and returns the detached sums."""

    def __call__(self, model: Model, micro: Sequence[Batch], totals: Totals) -> Terms:
        """All micro-batches of the step."""

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint must hold besides weights and optimiser."""

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Resume from what `tensors` gave."""


class Method(Options):
    """Options of a method. One without state is at work by itself; one with state builds what holds it in `start`."""

    updates: ClassVar[bool] = False
    """Whether it moves the weights inside a step (FreeAT): then a step holds one task."""
    draws_rows: ClassVar[bool] = False
    """Whether it chooses the rows of a step itself (importance sampling): then nothing else may."""

    def start(self, model: Model) -> ActiveMethod:
        """What takes the steps of a run."""
        return self

    def watches(self, step: int) -> bool:
        """Whether the notes of this step are to be written down, whatever train.log says."""
        return False

    def __call__(self, model: Model, micro: Sequence[Batch], totals: Totals) -> Terms:
        """All micro-batches of the step."""
        raise NotImplementedError

    def tensors(self) -> dict[str, Tensor]:
        """No state."""
        return {}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """No state."""


class Updating:
    """The one exception to "a step is one update" (FreeAT): such a method is handed the loop's own update.

    The loop still makes the last update of the step, so whatever it does after a gradient it does here too.
    """

    def __init__(self) -> None:
        self.update: Callable[[Terms, Sequence[Batch]], bool] | None = None  # set by the loop; False: fp16 overflowed
        self.updated = False  # whether the weights have moved since the step began

    def update_now(self, terms: Terms, micro: Sequence[Batch]) -> bool:
        """Check, clip and apply what is in .grad, and forget it."""
        if self.update is None:
            raise TypeError("this method updates inside a step: the loop must hand it `update`")
        taken = self.update(terms, micro)
        self.updated = self.updated or taken
        return taken

    def tensors(self) -> dict[str, Tensor]:
        """No state between steps."""
        return {}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """No state between steps."""


class Presampling:
    """A method that chooses its rows itself (importance sampling): the loop hands it the stream of the run."""

    def __init__(self) -> None:
        self.source: Batches | None = None  # set by the loop before each step

    def messages(self) -> list[str]:
        """Lines for the log that have come up since the last call."""
        return []

    def summary(self) -> list[str]:
        """What a reader of the run's figures must know."""
        return []


NOTE = ""  # stands for the task in terms that are no loss: numbers a method wants in metrics.jsonl


def note(name: str, total: Tensor, count: float) -> Terms:
    """A number for metrics.jsonl: `total` / `count`, both added up over the micro-batches of the step."""
    both = total.detach().double() if total.device.type != "mps" else total.detach()
    return {(NOTE, name): torch.stack([both, torch.full_like(both, count)])}


def notes_of(terms: Terms) -> dict[str, float]:
    """The numbers that `note` put among the terms."""
    notes = {name: both.tolist() for (task, name), both in terms.items() if task == NOTE}
    return {name: total / count for name, (total, count) in notes.items() if count}  # 0: no row has a label


def losses_of(terms: Terms) -> Terms:
    """The terms that are losses."""
    return {key: value for key, value in terms.items() if key[0] != NOTE}


def add(summed: Terms, terms: Terms, weight: float = 1.0) -> None:
    """Add `weight` times the losses, and the notes as they are, to `summed`."""
    for key, value in terms.items():
        more = value if key[0] == NOTE or weight == 1.0 else value * weight
        summed[key] = summed[key] + more if key in summed else more


def step_of(micro: Sequence[Batch], totals: Totals) -> int:
    """Steps done before this one."""
    return micro[0].step if micro else totals.step


def seed_dropout(batch: Batch, draw: int = 0) -> None:
    """Everything random inside a pass follows from the batch: the same draw gives the same dropout masks."""
    key = rng.key(batch.seed, "pass", draw) >> 1
    torch.default_generator.manual_seed(key)  # 1 µs; torch.manual_seed costs 230
    device = batch.ids.device if not batch.inputs else batch.inputs["input_ids"].device
    if device.type != "cpu":
        torch.manual_seed(key)


def uniform_noise(batch: Batch, width: int, purpose: str) -> torch.Tensor:
    """Numbers in [0, 1) as [tokens of the batch, width], from (seed, step, example, purpose) alone: the same however a
    step is cut. For `encoder.perturbed` put them into the batch's layout: `batch.layout.from_tokens(…)`."""
    return per_token(batch, width, purpose).float()


def per_token(batch: Batch, width: int, purpose: str) -> torch.Tensor:
    """The same in double (single precision where a device has no double): on a GPU by the device itself, to the bit."""
    if batch.layout.lengths.device.type == "cuda":
        return _drawn_there(batch, width, purpose)
    return _brought(_drawn_here(batch, width, purpose), batch)


def normal_per_token(batch: Batch, width: int) -> torch.Tensor:
    """Normal numbers, [tokens of the batch, width]; on a GPU by the device itself, which rounds in its own way."""
    purposes = ("radius", "angle")
    if batch.layout.lengths.device.type == "cuda":
        first, second = (_drawn_there(batch, width, purpose) for purpose in purposes)
        return tensor_rng.normal(first, second)
    return _brought(rng.normal(*(_drawn_here(batch, width, purpose) for purpose in purposes)), batch)


def _drawn_there(batch: Batch, width: int, purpose: str) -> torch.Tensor:
    key, layout = rng.key(batch.noise, f"{purpose} {batch.drawn_as or batch.task}"), batch.layout
    return tensor_rng.per_token(key, batch.ids_there, layout.lengths, layout.sequence_of_token, width)


def _drawn_here(batch: Batch, width: int, purpose: str) -> np.ndarray:
    key = rng.key(batch.noise, f"{purpose} {batch.drawn_as or batch.task}")
    return rng.per_token(key, batch.ids.numpy(), batch.layout.host_lengths, width)


def _brought(drawn: np.ndarray, batch: Batch) -> torch.Tensor:
    device = batch.layout.lengths.device
    return torch.from_numpy(drawn).to(torch.float32 if device.type == "mps" else torch.float64, copy=False).to(device)


def backward(model: Model, batch: Batch, totals: Totals, draw: int = 0) -> tuple[Outputs, Terms]:
    """One forward and backward pass: gradients add up in .grad."""
    seed_dropout(batch, draw)
    outputs, terms = model(batch)
    totals.mean(terms).backward()  # type: ignore[no-untyped-call]
    return outputs, detached(terms)


def detached(terms: Terms) -> Terms:
    """The terms without their graph."""
    return {key: value.detach() for key, value in terms.items()}


def each(
    per_batch: Callable[[Model, Batch, Totals], Terms], model: Model, micro: Sequence[Batch], totals: Totals
) -> Terms:
    """For methods that work batch by batch: run `per_batch` on every micro-batch and add the terms up."""
    summed: Terms = {}
    for batch in micro:
        add(summed, per_batch(model, batch, totals))
    return summed
