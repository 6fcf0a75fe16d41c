"""How sequences lie in memory, and how to ask for them without knowing.

Packed: all tokens of a micro-batch in one row [1, T], no padding. Rows: one sequence a row [n, L], padded. Nobody
else in the house indexes hidden states by position: they ask the layout for `first`, `tokens`, `rows`,
`per_sequence`. Values are always shaped as the encoder gives them: [1, T, …] or [n, L, …].
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from torch import Tensor

# index [n, L], mask [n, 1, 1, L], places of the real cells; the last two are None where nothing is padded
Group = tuple[Tensor, Tensor | None, Tensor | None]
Reduce = Literal["sum", "mean", "max"]


@dataclass(frozen=True)
class Packed:
    """Sequences one after the other in a single row."""

    lengths: Tensor  # [n]

    @cached_property
    def starts(self) -> Tensor:
        """Where each sequence begins."""
        return torch.cumsum(self.lengths, 0) - self.lengths

    @cached_property
    def sequence_of_token(self) -> Tensor:
        """Number of the sequence that each token belongs to."""
        return torch.repeat_interleave(torch.arange(len(self.lengths), device=self.lengths.device), self.lengths)

    @cached_property
    def _cells(self) -> tuple[Tensor, Tensor]:
        place = torch.arange(int(self.lengths.max()), device=self.lengths.device)
        mask = place < self.lengths[:, None]
        return torch.where(mask, self.starts[:, None] + place, 0), mask

    def first(self, hidden: Tensor) -> Tensor:
        """The vector of each sequence's first token: [n, …]."""
        return hidden[0].index_select(0, self.starts)

    def tokens(self, values: Tensor) -> Tensor:
        """All real tokens, sequence by sequence: [T, …]."""
        return values[0]

    def rows(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """One sequence a row, and the mask of real tokens: [n, L, …], [n, L]."""
        index, mask = self._cells
        return values[0][index], mask

    def per_sequence(self, values: Tensor, how: Reduce) -> Tensor:
        """Sum, mean or maximum over the tokens of each sequence."""
        flat = values[0]
        index = self.sequence_of_token.view(-1, *[1] * (flat.dim() - 1)).expand_as(flat)
        empty = flat.new_zeros(len(self.lengths), *flat.shape[1:])
        kind = "amax" if how == "max" else how
        return empty.scatter_reduce(0, index, flat, kind, include_self=False)

    def spread(self, per_sequence: Tensor) -> Tensor:
        """One value per sequence, given to each of its tokens: [1, T, …]."""
        return per_sequence.index_select(0, self.sequence_of_token)[None]


@dataclass(frozen=True)
class Rows:
    """One sequence a row, padded at the right."""

    mask: Tensor  # [n, L] of bool

    @cached_property
    def lengths(self) -> Tensor:
        """Tokens in each sequence."""
        return self.mask.sum(1)

    @cached_property
    def sequence_of_token(self) -> Tensor:
        """Number of the sequence that each token belongs to."""
        return self.mask.nonzero()[:, 0]

    def first(self, hidden: Tensor) -> Tensor:
        """The vector of each sequence's first token: [n, …]."""
        return hidden[:, 0]

    def tokens(self, values: Tensor) -> Tensor:
        """All real tokens, sequence by sequence: [T, …]."""
        return values[self.mask]

    def rows(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """One sequence a row, and the mask of real tokens."""
        return values, self.mask

    def per_sequence(self, values: Tensor, how: Reduce) -> Tensor:
        """Sum, mean or maximum over the tokens of each sequence."""
        mask = self.mask.view(*self.mask.shape, *[1] * (values.dim() - 2))
        if how == "max":
            return values.masked_fill(~mask, float("-inf")).amax(1)
        total = values.masked_fill(~mask, 0).sum(1)
        return total if how == "sum" else total / mask.sum(1)

    def spread(self, per_sequence: Tensor) -> Tensor:
        """One value per sequence, given to each of its tokens (zero on padding): [n, L, …]."""
        mask = self.mask.view(*self.mask.shape, *[1] * (per_sequence.dim() - 1))
        return per_sequence[:, None] * mask


Layout = Packed | Rows


def groups_of(lengths: np.ndarray, sizes: list[int]) -> list[Group]:
    """Attention groups of sequences that lie one after another: `sizes` says how many go into each."""
    ends = np.cumsum(lengths)
    groups: list[Group] = []
    row = 0
    for size in sizes:
        part = lengths[row : row + size]
        start = ends[row] - lengths[row]
        longest = int(part.max())
        offsets = start + np.concatenate([[0], np.cumsum(part)[:-1]])
        if int(part.min()) == longest:  # equal lengths (pretraining blocks) are a view: nothing to gather
            index = start + np.arange(size * longest).reshape(size, longest)
            groups.append((torch.from_numpy(index), None, None))
        else:
            place = np.arange(longest)
            mask = place < part[:, None]
            index = np.where(mask, offsets[:, None] + place, start)
            real = torch.from_numpy(np.flatnonzero(mask))
            groups.append((torch.from_numpy(index), torch.from_numpy(mask)[:, None, None, :], real))
        row += size
    return groups


def attention_groups(lengths: np.ndarray, call: float = 60.0) -> list[int]:
    """How to cut sequences, sorted by length, into groups for attention: least padded cells plus `call` per group.

    Attention costs about L² per sequence for the scores and L for the gather, so a group of n costs n·(L² / 64 + L);
    one more call costs about as much as `call` such units (measured on two CPU cores with 12 heads of 32).
    """
    n = len(lengths)
    weight = lengths.astype(np.float64) ** 2 / 64 + lengths
    best = np.full(n + 1, np.inf)
    best[0] = 0.0
    cut = np.zeros(n + 1, dtype=np.int64)
    for end in range(1, n + 1):
        begins = np.arange(max(0, end - 64), end)
        longest = np.maximum(weight[end - 1], weight[begins])  # sorted either way
        cost = best[begins] + (end - begins) * longest + call
        pick = int(cost.argmin())
        best[end], cut[end] = cost[pick], begins[pick]
    sizes: list[int] = []
    while n:
        sizes.append(int(n - cut[n]))
        n = int(cut[n])
    return sizes[::-1]


def row_cuts(lengths: np.ndarray, budget: int, most: int | None, one_pass: float = 200.0) -> list[int]:
    """Rows layout: cut sorted sequences into micro-batches where that saves more padding than a pass costs."""
    n = len(lengths)
    best, cut = [0.0] + [float("inf")] * n, [0] * (n + 1)
    for end in range(1, n + 1):
        for begin in range(end - 1, -1, -1):
            cells = (end - begin) * int(max(lengths[begin], lengths[end - 1]))
            if end - begin > 1 and (cells > budget or (most and end - begin > most)):
                break
            cost = best[begin] + cells + one_pass
            if cost < best[end]:
                best[end], cut[end] = cost, begin
    sizes = []
    while n:
        sizes.append(n - cut[n])
        n = cut[n]
    return sizes[::-1]


def fill_cuts(lengths: np.ndarray, budget: int, most: int | None, padded: bool) -> list[int]:
    """Fill micro-batches in order up to the token budget (with padding: rows × longest)."""
    sizes: list[int] = []
    count, total, longest = 0, 0, 0
    for length in lengths.tolist():
        tokens = max(longest, length) * (count + 1) if padded else total + length
        if count and (tokens > budget or (most and count >= most)):
            sizes.append(count)
            count, total, longest = 0, 0, 0
        count, total, longest = count + 1, total + length, max(longest, length)
    return [*sizes, count] if count else sizes
