"""Random: one order for each seed, so that subsets are nested; on request with every label's share."""

from typing import Literal

import numpy as np

from encodery.errors import UserError
from encodery.selectors.base import Pool, Ranked, Selector, apportioned, interleaved
from encodery.tasks.base import Example


class Random(Selector):
    """Random rows. With the same seed, a smaller subset is contained in a larger one."""

    stratify: list[Literal["label", "group", "genre", "heuristic", "subcase"]] = []
    """Stratify subsets by these columns, such as [label] or [label, group]. Empty: do not stratify."""

    def __call__(self, pool: Pool, count: int) -> Ranked:
        order = np.argsort(pool.draws, kind="stable")
        if not self.stratify:
            return Ranked(order)
        kinds = [tuple(_value(example, name) for name in self.stratify) for example in pool.examples]
        number = {kind: i for i, kind in enumerate(sorted(set(kinds)))}
        of = np.array([number[kind] for kind in kinds])[order]
        groups = [order[of == i] for i in range(len(number))]
        return Ranked(interleaved(groups, apportioned([len(group) for group in groups])))


def _value(example: Example, name: str) -> str:
    found = getattr(example, name) if name in ("label", "group") else example.extra.get(name)
    if found is None:
        raise UserError(f"selector.stratify: example {example.id} has no {name}")
    return str(found)
