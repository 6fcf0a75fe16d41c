"""The entropy of the probabilities after an epoch; highest first."""

import numpy as np

from encodery.selectors._dynamics import AfterEpoch
from encodery.selectors.base import Pool, Ranked
from encodery.tasks.forms.classification import softmax


class Entropy(AfterEpoch):
    """Rows with the highest predictive entropy first."""

    def __call__(self, pool: Pool, count: int) -> Ranked:
        each = [softmax(z) for z in self.logits(pool)]
        scores = np.mean([-(p * np.log(np.maximum(p, 1e-300))).sum(1) for p in each], 0)
        return Ranked(pool.sorted(scores, highest=True), scores)
