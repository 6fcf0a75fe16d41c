"""The loss of each row after an epoch, -log p(label); highest first."""

import numpy as np

from encodery.select._dynamics import at_epoch, chances
from encodery.select.base import Pool, Ranked, Selector


class Loss(Selector):
    """Rows with the highest loss first."""

    needs = ("dynamics",)

    epoch: int = -1
    """After which epoch; -1: the last."""

    def __call__(self, pool: Pool, count: int) -> Ranked:
        """All positions."""
        each = [chances(z) for z in at_epoch(pool.logits, self.epoch)]
        scores = np.mean([-np.log(np.maximum(p[np.arange(len(pool)), pool.labels], 1e-300)) for p in each], 0)
        return Ranked(pool.sorted(scores, highest=True), scores)
