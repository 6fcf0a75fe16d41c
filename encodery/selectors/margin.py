"""The gap between the two likeliest labels after an epoch; smallest first."""

import numpy as np

from encodery.selectors._dynamics import AfterEpoch
from encodery.selectors.base import Numbers, Pool, Ranked
from encodery.tasks.forms.classification import softmax


class Margin(AfterEpoch):
    """Rows with the smallest margin between the two most likely labels first."""

    def __call__(self, pool: Pool, count: int) -> Ranked:
        scores = np.mean([gap(softmax(z)) for z in self.logits(pool)], 0)
        return Ranked(pool.sorted(scores, highest=False), scores)


def gap(chances: Numbers) -> Numbers:
    """Of the likeliest label to the next."""
    top = np.sort(chances, 1)
    return np.asarray(top[:, -1] - top[:, -2])
