"""All tasks alike, whatever their size: p_i = 1 / T."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from encodery.mix.base import Drawn, Size


class Uniform(Drawn):
    """Each batch of a task drawn as if all had the same size: small sets are seen again and again."""

    def chances(self, sizes: Sequence[Size], epoch: int, epochs: float) -> NDArray[np.float64]:
        """The same for all."""
        return np.ones(len(sizes))
