"""An encoder's last layer for the first token of each sequence alone: all that a classifier reads.

With one query a sequence neither keys nor values are made of every token: q·(K x) is (Kᵀ q)·x, and Σ p·(V x) is
V·Σ p·x, so a token costs heads · width instead of three times width². The keys' bias adds the same to all scores of a
query, which softmax does not see; that of the values is added once, because the p of a query sum to 1.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from encodery.data.batches import Batch
from encodery.data.layouts import Layout, Packed, Rows
from encodery.models.encoder import Encoder
from encodery.models.gates import cut, modules_of
from encodery.models.joined import is_plain

# attention.output takes the heads' output and what it is added to.
ENDS_WITH_FIRST = frozenset({"bert", "roberta", "xlm-roberta", "camembert", "electra", "amos"})


@contextmanager
def ending_with_first(encoder: Encoder, batch: Batch) -> Iterator[Batch]:
    """Inside, the last layer sees only the first token of each sequence from its attention on. Gives the batch as it is
    from there on; hidden states are those of sequences of one token."""
    device = batch.layout.lengths.device
    one = torch.ones(len(batch), 1, dtype=torch.bool, device=device)
    short: Layout = Rows(one) if isinstance(batch.layout, Rows) else Packed(one[:, 0].long())
    inner: Any = modules_of(encoder, "attention.self")[-1]
    alone = is_plain(encoder, inner)

    def heard(hidden: Tensor, *_: Any, **__: Any) -> tuple[Tensor, None]:
        return short.from_tokens(attention_of_first(inner, *batch.rows(hidden))), None

    def before(_module: nn.Module, given: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        context, hidden = given
        return context if alone else short.from_tokens(batch.first(context)), short.from_tokens(batch.first(hidden))

    handle = modules_of(encoder, "attention.output")[-1].register_forward_pre_hook(before)
    if alone:
        inner.forward = heard
    try:
        yield replace(batch, layout=short)
    finally:
        handle.remove()
        inner.__dict__.pop("forward", None)


def attention_of_first(inner: Any, x: Tensor, real: Tensor) -> Tensor:
    """What the first token of each sequence hears: [n, L, width] and which of them are real to [n, heads · size]."""
    heads, width = inner.num_attention_heads, x.shape[-1]
    query = cut(inner.query(x[:, 0]) * inner.scaling, heads, -1).transpose(0, 1)
    wanted = torch.bmm(query, inner.key.weight.view(heads, -1, width)).transpose(0, 1)  # [n, heads, width]
    scores = torch.bmm(wanted, x.transpose(1, 2)).masked_fill(~real[:, None], float("-inf"))
    heard = torch.bmm(scores.softmax(-1), x).transpose(0, 1)
    context = torch.bmm(heard, inner.value.weight.view(heads, -1, width).transpose(1, 2)).transpose(0, 1).flatten(1)
    return context if inner.value.bias is None else context + inner.value.bias
