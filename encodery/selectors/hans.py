"""Rows that speak against HANS's first heuristic: all words of the hypothesis stand in the premise, and yet the label
is not entailment (McCoy et al. found 261 such lines among the pairs of MNLI that overlap).
"""

import re

import numpy as np
from pydantic import Field

from encodery.errors import UserError
from encodery.selectors.base import Pool, Ranked, Selector
from encodery.tasks.base import Example

WORD = re.compile(r"\w+")


class AgainstHans(Selector):
    """Rows on which word overlap misleads first, then all others in random order."""

    weight: float = Field(default=1.0, gt=0)
    """Loss weight of these rows."""

    def __call__(self, pool: Pool, count: int) -> Ranked:
        against = np.array([contradicts(example) for example in pool.examples])
        weights = np.where(against, self.weight, 1.0) if self.weight != 1.0 else None
        note = f"{int(against.sum()):,} of {len(pool):,} rows contradict word overlap; they come first"
        return Ranked(pool.sorted(against.astype(float)), against.astype(float), weights=weights, notes=(note,))


def contradicts(example: Example) -> bool:
    """Whether the hypothesis has only words of the premise and does not follow from it."""
    if len(example.texts) != 2:
        raise UserError(f"selector.kind: hans needs pairs of texts; example {example.id} has {len(example.texts)}")
    premise, hypothesis = (set(WORD.findall(text.lower())) for text in example.texts)
    return example.label != "entailment" and bool(hypothesis) and hypothesis <= premise
