"""Which part of a step's rows a process takes. The step as a whole is the same for any number of processes."""

from dataclasses import dataclass

import numpy as np

from encodery.data.tokens import TokenTable


@dataclass(frozen=True)
class Share:
    """The part of process `rank` of `size`."""

    rank: int = 0
    size: int = 1

    def of(self, table: TokenTable, rows: np.ndarray) -> np.ndarray:
        """This process's rows, in their order; rows of one group stay together. Everybody has about as many tokens."""
        if self.size == 1:
            return rows
        lengths = np.asarray(table.lengths[rows])
        group = rows if table.group is None else np.asarray(table.group[rows])
        _, part = np.unique(group, return_inverse=True)
        whose = self.deal(np.bincount(part, weights=lengths))
        mine: np.ndarray = rows[whose[part] == self.rank]
        return mine

    def deal(self, tokens: np.ndarray) -> np.ndarray:
        """Who takes each example: the longest first, each to the one with the fewest tokens so far."""
        loads, whose = np.zeros(self.size), np.zeros(len(tokens), np.int64)
        for i in np.argsort(-tokens, kind="stable"):
            whose[i] = np.argmin(loads)
            loads[whose[i]] += tokens[i]
        return whose


WHOLE = Share()
