"""Attention on a CPU where torch's is slow: with dropout, and in half precision with and without.

With dropout one number is kept for each pair of tokens: w = softmax(q·kᵀ · scale + mask), each dropped with
probability `rate`; out = w·v / (1 - rate). Kept for the gradient is w, negative where it was dropped: so neither a mask
nor the dropped copy is, and with Δ = Σ out · ∂out of a row the gradient of a score is d · ∂d - w · Δ, where d is w
without what was dropped.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from encodery.models.kernels.dropout import draw


def attend_with_dropout(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, rate: float, scale: float) -> Tensor:
    """[n, heads, L, size] of each; where the mask (one that fits [n, heads, L, L]) is False nobody looks."""
    return _Attend.apply(q, k, v, mask, rate, scale)  # type: ignore[no-untyped-call,no-any-return]


def attend_in_half(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, rate: float, scale: float) -> Tensor:
    """The same in bfloat16 or float16, and without dropout too; sums, and those of softmax, are in single precision.

    The backward pass of torch's own kernel takes two to fourteen times as long on the short texts of encoders.
    """
    with torch.autocast("cpu", enabled=False):
        return _AttendInHalf.apply(q, k, v, mask, rate, scale)  # type: ignore[no-untyped-call,no-any-return]


class _AttendInHalf(torch.autograd.Function):
    """The weights are kept, and of each whether it was."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, rate: float, scale: float) -> Tensor:
        shape = q.shape
        q, k, v = (x.reshape(-1, *x.shape[2:]) for x in (q, k, v))
        scores = torch.baddbmm(q.new_empty(len(q), q.shape[1], k.shape[1]), q, k.transpose(1, 2), beta=0, alpha=scale)
        if mask is not None:
            lowest = torch.finfo(scores.dtype).min
            scores.view(*shape[:2], *scores.shape[1:]).masked_fill_(~mask, lowest)
        weights, keep, ctx.factor = (
            torch.softmax(scores.float(), -1).to(q.dtype),
            None,
            1.0,
        )  # torch's in half is slower
        if rate:
            drawn, cut, ctx.factor = draw(weights, rate)
            keep = drawn.ge(cut).view(torch.uint8)  # products with truth values have no kernel
        out = torch.bmm(weights, v) if keep is None else torch.bmm(weights * keep, v).mul_(ctx.factor)
        ctx.save_for_backward(q, k, v, weights, keep)
        ctx.scale, ctx.shape = scale, shape
        return out.view(shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, weights, keep = ctx.saved_tensors
        grad = grad.reshape(q.shape).to(q.dtype)
        kept, slope = weights, torch.bmm(grad, v.transpose(1, 2))
        if keep is not None:
            grad, kept = grad * ctx.factor, weights * keep
            slope.mul_(keep).mul_(ctx.factor)
        to_v = torch.bmm(kept.transpose(1, 2), grad)
        slope = torch._softmax_backward_data(slope, weights, -1, weights.dtype).mul_(ctx.scale)
        to_q, to_k = torch.bmm(slope, k), torch.bmm(slope.transpose(1, 2), q)
        return to_q.view(ctx.shape), to_k.view(ctx.shape), to_v.view(ctx.shape), None, None, None


class _Attend(torch.autograd.Function):
    """See the top of the page."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, rate: float, scale: float) -> Tensor:
        shape = q.shape
        q, k, v = (x.reshape(-1, *x.shape[2:]) for x in (q, k, v))
        scores = q.new_empty(len(q), q.shape[1], k.shape[1])
        torch.baddbmm(scores, q, k.transpose(1, 2), beta=0, alpha=scale, out=scores)
        if mask is not None:  # not -inf: a padded query far from every key in its window would be NaN
            lowest = torch.finfo(scores.dtype).min
            scores.view(*shape[:2], *scores.shape[1:]).add_(
                torch.zeros_like(mask, dtype=scores.dtype).masked_fill_(~mask, lowest)
            )
        weights = torch.softmax(scores, -1, out=scores)
        drawn, cut, factor = draw(weights, rate)
        weights.copysign_(
            drawn.to(weights.dtype) - (cut - 0.5)
        )  # never 0: below the cut by a half or more, or above it
        out = torch.baddbmm(torch.empty_like(q), torch.relu(weights), v, beta=0, alpha=factor)
        ctx.save_for_backward(q, k, v, weights, out)
        ctx.scale, ctx.factor, ctx.shape = scale, factor, shape
        return out.view(shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, weights, out = ctx.saved_tensors
        grad = grad.reshape(out.shape)
        kept = torch.relu(weights)
        to_v = torch.baddbmm(torch.empty_like(v), kept.transpose(1, 2), grad, beta=0, alpha=ctx.factor)
        scores = torch.baddbmm(torch.empty_like(weights), grad, v.transpose(1, 2), beta=0, alpha=ctx.factor)
        scores.mul_(kept).addcmul_(torch.abs(weights, out=kept), (grad * out).sum(-1, keepdim=True), value=-1)
        to_q = torch.baddbmm(torch.empty_like(q), scores, k, beta=0, alpha=ctx.scale)
        to_k = torch.baddbmm(torch.empty_like(k), scores.transpose(1, 2), q, beta=0, alpha=ctx.scale)
        return to_q.view(ctx.shape), to_k.view(ctx.shape), to_v.view(ctx.shape), None, None, None
