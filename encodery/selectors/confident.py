"""Confident learning (Northcutt, Jiang and Chuang 2021, arXiv 1911.00068): labels that models of the other folds doubt.

score = (highest other probability − p(label) + 1) / 2; the confident joint says which rows are likely mislabelled
"""

from typing import Literal

import numpy as np

from encodery.core.label_errors import confident
from encodery.selectors.base import Pool, Ranked, Selector


class Confident(Selector):
    """Rows whose labels are likely correct first; or those whose labels are likely wrong, for review."""

    needs = ("predictions",)

    pick: Literal["clean", "suspects"] = "clean"
    """clean: rows with likely wrong labels come last, so that a fraction leaves them out; suspects: they come first."""
    flagged: bool = False
    """true: clean leaves out the rows that confident learning flags, and suspects selects only those."""

    def __call__(self, pool: Pool, count: int) -> Ranked:
        """All positions, or those that the joint decides on."""
        scores, flags = confident(np.mean(pool.predictions, 0), pool.labels)
        order = pool.sorted(scores, highest=self.pick == "suspects")
        note = f"{int(flags.sum()):,} of {len(pool):,} labels are likely wrong by confident learning"
        if self.flagged:
            order = order[flags[order] == (self.pick == "suspects")]
        return Ranked(order, scores, notes=(note,))
