"""How sequences lie in memory, and how to ask for them without knowing.

Packed: all tokens of a micro-batch in one row [1, T], no padding. Rows: one sequence a row [n, L], padded. Nobody
else in the house indexes hidden states by position: they ask the layout for `first`, `tokens`, `rows`,
`per_sequence`. Values are always shaped as the encoder gives them: [1, T, …] or [n, L, …].
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

Reduce = Literal["sum", "mean", "max"]


def upcast(values: Tensor) -> Tensor:
    """At least float32: sums, norms and exponents overflow in half precision."""
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


@dataclass(frozen=True)
class Packed:
    """Sequences one after the other in a single row."""

    lengths: Tensor  # [n]
    lengths_on_host: np.ndarray | None = None  # the same numbers on the host

    @cached_property
    def host_lengths(self) -> np.ndarray:
        """Tokens in each sequence, where no device must be waited for."""
        return self.lengths.cpu().numpy() if self.lengths_on_host is None else self.lengths_on_host

    @cached_property
    def starts(self) -> Tensor:
        """Where each sequence begins."""
        return torch.cumsum(self.lengths, 0) - self.lengths

    @cached_property
    def sequence_of_token(self) -> Tensor:
        """Number of the sequence that each token belongs to."""
        return repeated(self.lengths, int(self.host_lengths.sum()))

    @cached_property
    def cells(self) -> Tensor:
        """Where each real token lies among the flattened cells: [T]."""
        return torch.arange(int(self.host_lengths.sum()), device=self.lengths.device)

    @cached_property
    def _cells(self) -> tuple[Tensor, Tensor]:
        place = torch.arange(int(self.host_lengths.max()), device=self.lengths.device)
        mask = place < self.lengths[:, None]
        return torch.where(mask, self.starts[:, None] + place, 0), mask

    @cached_property
    def _back(self) -> Tensor:
        """For each token its cell."""
        return cells_of(self.lengths, self.sequence_of_token, int(self.host_lengths.max()))

    def first(self, hidden: Tensor) -> Tensor:
        """The vector of each sequence's first token: [n, …]."""
        return hidden[0].index_select(0, self.starts)

    def tokens(self, values: Tensor) -> Tensor:
        """All real tokens, sequence by sequence: [T, …]."""
        return values[0]

    def from_tokens(self, tokens: Tensor) -> Tensor:
        """The way back: [1, T, …]."""
        return tokens[None]

    def rows(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """One sequence a row, and the mask of real tokens: [n, L, …], [n, L]."""
        index, mask = self._cells
        cells = _Gather.apply(values[0], index.flatten(), self._back)  # type: ignore[no-untyped-call]
        return cells.view(*index.shape, *values.shape[2:]), mask

    def per_sequence(self, values: Tensor, how: Reduce) -> Tensor:
        """Sum, mean or maximum over the tokens of each sequence."""
        flat = values[0]
        index = self.sequence_of_token.view(-1, *[1] * (flat.dim() - 1)).expand_as(flat)
        empty = flat.new_zeros(len(self.lengths), *flat.shape[1:])
        kind = "amax" if how == "max" else how
        return empty.scatter_reduce(0, index, flat, kind, include_self=False)


@dataclass(frozen=True)
class Rows:
    """One sequence a row, padded at the right."""

    mask: Tensor  # [n, L] of bool
    lengths_on_host: np.ndarray | None = None  # tokens in each sequence, on the host

    @cached_property
    def lengths(self) -> Tensor:
        """Tokens in each sequence."""
        return self.mask.sum(1)

    @cached_property
    def host_lengths(self) -> np.ndarray:
        """Tokens in each sequence, where no device must be waited for."""
        return self.lengths.cpu().numpy() if self.lengths_on_host is None else self.lengths_on_host

    @cached_property
    def sequence_of_token(self) -> Tensor:
        """Number of the sequence that each token belongs to."""
        return (
            self.mask.nonzero()[:, 0]
            if self.lengths_on_host is None
            else repeated(self.lengths, int(self.lengths_on_host.sum()))
        )

    @cached_property
    def cells(self) -> Tensor:
        """Where each real token lies among the flattened cells: [T]."""
        if self.lengths_on_host is None:
            return self.mask.flatten().nonzero()[:, 0]
        return cells_of(self.lengths, self.sequence_of_token, self.mask.shape[1])

    def first(self, hidden: Tensor) -> Tensor:
        """The vector of each sequence's first token: [n, …]."""
        return hidden[:, 0]

    def tokens(self, values: Tensor) -> Tensor:
        """All real tokens, sequence by sequence: [T, …]."""
        if self.mask.device.type == "cpu":
            return values[self.mask]
        return values.flatten(0, 1).index_select(0, self.cells)  # a mask as index would have to be counted first

    def from_tokens(self, tokens: Tensor) -> Tensor:
        """The way back, zero on padding: [n, L, …]."""
        empty = tokens.new_zeros(*self.mask.shape, *tokens.shape[1:])
        if self.mask.device.type != "cpu":  # the gradient of masked_scatter has to count the mask
            return empty.flatten(0, 1).index_copy(0, self.cells, tokens).view_as(empty)
        return empty.masked_scatter(self.mask.view(*self.mask.shape, *[1] * (tokens.dim() - 1)), tokens)

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


Layout = Packed | Rows


def repeated(lengths: Tensor, total: int) -> Tensor:
    """0 as often as the first length says, then 1: [total], which is known, so that no device is asked for it."""
    return torch.repeat_interleave(torch.arange(len(lengths), device=lengths.device), lengths, output_size=total)


def cells_of(lengths: Tensor, sequence: Tensor, longest: int) -> Tensor:
    """Where each token lies among the flattened cells of rows [n, longest]: [T]."""
    starts = lengths.cumsum(0) - lengths
    return sequence * longest + torch.arange(len(sequence), device=lengths.device) - starts[sequence]


class _Gather(torch.autograd.Function):
    """values[take], where `back` says at which place each value went: so its gradient is a gather too."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, take: Tensor, back: Tensor) -> Tensor:
        ctx.save_for_backward(back)
        return values.index_select(0, take)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return grad.index_select(0, *ctx.saved_tensors), None, None


@dataclass(frozen=True)
class Group:
    """Neighbouring sequences that attend together, padded to the longest of them."""

    lengths: Tensor  # [n]
    tokens: int
    longest: int
    _orders: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)

    @cached_property
    def mask(self) -> Tensor | None:
        """Which keys are real: [n, 1, 1, L]; None where all are."""
        if self.tokens == len(self.lengths) * self.longest:
            return None
        return (torch.arange(self.longest, device=self.lengths.device) < self.lengths[:, None])[:, None, None]

    def near(self, window: int) -> Tensor:
        """The mask of attention within a window: [n or 1, 1, L, L]."""
        place = torch.arange(self.longest, device=self.lengths.device)
        inside = (place[:, None] - place).abs() < window
        return inside[None, None] if self.mask is None else self.mask & inside

    def cells(self, values: Tensor, heads: int) -> Tensor:
        """From one row per token and head, [tokens · heads, size], to [n, heads, L, size]."""
        n, size = len(self.lengths), values.shape[1]
        if self.mask is None:
            return values.view(n, self.longest, heads, size).transpose(1, 2)
        take, back = self._index(heads)
        return _Gather.apply(values, take, back).view(n, heads, self.longest, size)  # type: ignore[no-untyped-call,no-any-return]

    def real(self, cells: Tensor) -> Tensor:
        """The way back: [tokens, heads · size]."""
        n, heads, longest, size = cells.shape
        if self.mask is None:
            return cells.transpose(1, 2).reshape(self.tokens, heads * size)
        _, back = self._index(heads)
        return cells.reshape(n * heads * longest, size).index_select(0, back).view(self.tokens, heads * size)

    def _index(self, heads: int) -> tuple[Tensor, Tensor]:
        """For each cell its value (padded ones: any) and for each value its cell; the same for all layers."""
        if heads not in self._orders:
            assert self.mask is not None
            device = self.lengths.device
            real = self.mask[:, 0, 0]
            head, place = torch.arange(heads, device=device), torch.arange(self.longest, device=device)
            token = torch.where(real, (self.lengths.cumsum(0) - self.lengths)[:, None] + place, 0)
            take = token[:, None] * heads + head[:, None]
            row = repeated(self.lengths, self.tokens)
            column = cells_of(self.lengths, row, self.longest) - row * self.longest
            back = (row[:, None] * heads + head) * self.longest + column[:, None]
            self._orders[heads] = take.reshape(-1), back.reshape(-1)
        return self._orders[heads]


def groups_of(lengths: np.ndarray, sizes: list[int], device: torch.device) -> list[Group]:
    """Attention groups of sequences that lie one after another: `sizes` says how many go into each."""
    parts = np.split(lengths, np.cumsum(sizes)[:-1])
    return [Group(torch.from_numpy(p.copy()).to(device), int(p.sum()), int(p.max())) for p in parts]


@dataclass(frozen=True)
class Offsets:
    """Where packed sequences begin and end, for kernels that take them so; what is an int is known on the host."""

    lengths: Tensor  # [n]
    longest: int
    shortest: int

    @classmethod
    def of(cls, lengths: Tensor, known: np.ndarray) -> "Offsets":
        return cls(lengths, int(known.max()), int(known.min()))

    @cached_property
    def wide(self) -> Tensor:
        """[n + 1] of int64, from 0 to the number of tokens; one tensor for all layers."""
        return torch.nn.functional.pad(self.lengths.cumsum(0), (1, 0))

    @cached_property
    def narrow(self) -> Tensor:
        """The same of int32."""
        return self.wide.to(torch.int32)


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


def row_cuts(lengths: np.ndarray, budget: int, max_sequences: int | None, one_pass: float = 200.0) -> list[int]:
    """Rows layout: cut sorted sequences into micro-batches where that saves more padding than a pass costs."""
    n = len(lengths)
    best, cut = [0.0] + [float("inf")] * n, [0] * (n + 1)
    for end in range(1, n + 1):
        for begin in range(end - 1, -1, -1):
            cells = (end - begin) * int(max(lengths[begin], lengths[end - 1]))
            if end - begin > 1 and (cells > budget or (max_sequences and end - begin > max_sequences)):
                break
            cost = best[begin] + cells + one_pass
            if cost < best[end]:
                best[end], cut[end] = cost, begin
    sizes = []
    while n:
        sizes.append(n - cut[n])
        n = cut[n]
    return sizes[::-1]


def fill_cuts(lengths: np.ndarray, budget: int, max_sequences: int | None, padded: bool) -> list[int]:
    """Fill micro-batches in order up to the token budget (with padding: rows × longest)."""
    sizes: list[int] = []
    count, total, longest = 0, 0, 0
    for length in lengths.tolist():
        tokens = max(longest, length) * (count + 1) if padded else total + length
        if count and (tokens > budget or (max_sequences and count >= max_sequences)):
            sizes.append(count)
            count, total, longest = 0, 0, 0
        count, total, longest = count + 1, total + length, max(longest, length)
    return [*sizes, count] if count else sizes


def group_cuts(groups: list[np.ndarray], budget: int, max_sequences: int | None, padded: bool) -> list[int]:
    """How many groups (each the lengths of its sequences) go into each micro-batch; none is cut."""
    sizes: list[int] = []
    inside: list[np.ndarray] = []
    for group in groups:
        lengths = np.concatenate([*inside, group])
        tokens = int(lengths.max()) * len(lengths) if padded else int(lengths.sum())
        if inside and (tokens > budget or (max_sequences and len(lengths) > max_sequences)):
            sizes.append(len(inside))
            inside = []
        inside.append(group)
    return [*sizes, len(inside)] if inside else sizes
