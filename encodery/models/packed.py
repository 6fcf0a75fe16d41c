"""Attention for the packed layout: sequences of similar length are gathered into small groups and put back.

Registered with transformers' attention interface under the name `packed`. Only architectures for which equality with
the padded model was proven are listed; DeBERTa and MPNet do not ask the interface and would be silently wrong.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface

from encodery.data.layouts import Group

NAME = "packed"

# Proven equal to the padded model by tests/models/test_packed.py.
PROVEN = frozenset({"bert", "roberta", "xlm-roberta", "camembert", "electra", "albert", "distilbert", "modernbert"})

# Keywords that architectures pass along and that change nothing here. Any other one is refused: a position bias, say,
# would be dropped in silence.
HARMLESS = frozenset(
    {
        "position_ids", "output_attentions", "output_hidden_states", "return_dict", "use_cache", "is_causal",
        "deterministic", "cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k", "position_embeddings",
    }
)  # fmt: skip


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    groups: list[Group] | None = None,
    sliding_window: int | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Scaled-dot-product attention inside each sequence of a row [1, heads, T, size]."""
    unknown = [k for k, v in others.items() if v is not None and k not in HARMLESS]
    if unknown or attention_mask is not None or groups is None:
        raise RuntimeError(f"packed attention in {type(module).__name__}: cannot take {unknown or 'an attention mask'}")
    heads, tokens, size = query.shape[1:]
    flat = [x[0].transpose(0, 1).reshape(tokens, heads * size) for x in (query, key, value)]
    outputs = [_attend(flat, group, heads, size, scaling, dropout, sliding_window) for group in groups]
    return torch.cat(outputs).view(1, tokens, heads, size), None


def _attend(
    flat: list[Tensor], group: Group, heads: int, size: int, scaling: float | None, dropout: float, window: int | None
) -> Tensor:
    index, mask, real = group
    n, length = index.shape
    if window:
        place = torch.arange(length, device=index.device)
        near = (place[:, None] - place).abs() < window
        mask = near if mask is None else mask & near
    if real is None:  # equal lengths: the tokens lie together
        start = int(index[0, 0])
        cells = [x[start : start + n * length] for x in flat]
    else:
        cells = [x.index_select(0, index.reshape(-1)) for x in flat]
    q, k, v = (x.view(n, length, heads, size).transpose(1, 2) for x in cells)
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout, scale=scaling)
    out = out.transpose(1, 2).reshape(n * length, heads * size)
    return out if real is None else out.index_select(0, real)


AttentionInterface.register(NAME, packed_attention)
AttentionMaskInterface.register(NAME, lambda *_, **__: None)
