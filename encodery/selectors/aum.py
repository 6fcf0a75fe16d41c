"""Area under the margin (Pleiss et al. 2020, arXiv 2001.10528): rows whose label the model never believed.

score = mean over epochs and runs of z(label) − the highest other logit; what is low is likely mislabelled
"""

from typing import Literal

import numpy as np
from pydantic import Field

from encodery.core.label_errors import area_under_margin
from encodery.selectors.base import Pool, Ranked, Selector


class Aum(Selector):
    """Rows whose labels are likely correct first; or those whose labels are likely wrong, for review."""

    needs = ("dynamics",)

    pick: Literal["clean", "suspects"] = "clean"
    """clean: rows with likely wrong labels come last, so that a fraction leaves them out; suspects: they come first."""
    epochs: int | None = Field(default=None, ge=1)
    """Use only the first N epochs, before wrong labels are memorised. Default: all."""

    def __call__(self, pool: Pool, count: int) -> Ranked:
        scores = np.mean([area_under_margin(logits[: self.epochs], pool.labels) for logits in pool.logits], 0)
        note = f"{int((scores < 0).sum()):,} of {len(pool):,} labels were less likely than another one, on average"
        return Ranked(pool.sorted(scores, highest=self.pick == "clean"), scores, notes=(note,))
