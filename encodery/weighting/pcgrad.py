"""PCGrad (Yu et al. 2020, arXiv 2001.06782): where two tasks pull the encoder apart, neither pulls against the other.

for each task i, for the others j in random order:  if g_i · g_j < 0:  g_i ← g_i − (g_i · g_j / ‖g_j‖²) · g_j
with g_j as it was; the update is Σ g_i. Heads keep their own gradients. The order is drawn from (seed, step).
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from encodery.data import rng
from encodery.methods.base import ActiveMethod, add, note
from encodery.models.model import Model, Terms
from encodery.weighting.base import ActiveWeighting, Gradient, Learnt, Part, Weighting, put_reduced, taken


class PCGrad(Weighting):
    """Removes from each task's gradient the component that conflicts with another task's."""

    together: ClassVar[bool] = True

    def start(self, model: Model, tasks: Sequence[str], seed: int) -> ActiveWeighting:
        """What knows the run's seed."""
        return _PCGrad(seed)


class _PCGrad:
    """PCGrad at work."""

    def __init__(self, seed: int):
        self.seed = seed

    def __call__(self, method: ActiveMethod, model: Model, parts: Sequence[Part]) -> Terms:
        """All parts by themselves, then without their conflicts."""
        summed: Terms = {}
        gradients = []
        for part in parts:
            terms, found = taken(method, model, part, reduced=True)
            add(summed, terms)
            gradients.append(found)
        shared = set(model.encoder.parameters())
        orders = random_orders(self.seed, parts[0].step, len(parts))
        bent, conflicts = project([only(g, shared) for g in gradients], orders)
        put_reduced([{p: v for p, v in g.items() if p not in shared} for g in gradients])
        put_reduced(bent)
        pairs = max(len(parts) * (len(parts) - 1), 1)
        add(summed, note("weighting.conflicts", torch.tensor(float(conflicts)), float(pairs)))
        return summed

    def learnt(self) -> dict[str, Learnt]:
        return {}

    def tensors(self) -> dict[str, Tensor]:
        """No state: the order follows from the step."""
        return {}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """No state."""


def random_orders(seed: int, step: int, tasks: int) -> list[list[int]]:
    """For each task the order in which it meets the others."""
    drawn = rng.bits(rng.key(seed, "pcgrad", step), np.arange(tasks), tasks)
    return [[int(j) for j in np.argsort(row, kind="stable") if j != i] for i, row in enumerate(drawn)]


def only(gradient: Gradient, shared: set[nn.Parameter]) -> Gradient:
    """The part of a gradient that other tasks have too."""
    return {p: value for p, value in gradient.items() if p in shared}


@torch.no_grad()
def project(gradients: Sequence[Gradient], orders: Sequence[Sequence[int]]) -> tuple[list[Gradient], int]:
    """Each gradient without what goes against the others as they were, and how often something did."""
    sizes = [dot(g, g) for g in gradients]
    projected, conflicts = [], 0
    for own, order in zip(gradients, orders, strict=True):
        bent = {p: value.clone() for p, value in own.items()}
        for j in order:
            against = dot(bent, gradients[j])
            if against < 0 and sizes[j] > 0:
                conflicts += 1
                take(bent, gradients[j], against / sizes[j])
        projected.append(bent)
    return projected, conflicts


def dot(a: Gradient, b: Gradient) -> float:
    """Inner product over what both have, in double."""
    return sum(float((value.double() * b[p].double()).sum()) for p, value in a.items() if p in b)


def take(bent: Gradient, other: Gradient, times: float) -> None:
    """bent ← bent − times · other; where only the other one has a gradient, it gets one too."""
    for parameter, value in other.items():
        bent[parameter] = bent[parameter].sub_(value, alpha=times) if parameter in bent else value * -times
