"""Class-balanced sampling: which row of which class comes at a place of the stream is a function of (seed, place).

Places come in blocks of one for each class, shuffled within the block, so that after any number of steps all classes
were drawn equally often, give or take one. Within a class rows are drawn without replacement, pass after pass.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from encodery.data import rng


@dataclass(frozen=True)
class Balance:
    """The members of each class, as positions among the rows in use."""

    classes: Sequence[np.ndarray]

    def at(self, places: np.ndarray, seed: int, own: str = "") -> np.ndarray:
        """The positions at these places of the stream, which has no end; `own` sets tasks of one run apart."""
        count = len(self.classes)
        block, slot = np.divmod(places, count)
        shuffled = np.argsort(rng.bits(rng.key(seed, f"classes{own}"), block, count), axis=1, kind="stable")
        which = shuffled[np.arange(len(places)), slot]
        rows = np.empty(len(places), np.int64)
        for number in np.unique(which):
            here = which == number
            rows[here] = self._members(int(number), block[here], seed, own)
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


def copies(rows: np.ndarray) -> list[np.ndarray]:
    """The rows of a step in parts without repetition: two copies of a group would otherwise become one example."""
    if len(np.unique(rows)) == len(rows):
        return [rows]
    order = np.argsort(rows, kind="stable")
    first = np.searchsorted(rows[order], rows[order], "left")
    turn = np.empty(len(rows), np.int64)
    turn[order] = np.arange(len(rows)) - first
    return [rows[turn == one] for one in range(int(turn.max()) + 1)]
