"""Attention of BERT's kind for passes that need no gradient of the weights: fewer, larger steps.

Query, key and value are one product with their three matrices below each other, and the attention of a packed row is
one node of the graph that goes through it sequence by sequence: nothing is padded, gathered or joined, and the scores
of a sequence stay in the cache (on CPUs).

Where nothing but first tokens is read of the last layer there is one query a sequence, and neither keys nor values are
made of every token: q·(K x) is (Kᵀ q)·x, and Σ p·(V x) is V·Σ p·x, so a token costs heads · width instead of three
times width². The keys' bias adds the same to all scores of a query, which softmax does not see; that of the values is
added once, because the p of a query sum to 1. All this gives the same numbers but for rounding.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from encodery.data.batches import Batch
from encodery.data.layouts import Packed
from encodery.models.attention_heads import cut, modules_of
from encodery.models.encoder import Encoder
from encodery.models.kernels.first_token import first_only

PLAIN = frozenset({"bert", "roberta", "xlm-roberta", "camembert", "electra"})  # attention.self is nothing but this


def is_plain(inner: Any) -> bool:
    """Whether attention is nothing but scores of plain products: no dropout, no adapters."""
    plain = all(type(module) is nn.Linear for module in (inner.query, inner.key, inner.value))
    return plain and not (inner.training and inner.dropout.p)


@contextmanager
def joined(encoder: Encoder, batch: Batch, first: bool) -> Iterator[None]:
    """Inside, attention is computed like this wherever it can be; `first`: that of the last layer for first tokens."""
    plain = encoder.kind in PLAIN and not encoder.compiled
    inner: list[Any] = [m for m in modules_of(encoder, "attention.self") if is_plain(m)] if plain else []
    if isinstance(batch.layout, Packed) and batch.layout.lengths.device.type == "cpu":
        lengths = batch.layout.lengths.tolist()
        for module in inner:
            module.forward = _Forward(module, lengths)
    if first and inner:
        inner[-1].forward = _ForwardOfFirst(inner[-1], batch)
    try:
        yield
    finally:
        for module in inner:
            module.__dict__.pop("forward", None)


class _Forward:
    """In place of a module's own."""

    def __init__(self, inner: Any, lengths: Sequence[int]):
        self.inner, self.lengths = inner, lengths
        parts = (inner.query, inner.key, inner.value)
        self.weight = torch.cat([part.weight for part in parts])
        self.bias = None if parts[0].bias is None else torch.cat([part.bias for part in parts])

    def __call__(self, hidden: Tensor, *_: Any, **__: Any) -> tuple[Tensor, None]:
        three = F.linear(hidden[0], self.weight, self.bias)
        heads, scale = self.inner.num_attention_heads, self.inner.scaling
        return _Attend.apply(three, self.lengths, heads, scale)[None], None  # type: ignore[no-untyped-call]


class _ForwardOfFirst:
    """In place of the last one's own."""

    def __init__(self, inner: Any, batch: Batch):
        self.inner, self.batch, self.short = inner, batch, first_only(batch)

    def __call__(self, hidden: Tensor, *_: Any, **__: Any) -> tuple[Tensor, None]:
        return self.short.layout.from_tokens(attention_of_first(self.inner, *self.batch.rows(hidden))), None


def attention_of_first(inner: Any, x: Tensor, real: Tensor) -> Tensor:
    """What the first token of each sequence hears: [n, L, width] and which of them are real to [n, heads · size]."""
    heads, width = inner.num_attention_heads, x.shape[-1]
    query = cut(inner.query(x[:, 0]) * inner.scaling, heads, -1).transpose(0, 1)
    wanted = torch.bmm(query, inner.key.weight.view(heads, -1, width)).transpose(0, 1)  # [n, heads, width]
    scores = torch.bmm(wanted, x.transpose(1, 2)).masked_fill(~real[:, None], float("-inf"))
    heard = torch.bmm(scores.softmax(-1), x).transpose(0, 1)
    context = torch.bmm(heard, inner.value.weight.view(heads, -1, width).transpose(1, 2)).transpose(0, 1).flatten(1)
    return context if inner.value.bias is None else context + inner.value.bias


def by_sequence(values: Tensor, parts: int, heads: int, lengths: Sequence[int]) -> Iterator[tuple[Tensor, ...]]:
    """Each sequence's part of [T, parts · heads · size], as views [heads, L, size]."""
    each = values.view(len(values), parts, heads, -1).transpose(0, 2).unbind(1)
    return zip(*(torch.split(part, list(lengths), 1) for part in each), strict=True)


class _Attend(torch.autograd.Function):
    """w = softmax(q·kᵀ · scale), out = w·v of each sequence; w is kept."""

    @staticmethod
    def forward(ctx: Any, three: Tensor, lengths: Sequence[int], heads: int, scale: float) -> Tensor:
        out = three.new_empty(len(three), three.shape[1] // 3)
        kept, given = [], by_sequence(three, 3, heads, lengths)
        for (q, k, v), (to,) in zip(given, by_sequence(out, 1, heads, lengths), strict=True):
            weights = q.new_empty(heads, q.shape[1], q.shape[1])
            torch.baddbmm(weights, q, k.transpose(1, 2), beta=0, alpha=scale, out=weights)
            torch.softmax(weights, -1, out=weights)
            to.copy_(torch.bmm(weights, v))
            kept.append(weights)
        ctx.save_for_backward(three, *kept)
        ctx.about = lengths, heads, scale
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        three, *kept = ctx.saved_tensors
        lengths, heads, scale = ctx.about
        gradient = torch.empty_like(three)
        each = zip(
            kept, by_sequence(three, 3, heads, lengths), by_sequence(gradient, 3, heads, lengths),
            by_sequence(grad.contiguous(), 1, heads, lengths), strict=True,
        )  # fmt: skip
        for weights, (q, k, v), (to_q, to_k, to_v), (of,) in each:
            to_v.copy_(torch.bmm(weights.transpose(1, 2), of))
            slope = torch.bmm(of, v.transpose(1, 2))
            slope = torch._softmax_backward_data(slope, weights, -1, weights.dtype).mul_(scale)
            to_q.copy_(torch.bmm(slope, k))
            to_k.copy_(torch.bmm(slope.transpose(1, 2), q))
        return gradient, None, None, None
