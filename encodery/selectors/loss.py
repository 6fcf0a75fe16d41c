"""The loss of each row after an epoch, -log p(label); highest first."""

import numpy as np

from encodery.selectors._dynamics import AfterEpoch
from encodery.selectors.base import Pool, Ranked
from encodery.tasks.forms.classification import softmax


class Loss(AfterEpoch):
    """Rows with the highest loss first."""

    def __call__(self, pool: Pool, count: int) -> Ranked:
        each = [softmax(z) for z in self.logits(pool)]
        scores = np.mean([-np.log(np.maximum(p[np.arange(len(pool)), pool.labels], 1e-300)) for p in each], 0)
        return Ranked(pool.sorted(scores, highest=True), scores)
