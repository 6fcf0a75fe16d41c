"""Area under the margin (Pleiss et al. 2020, arXiv 2001.10528): rows whose label the model never believed.

score = mean over epochs and runs of z(label) − the highest other logit; what is low is likely mislabelled
"""

from typing import Literal

import numpy as np
from pydantic import Field

from encodery.core.label_errors import area_under_margin
from encodery.selectors.base import Pool, Ranked, Selector


class Aum(Selector):
    """Rows whose labels are likely right first; or those whose labels are likely wrong, to look at."""

    needs = ("dynamics",)

    pick: Literal["clean", "suspects"] = "clean"
    """clean: likely wrong labels last, so that a part leaves them out; suspects: they come first."""
    epochs: int | None = Field(default=None, ge=1)
    """Only the first epochs count, before wrong labels are learnt by heart; default: all."""

    def __call__(self, pool: Pool, count: int) -> Ranked:
        scores = np.mean([area_under_margin(logits[: self.epochs], pool.labels) for logits in pool.logits], 0)
        note = f"{int((scores < 0).sum()):,} of {len(pool):,} labels were less likely than another one, on average"
        return Ranked(pool.sorted(scores, highest=self.pick == "clean"), scores, notes=(note,))
