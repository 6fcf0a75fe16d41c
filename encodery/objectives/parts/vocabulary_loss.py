"""From vectors to the vocabulary and back, a few rows at a time: loss, best guess and sample, never all logits at once.

The gradient is worked out while a chunk's logits are at hand, so nothing of the size rows × vocabulary is kept and
nothing is computed twice: with e = exp(logits - max), s = Σ e, and s taken off e at the truth, the gradient of the loss
is e·W / s for a vector and eᵀ·(v / s) for the matrix.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

CELLS = 1 << 22  # logits of a chunk: 16 MB
BLOCK = 256  # neighbouring tokens whose probabilities are added up before one of them is looked for


@dataclass(frozen=True)
class Sampler:
    """How tokens are drawn from the logits."""

    uniform: Tensor  # [K] in [0, 1]
    forbidden: int  # the mask token, which must never be a sample
    temperature: float = 1.0
    disallow_correct: bool = False


class Reading(NamedTuple):
    """What the vocabulary says of each vector."""

    loss: Tensor  # the sum over all rows; the only one with a gradient
    nll: Tensor  # [K]
    best: Tensor  # [K] the likeliest token
    sample: Tensor  # [K]; empty without a sampler


def read_vocabulary(
    vectors: Tensor, weight: Tensor, bias: Tensor, truth: Tensor, weights: Tensor | None = None,
    sampler: Sampler | None = None,
) -> Reading:  # fmt: skip
    """Cross-entropy of softmax(v·Wᵀ + b) against the truth; `weights` multiply the loss of a row."""
    learn = torch.is_grad_enabled()
    return Reading(*_Read.apply(vectors, weight, bias, truth, weights, sampler, learn))  # type: ignore[no-untyped-call]


def chunks(rows: int, width: int) -> Iterator[slice]:
    """Cut rows so that a chunk has no more than CELLS cells."""
    size = max(1, CELLS // width)
    return (slice(begin, begin + size) for begin in range(0, rows, size))


class _Read(torch.autograd.Function):
    """See the top of the page."""

    @staticmethod
    def forward(
        ctx: Any, vectors: Tensor, weight: Tensor, bias: Tensor, truth: Tensor, weights: Tensor | None,
        sampler: Sampler | None, learn: bool,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        rows, dtype = len(vectors), upcast_dtype(vectors.dtype)
        nll, best = vectors.new_empty(rows, dtype=dtype), truth.new_empty(rows)
        sample = truth.new_empty(rows if sampler else 0)
        learn = learn and any(ctx.needs_input_grad[:3])
        grads = Grads(vectors, weight, bias) if learn else None
        cast = lowered(vectors.device)
        matrix = weight.to(cast) if cast else weight
        parts = list(chunks(rows, len(weight)))
        room = matrix.new_empty(max((len(vectors[part]) for part in parts), default=0), len(weight))
        for part in parts:
            v = vectors[part].to(matrix.dtype)
            logits = torch.addmm(bias.to(v.dtype), v, matrix.t(), out=room[: len(v)]).to(dtype)
            own = logits.gather(1, truth[part, None])
            if sampler and not plain(sampler):
                sample[part] = draw(adjusted(logits, truth[part], sampler), sampler.uniform[part], sampler.forbidden)
            top, best[part] = highest(logits)
            e = logits.sub_(top[:, None]).exp_()
            total = e.sum(1)
            nll[part] = total.log() + top - own[:, 0]
            if sampler and plain(sampler):
                sample[part] = draw(e, sampler.uniform[part], sampler.forbidden)
            if grads:
                e.scatter_add_(1, truth[part, None], -total[:, None])
                grads.add(part, e, v, matrix, 1 / total if weights is None else weights[part] / total)
        if grads:
            ctx.save_for_backward(grads.vectors, grads.weight, grads.bias)
            ctx.dtypes = vectors.dtype, weight.dtype, bias.dtype
        ctx.mark_non_differentiable(nll, best, sample)
        loss = nll.sum() if weights is None else (nll * weights).sum()
        return loss, nll, best, sample

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        found = [(g * grad).to(t) for g, t in zip(ctx.saved_tensors, ctx.dtypes, strict=True)]
        return (*found, None, None, None, None)


class Grads:
    """Gradients of the sum, added up chunk by chunk."""

    def __init__(self, vectors: Tensor, weight: Tensor, bias: Tensor):
        self.vectors, self.weight, self.bias = (
            torch.zeros_like(x, dtype=upcast_dtype(x.dtype)) for x in (vectors, weight, bias)
        )

    def add(self, part: slice, e: Tensor, v: Tensor, matrix: Tensor, scale: Tensor) -> None:
        """One chunk: e without its sum at the truth, `scale` the weight of a row over that sum."""
        low, scaled = e.to(v.dtype), (v * scale[:, None]).to(v.dtype)
        self.vectors[part] = torch.mm(low, matrix).to(e.dtype) * scale[:, None]
        if self.weight.dtype == low.dtype:
            self.weight.addmm_(low.t(), scaled)  # in place: a product of its own would be as large as the matrix
        else:
            self.weight += torch.mm(low.t(), scaled)
        self.bias.addmv_(e.t(), scale)


def highest(logits: Tensor) -> tuple[Tensor, Tensor]:
    """The largest of each row and the first place where it stands: by blocks, since torch's `max` is slow on CPUs."""
    size = logits.shape[1]
    even = size // BLOCK * BLOCK
    tops = [torch.unflatten(logits[:, :even], 1, (-1, BLOCK)).amax(2)] if even else []
    tops += [logits[:, even:].amax(1, keepdim=True)] if even < size else []
    top, block = torch.cat(tops, 1).max(1, keepdim=True)
    place = (block * BLOCK + torch.arange(BLOCK, device=logits.device)).clamp(max=size - 1)
    return top[:, 0], (block * BLOCK)[:, 0] + logits.gather(1, place).argmax(1)


def upcast_dtype(dtype: torch.dtype) -> torch.dtype:
    """At least float32."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def lowered(device: torch.device) -> torch.dtype | None:
    """The type that autocast wants products in; sums, exponents and draws stay in float32 whatever it says."""
    return torch.get_autocast_dtype(device.type) if torch.is_autocast_enabled(device.type) else None


def plain(sampler: Sampler) -> bool:
    """Whether samples follow the very softmax of the loss."""
    return sampler.temperature == 1.0 and not sampler.disallow_correct


def adjusted(logits: Tensor, truth: Tensor, sampler: Sampler) -> Tensor:
    """Weights of the tokens at another temperature, or without the true one (1,000 less, as in Google's code)."""
    changed = logits / sampler.temperature
    if sampler.disallow_correct:
        changed.scatter_add_(1, truth[:, None], changed.new_full((len(truth), 1), -1000.0))
    return changed.sub_(changed.amax(1, keepdim=True)).exp_()


def draw(weights: Tensor, uniform: Tensor, forbidden: int) -> Tensor:
    """One token of each row [n, V] by its weight: the first at which the running sum passes uniform · total.

    First the block of tokens is found, then the token in it: a pass of adding, instead of a running sum over all.
    """
    kept = weights[:, forbidden].clone()
    weights[:, forbidden] = 0
    size = weights.shape[1]
    even = size // BLOCK * BLOCK
    sums = torch.unflatten(weights[:, :even], 1, (-1, BLOCK)).sum(2) if even else weights.new_zeros(len(weights), 0)
    running = torch.cat([sums, weights[:, even:].sum(1, keepdim=True)], 1).cumsum(1)
    target = uniform.to(running)[:, None] * running[:, -1:]
    block = _passed(running, target)
    target = target - torch.where(block > 0, running.gather(1, (block - 1).clamp(min=0)), 0)
    place = block * BLOCK + torch.arange(BLOCK, device=weights.device)
    inside = weights.gather(1, place.clamp(max=size - 1)).masked_fill_(place >= size, 0).cumsum(1)
    found = (block * BLOCK + _passed(inside, target))[:, 0]
    weights[:, forbidden] = kept
    return found


def _passed(running: Tensor, target: Tensor) -> Tensor:
    """The first place at which a running sum is above the target; at its end the last place that adds anything."""
    most = running[:, -1:]
    below = torch.minimum(target, torch.nextafter(most, torch.zeros_like(most)))
    return torch.searchsorted(running, below, right=True).clamp(max=running.shape[1] - 1)


def divergence(a: Tensor, b: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Symmetric Kullback-Leibler divergence of the two answers to each row; logits are made again for the gradient."""
    parts = [
        checkpoint(_divergence, a[part], b[part], weight, bias, use_reentrant=False)
        for part in chunks(len(a), len(weight))
    ]
    return torch.cat(parts) if parts else a.new_zeros(0)


def _divergence(a: Tensor, b: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    x, y = (torch.nn.functional.linear(v, weight, bias) for v in (a, b))
    x, y = x.to(upcast_dtype(x.dtype)).log_softmax(1), y.to(upcast_dtype(y.dtype)).log_softmax(1)
    return ((x.exp() - y.exp()) * (x - y)).sum(1)
