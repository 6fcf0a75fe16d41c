"""EL2N (Paul, Ganguli and Dziugaite 2021, arXiv 2107.07075): the error of the probabilities early in training.

score = mean over runs of ‖softmax(z) − onehot(y)‖₂, between 0 and √2: the norm of the loss's gradient at the logits
"""

from typing import Literal

import numpy as np
from pydantic import Field

from encodery.data.subset import share
from encodery.selectors._dynamics import AfterEpoch, error_norm
from encodery.selectors.base import Pool, Ranked


class El2n(AfterEpoch):
    """Rows with the largest error of the probabilities early in training, averaged over several runs."""

    epoch: int = 1
    """Use the logits after this epoch, or after this record if dynamics were recorded every N steps. -1: the last."""
    keep: Literal["high", "low"] = "high"
    """high: the hardest rows first; low: the easiest."""
    drop_top: float = Field(default=0.0, ge=0, lt=1)
    """Fraction of rows with the highest scores to put last, because they may be noise."""

    def __call__(self, pool: Pool, count: int) -> Ranked:
        scores = np.mean([error_norm(z, pool.labels) for z in self.logits(pool)], 0)
        order = pool.sorted(scores)
        noisy = share(len(order), self.drop_top)
        order = np.concatenate([order[noisy:], order[:noisy]])
        if self.keep == "low":
            order = np.concatenate([order[: len(order) - noisy][::-1], order[len(order) - noisy :]])
        return Ranked(order, scores)
