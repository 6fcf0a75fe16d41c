"""The attention kernels of a GPU, as a CPU computes them: for rows of sequences, with windows and dropout.

The names of arguments are those of torch's operators. A kernel's state of the generator is the seed of its masks.
"""

from typing import Any

import torch
from torch import Tensor

from tests.toolbox.attention import About, attention, gradient

calls: list[str] = []  # which kernels were called


def seed_of(rate: float) -> Tensor:
    return torch.randint(2**40, (2,)) if rate else torch.zeros(2, dtype=torch.int64)


def lse_of(q: Tensor) -> Tensor:
    return torch.zeros(q.shape[1], q.shape[0])


def varlen(
    query: Tensor, key: Tensor, value: Tensor, cu_seq_q: Tensor, cu_seq_k: Tensor, max_q: int, max_k: int,
    is_causal: bool = False, scale: float | None = None, window_size: Any = None, *_: Any,
) -> tuple[Tensor, ...]:  # fmt: skip
    require(query, max_q, cu_seq_q)
    calls.append("varlen")
    out = attention(query, key, value, about(query, cu_seq_q, scale, window_size))
    return out, lse_of(query), torch.zeros(2, dtype=torch.uint64)


def varlen_backward(
    grad_out: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, lse: Tensor, cu_seq_q: Tensor,
    cu_seq_k: Tensor, max_q: int, max_k: int, is_causal: bool, rng_state: Tensor, scale: float | None = None,
    window_size: Any = None,
) -> tuple[Tensor, ...]:  # fmt: skip
    return gradient(grad_out, query, key, value, about(query, cu_seq_q, scale, window_size))


def flash(
    query: Tensor, key: Tensor, value: Tensor, cum_seq_q: Tensor, cum_seq_k: Tensor, max_q: int, max_k: int,
    dropout_p: float, is_causal: bool, return_debug_mask: bool, *, scale: float | None = None, **_: Any,
) -> tuple[Tensor, ...]:  # fmt: skip
    require(query, max_q, cum_seq_q)
    calls.append("flash")
    seed = seed_of(dropout_p)
    out = attention(query, key, value, about(query, cum_seq_q, scale, None, dropout_p, seed[0]))
    return out, lse_of(query), seed, torch.zeros(0), torch.zeros(0)


def flash_backward(
    grad_out: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, logsumexp: Tensor, cum_seq_q: Tensor,
    cum_seq_k: Tensor, max_q: int, max_k: int, dropout_p: float, is_causal: bool, rng_state: Tensor, *_: Any,
    scale: float | None = None, **__: Any,
) -> tuple[Tensor, ...]:  # fmt: skip
    return gradient(grad_out, query, key, value, about(query, cum_seq_q, scale, None, dropout_p, rng_state[0]))


def efficient(
    query: Tensor, key: Tensor, value: Tensor, bias: Any, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, max_seqlen_q: int,
    max_seqlen_k: int, dropout_p: float, custom_mask_type: int, compute_log_sumexp: bool = False, *,
    scale: float | None = None, **_: Any,
) -> tuple[Any, ...]:  # fmt: skip
    """Here a row of sequences has a batch around it: [1, T, heads, size]."""
    require(query[0], max_seqlen_q, cu_seqlens_q)
    calls.append("efficient")
    seed = seed_of(dropout_p)
    out = attention(query[0], key[0], value[0], about(query, cu_seqlens_q, scale, None, dropout_p, seed[0]))
    return out[None], lse_of(query[0]), seed[0], seed[1], max_seqlen_q, max_seqlen_k


def efficient_backward(
    grad_out_: Tensor, query: Tensor, key: Tensor, value: Tensor, bias: Any, out: Tensor, cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor, max_seqlen_q: int, max_seqlen_k: int, logsumexp: Tensor, dropout_p: float,
    philox_seed: Tensor, *_: Any, scale: float | None = None, **__: Any,
) -> tuple[Tensor, ...]:  # fmt: skip
    told = about(query, cu_seqlens_q, scale, None, dropout_p, philox_seed)
    found = gradient(grad_out_[0], query[0], key[0], value[0], told)
    return (*(one[None] for one in found), torch.zeros(0))


def about(
    query: Tensor, places: Tensor, scale: float | None, window: Any, rate: float = 0.0, seed: Tensor | None = None
) -> About:
    near = tuple(window or (-1, -1))
    return About(places, scale or query.shape[-1] ** -0.5, (near[0], near[1]), rate, 0 if seed is None else int(seed))


def require(query: Tensor, longest: int, places: Tensor) -> None:
    """What a kernel takes on trust."""
    assert places.dtype == torch.int32
    assert int(places[-1]) == len(query)
    assert longest == int(places.diff().max())


def table() -> dict[Any, Any]:
    """Which operators are computed by what."""
    from torch.nn.attention import varlen as _  # noqa: F401 - registers its operators

    aten, own = torch.ops.aten, torch.ops.torch_attn
    return {
        own._varlen_attn.default: varlen,
        own._varlen_attn_backward.default: varlen_backward,
        aten._flash_attention_forward.default: flash,
        aten._flash_attention_backward.default: flash_backward,
        aten._efficient_attention_forward.default: efficient,
        aten._efficient_attention_backward.default: efficient_backward,
    }
