"""Attention for the packed layout: on a GPU by a kernel for rows of sequences (attention_backends.py), elsewhere
sequences of similar length are gathered into small groups and put back.

Registered with transformers' attention interface under the name `packed`. Only architectures for which equality with
the padded model was proven are listed; DeBERTa and MPNet do not ask the interface and would be silently wrong.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface

from encodery.data.layouts import Group, Offsets
from encodery.models import attention_backends
from encodery.models.kernels.attention import attend_with_dropout
from encodery.models.kernels.dropout import dropout as dropout_of

NAME = "packed"

# Proven equal to the padded model by tests/models/test_packed.py and tests/models/test_families.py.
PROVEN = frozenset(
    {
        "bert", "roberta", "xlm-roberta", "camembert", "electra", "albert", "distilbert", "modernbert", "amos",
        "data2vec-text", "ernie", "esmc", "eurobert", "gte", "jina_embeddings_v3", "nomic_bert", "roberta-prelayernorm",
        "roc_bert", "ultrabert", "xlm-roberta-xl", "xmod",
    }
)  # fmt: skip

# Keywords that architectures pass along and that change nothing here. Any other one is refused: it would be dropped in
# silence.
HARMLESS = frozenset(
    {
        "position_ids", "output_attentions", "output_hidden_states", "return_dict", "use_cache", "is_causal",
        "deterministic", "cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k", "position_embeddings",
    }
)  # fmt: skip


@torch.compiler.disable  # type: ignore[untyped-decorator]
def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    groups: list[Group] | None = None,
    offsets: Offsets | None = None,
    sliding_window: int | None = None,
    position_bias: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Scaled-dot-product attention inside each sequence of a row [1, heads, T, size].

    `position_bias` [heads, L, L] is added to the scores of every sequence, from its first token on.
    """
    unknown = [k for k, v in others.items() if v is not None and k not in HARMLESS]
    if unknown or attention_mask is not None or groups is None:
        raise RuntimeError(f"packed attention in {type(module).__name__}: cannot take {unknown or 'an attention mask'}")
    heads, size = query.shape[1], query.shape[3]
    if key.shape[1] != heads:  # heads that share keys and values
        key, value = (x.repeat_interleave(heads // x.shape[1], 1) for x in (key, value))
    scale = size**-0.5 if scaling is None else scaling
    backend = "groups" if offsets is None else backend_for(query, dropout, sliding_window, position_bias)
    if offsets is None or backend == "groups":
        return in_groups(query, key, value, groups, scale, dropout, sliding_window, position_bias), None
    q, k, v = (lowered(x)[0].transpose(0, 1) for x in (query, key, value))  # [T, heads, size]
    if backend == "varlen":
        return attention_backends.varlen_attention(q, k, v, offsets, scale, sliding_window)[None], None
    return attention_backends.nested_attention(q, k, v, offsets, scale, dropout)[None], None


def backend_for(query: Tensor, dropout: float, window: int | None, bias: Tensor | None) -> attention_backends.Backend:
    """The back end of one call."""
    device, about = query.device, attention_backends
    kind = torch.get_autocast_dtype(device.type) if torch.is_autocast_enabled(device.type) else query.dtype
    asked = {"dropout": dropout > 0, "window": bool(window), "bias": bias is not None}
    return about.choose(about.Call(device.type, about.capability_of(device), kind, query.shape[-1], **asked)).backend


def lowered(values: Tensor) -> Tensor:
    """As autocast hands them to torch's own attention: rotary positions may have left them in single precision."""
    kind = values.device.type
    return values.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else values


def in_groups(
    query: Tensor, key: Tensor, value: Tensor, groups: list[Group], scale: float, dropout: float, window: int | None,
    bias: Tensor | None,
) -> Tensor:  # fmt: skip
    """Group by group: [1, T, heads, size]."""
    heads, tokens, size = query.shape[1:]
    flat = [x[0].transpose(0, 1).reshape(tokens * heads, size) for x in (query, key, value)]
    counts = [group.tokens * heads for group in groups]
    parts = zip(
        *(torch.split(x, counts) if len(counts) > 1 else [x] for x in flat), strict=True
    )  # not slices: one grad
    outputs = []
    for group, part in zip(groups, parts, strict=True):
        q, k, v = (group.cells(x, heads) for x in part)
        mask = group.near(window) if window else group.mask
        if bias is not None:
            mask = biased(bias[:, : group.longest, : group.longest].to(q.dtype), mask)
        outputs.append(group.real(attend(q, k, v, mask, dropout, scale)))
    joined = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
    return joined.view(1, tokens, heads, size)


def biased(bias: Tensor, mask: Tensor | None) -> Tensor:
    """A bias of the scores in which the keys that are not real are as low as can be."""
    if mask is None:
        return bias[None]
    return bias[None].masked_fill(~mask, torch.finfo(bias.dtype).min)


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, rate: float, scale: float) -> Tensor:
    """Scaled-dot-product attention [n, heads, L, size]; torch has no fast kernel with dropout for CPUs."""
    if not rate or q.device.type != "cpu":
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=rate, scale=scale)
    if mask is not None and mask.is_floating_point():  # a bias with a gradient
        return torch.matmul(dropout_of((torch.matmul(q * scale, k.transpose(2, 3)) + mask).softmax(-1), rate), v)
    if q.dtype in (torch.float32, torch.float64):
        return attend_with_dropout(q, k, v, mask, rate, scale)
    scores = torch.matmul(q * scale, k.transpose(2, 3))
    if mask is not None:  # not -inf: a padded query far from every key in its window would be NaN
        lowest = torch.finfo(scores.dtype).min
        scores += torch.zeros_like(mask, dtype=scores.dtype).masked_fill_(~mask, lowest)
    return torch.matmul(dropout_of(scores.softmax(-1), rate), v)


AttentionInterface.register(NAME, packed_attention)
AttentionMaskInterface.register(NAME, lambda *_, **__: None)
