"""AMOS's way through the vocabulary: the losses of all readouts, one sample from their mixture, and the way back to it.

A sample is argmax(z + g) of z = Σ α·logits and Gumbel noise g, and goes forward as one-hot; backward it stands for
y = softmax((z + g) / τ) (straight-through), so that a gradient d of the sample's embedding gives for the weight of
readout k  dL/dα = d · Σ_v y_v (l_v - Σ y·l) E_v / τ  with l its logits and E the word embeddings. That last factor is
`slope`, as wide as an embedding. It is made while a chunk's logits are at hand, and nothing of the size rows ×
vocabulary is kept or made twice.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from encodery.data import rng
from encodery.data.batches import Batch
from encodery.data.tensor_rng import hashed, mixed, signed
from encodery.objectives.parts.masking import Masked
from encodery.objectives.parts.vocabulary_loss import Grads, chunks, lowered, upcast_dtype

PLACES = 16  # bits of a place in its sequence
SCRATCH = 3  # tensors of a chunk besides the logits of each readout


@dataclass(frozen=True)
class Noise:
    """Gumbel noise for every asked position: a function of (step, example, place), however the step is cut."""

    starts: Tensor  # [R] 64 bits each

    def exponential(self, part: slice, size: int) -> Tensor:
        """Numbers e with Gumbel noise -ln e: exponentially distributed, from 31 random bits each: [n, size]."""
        bits = hashed(self.starts[part], -(-size // 2)).view(torch.int32).bitwise_and_(0x7FFFFFFF)[:, :size]
        uniform = bits.to(torch.float32).add_(0.5).mul_(2.0**-31).clamp_(max=1 - 2.0**-24)
        return uniform.neg_().log1p_().neg_()


def noise_of(batch: Batch, masked: Masked, purpose: str = "gumbel") -> Noise:
    return Noise(starts_of(batch, masked, purpose))


def starts_of(batch: Batch, masked: Masked, purpose: str) -> Tensor:
    """64 bits for each asked position, from which all its numbers follow."""
    lengths = batch.layout.lengths
    token = torch.searchsorted(batch.layout.cells, masked.cells)
    place = token - (lengths.cumsum(0) - lengths)[masked.sequence]
    rows = batch.ids_there[masked.sequence]
    key = signed(rng.key(batch.noise, purpose))
    return mixed(mixed((rows << PLACES) + place) + key)


class Mixed(NamedTuple):
    """What the readouts and their mixture say of each asked position."""

    loss: Tensor  # [K] sums over all rows, the only ones with a gradient
    nll: Tensor  # [K, R]
    best: Tensor  # [K, R] the likeliest token
    sample: Tensor  # [R] drawn from the mixture
    mixture_nll: Tensor  # [R]
    mixture_best: Tensor  # [R]
    slope: Tensor  # [R, K, e] of the sample's embedding by the weights; empty where nobody asks


@dataclass(frozen=True)
class Draw:
    """How tokens are drawn from the mixture."""

    noise: Noise
    forbidden: int  # the mask token, which must never be a sample
    temperature: float  # of the way back; the sample does not depend on it
    steer: bool  # whether the way back is wanted


def read_all(
    vectors: Tensor, shares: Tensor, weight: Tensor, bias: Tensor, truth: Tensor, weights: Tensor | None, draw: Draw
) -> Mixed:
    """Readouts [K, R, e], mixed by `shares` [R, K]: cross-entropy of each, a sample of the mixture."""
    learn = torch.is_grad_enabled()
    return Mixed(*_ReadAll.apply(vectors, shares.detach(), weight, bias, truth, weights, draw, learn))  # type: ignore[no-untyped-call]


def mix(logits: Sequence[Tensor], shares: Tensor) -> Tensor:
    """Mixed logits, not probabilities: Σ share · logits."""
    z = logits[0] * shares[:, :1]
    for k in range(1, len(logits)):
        z.addcmul_(logits[k], shares[:, k : k + 1])
    return z


class _ReadAll(torch.autograd.Function):
    """See the top of the page."""

    @staticmethod
    def forward(
        ctx: Any, vectors: Tensor, shares: Tensor, weight: Tensor, bias: Tensor, truth: Tensor, weights: Tensor | None,
        draw: Draw, learn: bool,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        count, rows = vectors.shape[:2]
        out = _empty(vectors, truth, draw.steer and learn)
        wanted = learn and any(ctx.needs_input_grad[:4])
        grads = [Grads(v, weight, bias) for v in vectors] if wanted else []
        cast = lowered(vectors.device)
        matrix = weight.to(cast) if cast else weight
        for part in chunks(rows, len(weight) * (count + SCRATCH)):
            v = vectors[:, part].to(matrix.dtype)
            logits = [torch.addmm(bias.to(one.dtype), one, matrix.t()).to(out.nll.dtype) for one in v]
            _sample(out, part, logits, shares[part].to(out.nll.dtype), matrix, truth[part], draw)
            own = None if weights is None else weights[part]
            for k, mine in enumerate(logits):
                _learn(out, part, k, mine, v[k], matrix, truth[part], own, grads[k] if grads else None)
        if grads:
            ctx.save_for_backward(*(x for g in grads for x in (g.vectors, g.weight, g.bias)))
            ctx.dtypes = vectors.dtype, weight.dtype, bias.dtype
        ctx.mark_non_differentiable(*out[1:])
        loss = out.nll.sum(1) if weights is None else (out.nll * weights).sum(1)
        return loss, *out[1:]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        saved, (vectors, weight, bias) = ctx.saved_tensors, ctx.dtypes
        of_vectors = torch.stack([g * s for g, s in zip(saved[0::3], grad, strict=True)]).to(vectors)
        of_weight, of_bias = (_weighted(saved[i::3], grad) for i in (1, 2))
        return of_vectors, None, of_weight.to(weight), of_bias.to(bias), None, None, None, None


def _empty(vectors: Tensor, truth: Tensor, steer: bool) -> Mixed:
    count, rows, width = vectors.shape
    dtype = upcast_dtype(vectors.dtype)
    nll, best = vectors.new_empty(count, rows, dtype=dtype), truth.new_empty(count, rows)
    slope = vectors.new_empty(rows if steer else 0, count, width, dtype=dtype)
    mixture_nll = vectors.new_empty(rows, dtype=dtype)
    return Mixed(nll.new_empty(0), nll, best, torch.empty_like(truth), mixture_nll, torch.empty_like(truth), slope)


def _sample(
    out: Mixed, part: slice, logits: Sequence[Tensor], shares: Tensor, matrix: Tensor, truth: Tensor, draw: Draw
) -> None:
    """One token of each row of the mixture, and how its embedding would change with the shares."""
    z = mix(logits, shares)
    out.mixture_nll[part] = z.logsumexp(1) - z.gather(1, truth[:, None])[:, 0]
    out.mixture_best[part] = z.argmax(1)
    z[:, draw.forbidden] = float("-inf")
    z -= draw.noise.exponential(part, z.shape[1]).log_()
    out.sample[part] = z.argmax(1)
    if not len(out.slope):
        return
    y = z.div_(draw.temperature).softmax(1)
    for k, mine in enumerate(logits):
        pull = y * mine
        pull.addcmul_(pull.sum(1, keepdim=True), y, value=-1)
        out.slope[part, k] = torch.mm(pull.to(matrix.dtype), matrix).to(y.dtype) / draw.temperature


def _learn(
    out: Mixed, part: slice, k: int, logits: Tensor, v: Tensor, matrix: Tensor, truth: Tensor, weights: Tensor | None,
    grads: Grads | None,
) -> None:  # fmt: skip
    """Loss of one readout on a chunk, and its gradient; the logits are used up."""
    own = logits.gather(1, truth[:, None])[:, 0]
    top, out.best[k, part] = logits.max(1)
    e = logits.sub_(top[:, None]).exp_()
    total = e.sum(1)
    out.nll[k, part] = total.log() + top - own
    if grads:
        e.scatter_add_(1, truth[:, None], -total[:, None])
        grads.add(part, e, v, matrix, 1 / total if weights is None else weights / total)


def _weighted(parts: Sequence[Tensor], factors: Tensor) -> Tensor:
    whole = parts[0] * factors[0]
    for part, factor in zip(parts[1:], factors[1:], strict=True):
        whole.add_(part * factor)
    return whole


class _Steer(torch.autograd.Function):
    """Embeddings as they are; what their gradient means for the shares of the mixture, times a factor."""

    @staticmethod
    def forward(ctx: Any, embeddings: Tensor, shares: Tensor, slope: Tensor, cells: Tensor, factor: float) -> Tensor:
        ctx.save_for_backward(slope, cells)
        ctx.factor, ctx.dtype = factor, shares.dtype
        return embeddings.view_as(embeddings)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        slope, cells = ctx.saved_tensors
        rows = grad.flatten(0, 1).index_select(0, cells).to(slope.dtype)
        return grad, (torch.einsum("re,rke->rk", rows, slope) * ctx.factor).to(ctx.dtype), None, None, None


def steer(embeddings: Tensor, shares: Tensor, slope: Tensor, cells: Tensor, factor: float) -> Tensor:
    """The embeddings [n, L, e]; the gradient of those at `cells` goes on to the shares, times `factor`."""
    steered: Tensor = _Steer.apply(embeddings, shares, slope, cells, factor)  # type: ignore[no-untyped-call]
    return steered
