"""From size towards equality (Stickland and Murray 2019, arXiv 1902.02671).

p_i ∝ n_i^α, α = 1 − 0.8 · (e − 1) / (E − 1) in epoch e of E
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from encodery.mix.base import Drawn, Size, rows_of


class Annealed(Drawn):
    """Each batch of a task drawn by its size at first, more and more evenly towards the end."""

    last: float = Field(default=0.2, ge=0, le=1)
    """The exponent in the last epoch; in the first it is 1."""

    def chances(self, sizes: Sequence[Size], epoch: int, epochs: float) -> NDArray[np.float64]:
        """Rows to the power of this epoch."""
        return rows_of(sizes) ** self.exponent(epoch, epochs)

    def exponent(self, epoch: int, epochs: float) -> float:
        """1 in the first epoch, `last` in the last one."""
        steps = math.ceil(epochs) - 1
        return 1.0 - (1.0 - self.last) * min(1.0, epoch / steps) if steps > 0 else 1.0
