"""Between size and equality: p_i ∝ min(n_i, cap)^(1/T) (T5, jiant)."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from encodery.mix.base import Drawn, Size, rows_of


class Temperature(Drawn):
    """Each batch of a task drawn by a power of its size."""

    temperature: float = Field(default=2.0, gt=0)
    """T in n^(1/T): 1 is proportional, 2 the square root of the size, large values nearly uniform."""
    cap: int | None = Field(default=None, ge=1)
    """Larger sets count as if they had so many rows."""

    def chances(self, sizes: Sequence[Size], epoch: int, epochs: float) -> NDArray[np.float64]:
        """Capped rows to the power 1 / T; by logarithms of shares, so that nothing overflows at small T."""
        rows = np.minimum(rows_of(sizes), self.cap or np.inf)
        return np.asarray(np.exp(np.log(rows / rows.max()) / self.temperature), np.float64)
