"""Forgetting (Toneva et al. 2019, arXiv 1812.05159): how often a row that was right became wrong again."""

import numpy as np

from encodery.selectors._dynamics import forgotten, right
from encodery.selectors.base import Numbers, Pool, Ranked, Selector

EPOCHS = 5  # below, counts say little


class Forgetting(Selector):
    """Rows that were forgotten most often first. Rows that were never learnt come before all others."""

    needs = ("dynamics",)

    def __call__(self, pool: Pool, count: int) -> Ranked:
        scores = np.mean([counted(right(z, pool.labels)) for z in pool.logits], 0)
        fewest = min(len(z) for z in pool.logits)
        note = f"{fewest} epochs: with fewer than {EPOCHS} the counts say little"
        return Ranked(pool.sorted(scores), scores, notes=(note,) if fewest < EPOCHS else ())


def counted(correct: Numbers) -> Numbers:
    """How often each row was forgotten ([epochs, n]); a row that was never right counts as many as there are epochs.

    No row can be forgotten so often, so it still comes first; and one run of several does not decide alone.
    """
    found = forgotten(correct)
    return np.where(np.isinf(found), float(len(correct)), found)
