"""Attention of rows of sequences and its gradient, written down once more, for tests of kernels that no CPU has."""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor


class About(NamedTuple):
    """What a kernel is told beside q, k and v [T, heads, size]."""

    places: Tensor  # where sequences begin and end: [n + 1]
    scale: float
    near: tuple[int, int] = (-1, -1)  # how many places to the left and right a token sees; -1: all
    rate: float = 0.0
    seed: int = 0  # of the masks of dropout

    def segments(self) -> Iterator[slice]:
        ends = self.places.tolist()
        return (slice(a, b) for a, b in pairwise(ends))

    def weights(self, q: Tensor, k: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Of one sequence: softmax of its scores [heads, L, L], and what dropout multiplies it with."""
        scores = torch.einsum("ihd,jhd->hij", q.float(), k.float()) * self.scale
        if self.near != (-1, -1):
            distance = torch.arange(len(q))[None] - torch.arange(len(q))[:, None]
            scores = scores.masked_fill((distance < -self.near[0]) | (distance > self.near[1]), float("-inf"))
        kept = torch.rand(scores.shape, generator=generator) >= self.rate if self.rate else torch.ones_like(scores)
        return scores.softmax(-1), kept / (1 - self.rate)


def attention(q: Tensor, k: Tensor, v: Tensor, about: About) -> Tensor:
    """Each token's mean of the values of its own sequence."""
    generator, outputs = torch.Generator().manual_seed(about.seed), []
    for one in about.segments():
        weights, kept = about.weights(q[one], k[one], generator)
        outputs.append(torch.einsum("hij,jhd->ihd", weights * kept, v[one].float()))
    return torch.cat(outputs).to(q.dtype)


def gradient(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, about: About) -> tuple[Tensor, ...]:
    """That of q, k and v."""
    generator = torch.Generator().manual_seed(about.seed)
    found: list[list[Tensor]] = [[], [], []]
    for one in about.segments():
        weights, kept = about.weights(q[one], k[one], generator)
        of = grad[one].float()
        slope = torch.einsum("ihd,jhd->hij", of, v[one].float()) * kept
        slope = weights * (slope - (weights * slope).sum(-1, keepdim=True)) * about.scale
        found[0].append(torch.einsum("hij,jhd->ihd", slope, k[one].float()))
        found[1].append(torch.einsum("hij,ihd->jhd", slope, q[one].float()))
        found[2].append(torch.einsum("hij,ihd->jhd", weights * kept, of))
    return tuple(torch.cat(parts).to(q.dtype) for parts in found)
