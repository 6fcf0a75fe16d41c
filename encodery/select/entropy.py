"""The entropy of the probabilities after an epoch; highest first."""

import numpy as np

from encodery.select._dynamics import at_epoch, chances
from encodery.select.base import Pool, Ranked, Selector


class Entropy(Selector):
    """Rows that the model is most unsure of first."""

    needs = ("dynamics",)

    epoch: int = -1
    """After which epoch; -1: the last."""

    def __call__(self, pool: Pool, count: int) -> Ranked:
        """All positions."""
        each = [chances(z) for z in at_epoch(pool.logits, self.epoch)]
        scores = np.mean([-(p * np.log(np.maximum(p, 1e-300))).sum(1) for p in each], 0)
        return Ranked(pool.sorted(scores, highest=True), scores)
