"""As a person says: p_i ∝ the number given for task i."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from encodery.errors import UserError
from encodery.mix.base import Drawn, Size


class Explicit(Drawn):
    """Each batch of a task drawn by shares that are given."""

    shares: dict[str, float] = Field(min_length=1)
    """Task -> how often it comes, such as {glue/mnli: 3, glue/rte: 1}; every task needs one."""

    def check(self, names: Sequence[str]) -> None:
        """Every task has a share, and every share a task."""
        if odd := sorted(set(names) ^ set(self.shares)):
            what = "needs a share" if odd[0] in names else "is none of this run's tasks"
            raise UserError(f"mix.shares: {odd[0]} {what}; the tasks are {', '.join(names)}")
        if min(self.shares.values()) <= 0:
            raise UserError("mix.shares: each must be above 0; leave a task out of tasks to not train on it")

    def chances(self, sizes: Sequence[Size], epoch: int, epochs: float) -> NDArray[np.float64]:
        """As given."""
        return np.array([self.shares[size.name] for size in sizes])
