"""Dataset cartography (Swayamdipta et al. 2020, arXiv 2009.10795): how sure a model was of each row's label, and how
much that changed from epoch to epoch.

confidence   mean of p(label) over the epochs
variability  its standard deviation (of the population)
"""

from typing import Literal

import numpy as np
from pydantic import Field

from encodery.selectors.base import Numbers, Pool, Ranked, Selector, apportioned
from encodery.tasks.forms.classification import softmax

HARD = 7  # of ten rows at both ends


class Cartography(Selector):
    """Rows that are ambiguous, hard or easy for a model, by its training dynamics."""

    needs = ("dynamics",)

    pick: Literal["ambiguous", "hard", "easy", "both_ends"] = "ambiguous"
    """ambiguous: highest variability; hard: lowest confidence; easy: highest confidence; both_ends: 70 % hard and 30 %
    easy."""
    epochs: int | None = Field(default=None, ge=1)
    """Use only the first N epochs. Default: all."""

    @property
    def records_needed(self) -> int:
        return 2 if self.pick == "ambiguous" else 1  # of one nothing varies

    def __call__(self, pool: Pool, count: int) -> Ranked:
        confidence, variability, epochs = self.marks(pool)
        notes = ("one epoch only: nothing varies, so all rows are equally ambiguous",) if epochs < 2 else ()
        if self.pick == "ambiguous":
            return Ranked(pool.sorted(variability), variability, notes=notes)
        order = pool.sorted(confidence, highest=self.pick == "easy")
        return Ranked(both_ends(order) if self.pick == "both_ends" else order, confidence)

    def marks(self, pool: Pool) -> tuple[Numbers, Numbers, int]:
        """Confidence and variability (means over runs), and the fewest epochs of a run."""
        each = [softmax(logits)[: self.epochs, np.arange(len(pool)), pool.labels] for logits in pool.logits]
        confidence = np.mean([p.mean(0) for p in each], 0)
        variability = np.mean([p.std(0) for p in each], 0)
        return confidence, variability, min(len(p) for p in each)


def both_ends(order: Numbers) -> Numbers:
    """From an order that begins with the hardest: 7 of the hard end and 3 of the easy end in every ten."""
    turns = apportioned([HARD, 10 - HARD])
    first, last, mixed = 0, len(order) - 1, np.empty_like(order)
    for turn in range(len(order)):
        if turns[turn % 10] == 0:
            mixed[turn], first = order[first], first + 1
        else:
            mixed[turn], last = order[last], last - 1
    return mixed
