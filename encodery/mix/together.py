"""Every step holds a batch of each task, and their losses are added up: for PCGrad and GradNorm, or by itself."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from encodery.mix.base import Mix, Numbers, Size


class Together(Mix):
    """A batch of every task in every step; small sets begin again as often as they are through."""

    summed: ClassVar[bool] = True

    def in_step(self, tasks: int) -> int:
        """One of each."""
        return tasks

    def length(self, sizes: Sequence[Size]) -> int:
        """As many batches as usual, rounded up to whole steps."""
        return -(-super().length(sizes) // len(sizes)) * len(sizes)

    def order(self, sizes: Sequence[Size], epoch: int, epochs: float, seed: int) -> Numbers:
        """Nothing is drawn."""
        return np.tile(np.arange(len(sizes)), self.length(sizes) // len(sizes))
