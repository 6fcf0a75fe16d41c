"""A mix says which task each batch of an epoch belongs to. It knows sizes alone, and draws without state.

An epoch is as many batches as all tasks together have in one pass, unless a mix says otherwise.
"""

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from encodery.data import draws
from encodery.options import Options

Numbers = NDArray[np.int64]


class Size(NamedTuple):
    """How large the training set of a task is."""

    name: str
    rows: int
    batches: int  # of one pass; the last one may be smaller


class Mix(Options):
    """Options of a mix."""

    summed: ClassVar[bool] = False
    """Whether the losses of a step's tasks are added up; else their batches are averaged."""

    def check(self, names: Sequence[str]) -> None:
        """Refuse tasks that do not fit the options."""

    @property
    def neighbours(self) -> bool:
        """Whether batches hold neighbours of the file and begin anew in every epoch (MT-DNN)."""
        return False

    @property
    def has_main(self) -> bool:
        """Whether the first task of the list is mixed in another way than the others."""
        return False

    def in_step(self, tasks: int) -> int:
        """Batches of an optimiser step."""
        return 1

    def length(self, sizes: Sequence[Size]) -> int:
        """Batches of an epoch."""
        return sum(size.batches for size in sizes)

    def order(self, sizes: Sequence[Size], epoch: int, epochs: float, seed: int) -> Numbers:
        """The number of the task of each batch of an epoch."""
        raise NotImplementedError


class Stepped(Mix):
    """A mix whose steps may hold several batches."""

    per_step: int = Field(default=1, ge=1)
    """Batches of an optimiser step, of whatever tasks come next; their gradients are averaged (accumulation)."""

    def in_step(self, tasks: int) -> int:
        """As asked."""
        return self.per_step


class Drawn(Stepped):
    """A mix that draws a task for each batch, with replacement."""

    def chances(self, sizes: Sequence[Size], epoch: int, epochs: float) -> NDArray[np.float64]:
        """How often each task comes; they are divided by their sum."""
        raise NotImplementedError

    def order(self, sizes: Sequence[Size], epoch: int, epochs: float, seed: int) -> Numbers:
        """Drawn by inverse distribution function, one number a batch."""
        chances = self.chances(sizes, epoch, epochs)
        limits = np.cumsum(chances / chances.sum())
        drawn = draws.uniform(draws.key(seed, "mix", epoch), np.arange(self.length(sizes)), 1)[:, 0]
        return np.minimum(np.searchsorted(limits, drawn, side="right"), len(sizes) - 1)


def rows_of(sizes: Sequence[Size]) -> NDArray[np.float64]:
    """Training rows of each task."""
    return np.array([size.rows for size in sizes], np.float64)


def shuffled(numbers: Numbers, seed: int, epoch: int) -> Numbers:
    """The same numbers in the random order of an epoch."""
    return numbers[draws.Order(seed, epoch, len(numbers), "mix").at(np.arange(len(numbers)))]


def one_pass(sizes: Sequence[Size]) -> Numbers:
    """Each task as often as it has batches."""
    return np.repeat(np.arange(len(sizes)), [size.batches for size in sizes])
