"""Tasks drawn by their size: p_i ∝ n_i, with replacement."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from encodery.mix.base import Drawn, Size, rows_of


class Proportional(Drawn):
    """Each batch of a task drawn by the number of its training rows."""

    def chances(self, sizes: Sequence[Size], epoch: int, epochs: float) -> NDArray[np.float64]:
        """Rows."""
        return rows_of(sizes)
