"""Classes by quota: which row of which class comes at a place of the stream is a function of (seed, place).

Places come in blocks that hold each class as often as its quota, shuffled within the block. With a quota of one each,
all classes were drawn equally often after any number of steps, give or take one (balanced sampling); the sources of a
corpus are drawn by shares. Within a class rows are drawn without replacement, pass after pass.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from encodery.data import rng

SLOTS = 1000  # places of a block that shares are rounded to


@dataclass(frozen=True)
class RowRange:
    """Rows that follow each other, without a list of them."""

    begin: int
    size: int

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, places: np.ndarray) -> np.ndarray:
        return self.begin + places


@dataclass(frozen=True)
class Balance:
    """The members of each class, as positions among the rows in use, and how often each class comes in a block."""

    classes: Sequence[np.ndarray | RowRange]
    quotas: Sequence[int] = ()  # none: one each

    def at(self, places: np.ndarray, seed: int, own: str = "") -> np.ndarray:
        """The positions at these places of the stream, which has no end; `own` sets tasks of one run apart."""
        quotas = np.array(self.quotas or [1] * len(self.classes))
        class_of = np.repeat(np.arange(len(quotas)), quotas)  # of each slot of a block that is not shuffled
        block, slot = np.divmod(places, len(class_of))
        blocks, which_block = np.unique(block, return_inverse=True)
        draws = rng.bits(rng.key(seed, f"classes{own}"), blocks, len(class_of))
        sequence = class_of[np.argsort(draws, axis=1, kind="stable")]  # [blocks, slots]
        which = sequence[which_block, slot]
        rows = np.empty(len(places), np.int64)
        for number in np.unique(which):
            here = which == number
            before = np.cumsum(sequence == number, axis=1) - 1  # turns of this class in a block up to each slot
            turns = block[here] * quotas[number] + before[which_block[here], slot[here]]
            rows[here] = self._members(int(number), turns, seed, own)
        return rows

    def _members(self, number: int, turns: np.ndarray, seed: int, own: str) -> np.ndarray:
        """The members of a class at its n-th turns: each once, in an order of its own, before any comes again."""
        members = self.classes[number]
        rounds, index = np.divmod(turns, len(members))
        rows = np.empty(len(turns), np.int64)
        for one in np.unique(rounds):
            order = rng.Order(seed, int(one), len(members), f"class {number}{own}")
            rows[rounds == one] = members[order.at(index[rounds == one])]
        return rows


def classes_of(targets: np.ndarray) -> list[np.ndarray]:
    """Positions of the rows of each class that occurs. Of several labels a row is in the class of each, or of none."""
    if targets.ndim == 1:
        return [np.flatnonzero(targets == label) for label in np.unique(targets)]
    members = [np.flatnonzero(targets[:, label] > 0) for label in range(targets.shape[1])]
    return [one for one in [*members, np.flatnonzero(~(targets > 0).any(axis=1))] if len(one)]


def quotas_of(shares: Sequence[float]) -> list[int]:
    """Places of a block for each share: rounded so that they fill it, and none is left without one."""
    exact = np.array(shares) / sum(shares) * (SLOTS - len(shares))
    ends = [round(end) for end in accumulate(exact)]
    return [1 + int(end - begin) for begin, end in zip([0, *ends], ends, strict=False)]


def copies(rows: np.ndarray) -> list[np.ndarray]:
    """The rows of a step in parts without repetition: two copies of a group would otherwise become one example."""
    if len(np.unique(rows)) == len(rows):
        return [rows]
    order = np.argsort(rows, kind="stable")
    first = np.searchsorted(rows[order], rows[order], "left")
    turn = np.empty(len(rows), np.int64)
    turn[order] = np.arange(len(rows)) - first
    return [rows[turn == one] for one in range(int(turn.max()) + 1)]
