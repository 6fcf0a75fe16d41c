"""A mix says which task each batch of an epoch belongs to. It knows sizes alone, and draws without state.

An epoch is as many batches as all tasks together have in one pass, unless a mix says otherwise.
"""

import math
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from encodery.core.options import Options
from encodery.data import rng
from encodery.errors import UserError

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
    """Batches per optimiser step, from whichever tasks come next. Their gradients are averaged (gradient
    accumulation)."""

    def in_step(self, tasks: int) -> int:
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
        drawn = rng.uniform(rng.key(seed, "mix", epoch), np.arange(self.length(sizes)), 1)[:, 0]
        return np.minimum(np.searchsorted(limits, drawn, side="right"), len(sizes) - 1)


def rows_of(sizes: Sequence[Size]) -> NDArray[np.float64]:
    """Training rows of each task."""
    return np.array([size.rows for size in sizes], np.float64)


def shuffled(numbers: Numbers, seed: int, epoch: int) -> Numbers:
    """The same numbers in the random order of an epoch."""
    return numbers[rng.Order(seed, epoch, len(numbers), "mix").at(np.arange(len(numbers)))]


def one_pass(sizes: Sequence[Size]) -> Numbers:
    """Each task as often as it has batches."""
    return np.repeat(np.arange(len(sizes)), [size.batches for size in sizes])


# From size towards equality (Stickland and Murray 2019, arXiv 1902.02671).
#
# p_i ∝ n_i^α, α = 1 − 0.8 · (e − 1) / (E − 1) in epoch e of E


class Annealed(Drawn):
    """Draws the task of each batch in proportion to its size at first, and more and more evenly towards the end."""

    last: float = Field(default=0.2, ge=0, le=1)
    """Exponent of the task size in the last epoch. It starts at 1."""

    def chances(self, sizes: Sequence[Size], epoch: int, epochs: float) -> NDArray[np.float64]:
        """Rows to the power of this epoch."""
        return rows_of(sizes) ** self.exponent(epoch, epochs)

    def exponent(self, epoch: int, epochs: float) -> float:
        """1 in the first epoch, `last` in the last one."""
        steps = math.ceil(epochs) - 1
        return 1.0 - (1.0 - self.last) * min(1.0, epoch / steps) if steps > 0 else 1.0


# As a person says: p_i ∝ the number given for task i.


class Explicit(Drawn):
    """Draws the task of each batch by given shares."""

    shares: dict[str, float] = Field(min_length=1)
    """Relative frequency of each task, such as {glue/mnli: 3, glue/rte: 1}. Every task needs one."""

    def check(self, names: Sequence[str]) -> None:
        """Every task has a share, and every share a task."""
        if odd := sorted(set(names) ^ set(self.shares)):
            what = "needs a share" if odd[0] in names else "is not a task of this run"
            raise UserError(f"mix.shares: {odd[0]} {what}; the tasks are {', '.join(names)}")
        if min(self.shares.values()) <= 0:
            raise UserError("mix.shares: each must be above 0; leave a task out of tasks to not train on it")

    def chances(self, sizes: Sequence[Size], epoch: int, epochs: float) -> NDArray[np.float64]:
        return np.array([self.shares[size.name] for size in sizes])


# MT-DNN's orders, for comparison with it (namisan/mt-dnn, batcher.py). The first task of the list is the main one.
#
# ratio 0                  all batches of all tasks, shuffled
# ratio 0, main_last       those of the other tasks shuffled together, then those of the main one
# ratio r                  all of the main task and min(r · n₀, Σ others) of the others, without replacement, shuffled
# ratio r, main_last       those of the others first, then those of the main one
#
# Other than there, an epoch is as long as it says (with a ratio the released schedule never reaches 0).


class Mtdnn(Stepped):
    """The four batch orders of MT-DNN."""

    ratio: float = Field(default=0.0, ge=0)
    """Batches of other tasks for each batch of the main (first) task; 0: all of them. `--ratio` in MT-DNN."""
    main_last: bool = False
    """Put the main task after all others. `--mix_opt 1` in MT-DNN."""
    legacy_batches: bool = True
    """As in the released code, a batch holds consecutive rows of the file and is the same in every epoch. false:
    shuffle the rows."""

    @property
    def neighbours(self) -> bool:
        """As released, unless told otherwise."""
        return self.legacy_batches

    @property
    def has_main(self) -> bool:
        """With a ratio or an order; else all tasks are alike."""
        return self.main_last or self.ratio > 0

    def others(self, sizes: Sequence[Size]) -> int:
        """Batches of an epoch that are not of the main task."""
        there = sum(size.batches for size in sizes[1:])
        return min(int(self.ratio * sizes[0].batches), there) if self.ratio else there

    def length(self, sizes: Sequence[Size]) -> int:
        """Those of the main task and of the others."""
        return sizes[0].batches + self.others(sizes)

    def order(self, sizes: Sequence[Size], epoch: int, epochs: float, seed: int) -> Numbers:
        """One of the four."""
        whole = one_pass(sizes)
        main, rest = whole[whole == 0], whole[whole > 0]
        drawn = shuffled(rest, seed, epoch)[: self.others(sizes)] if len(rest) else rest
        found = np.concatenate([drawn, main])
        return found if self.main_last else shuffled(found, seed, epoch)


# Tasks drawn by their size: p_i ∝ n_i, with replacement.


class Proportional(Drawn):
    """Draws the task of each batch in proportion to its number of training rows."""

    def chances(self, sizes: Sequence[Size], epoch: int, epochs: float) -> NDArray[np.float64]:
        return rows_of(sizes)


# Every batch of every task once in an epoch, in random order: proportional, without replacement (MT-DNN's default).


class Shuffled(Stepped):
    """Every batch of every task once per epoch, in random order."""

    def order(self, sizes: Sequence[Size], epoch: int, epochs: float, seed: int) -> Numbers:
        """Another order in each epoch."""
        return shuffled(one_pass(sizes), seed, epoch)


# Between size and equality: p_i ∝ min(n_i, cap)^(1/T) (T5, jiant).


class Temperature(Drawn):
    """Draws the task of each batch in proportion to a power of its size."""

    temperature: float = Field(default=2.0, gt=0)
    """T in n^(1/T): 1 is proportional, 2 the square root of the size, large values nearly uniform."""
    cap: int | None = Field(default=None, ge=1)
    """Maximum size: larger tasks count as if they had this many rows."""

    def chances(self, sizes: Sequence[Size], epoch: int, epochs: float) -> NDArray[np.float64]:
        """Capped rows to the power 1 / T; by logarithms of shares, so that nothing overflows at small T."""
        rows = np.minimum(rows_of(sizes), self.cap or np.inf)
        return np.asarray(np.exp(np.log(rows / rows.max()) / self.temperature), np.float64)


# Every step holds a batch of each task, and their losses are added up: for PCGrad and GradNorm, or by itself.


class Together(Mix):
    """One batch of every task in every step. Smaller tasks start over as often as needed."""

    summed: ClassVar[bool] = True

    def in_step(self, tasks: int) -> int:
        return tasks

    def length(self, sizes: Sequence[Size]) -> int:
        """As many batches as usual, rounded up to whole steps."""
        return -(-super().length(sizes) // len(sizes)) * len(sizes)

    def order(self, sizes: Sequence[Size], epoch: int, epochs: float, seed: int) -> Numbers:
        return np.tile(np.arange(len(sizes)), self.length(sizes) // len(sizes))


# All tasks alike, whatever their size: p_i = 1 / T.


class Uniform(Drawn):
    """Draws the task of each batch uniformly, so rows of small tasks repeat more often."""

    def chances(self, sizes: Sequence[Size], epoch: int, epochs: float) -> NDArray[np.float64]:
        """The same for all."""
        return np.ones(len(sizes))


KINDS: dict[str, type[Mix]] = {
    "annealed": Annealed,
    "explicit": Explicit,
    "mtdnn": Mtdnn,
    "proportional": Proportional,
    "shuffled": Shuffled,
    "temperature": Temperature,
    "together": Together,
    "uniform": Uniform,
}
