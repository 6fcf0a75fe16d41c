"""MT-DNN's orders, for comparison with it (namisan/mt-dnn, batcher.py). The first task of the list is the main one.

ratio 0                  all batches of all tasks, shuffled
ratio 0, main_last       those of the other tasks shuffled together, then those of the main one
ratio r                  all of the main task and min(r · n₀, Σ others) of the others, without replacement, shuffled
ratio r, main_last       those of the others first, then those of the main one

Other than there, an epoch is as long as it says (with a ratio the released schedule never reaches 0).
"""

from collections.abc import Sequence

import numpy as np
from pydantic import Field

from encodery.mix.base import Numbers, Size, Stepped, one_pass, shuffled


class Mtdnn(Stepped):
    """MT-DNN's four orders."""

    ratio: float = Field(default=0.0, ge=0)
    """Batches of other tasks for each batch of the main (first) one; 0: all there are. Released: --ratio."""
    main_last: bool = False
    """The main task after all others. Released: --mix_opt 1."""
    legacy_batches: bool = True
    """Batches of rows that are neighbours in the file, the same in every epoch, as released; false: shuffled rows."""

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
