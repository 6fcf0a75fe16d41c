"""Muon (Jordan et al. 2024): the momentum of a matrix, made orthogonal, is its update.

    B ← μ·B + (1-μ)·G       U = NewtonSchulz((1-μ)·G + μ·B)       θ ← θ - lr·λ·θ - lr·0.2·√max(rows, columns)·U

The factor makes a step as large as AdamW's (arXiv 2502.16982), so one rate fits both. torch.optim.Muon does the same in
bfloat16, for which most CPUs have no instructions: about thirty times slower than float32, in which it is done there,
unless the run is one in bfloat16. Matrices of one shape go through it together.
"""

import math
from typing import Any, cast

import torch
from torch import Tensor

COEFFICIENTS = 3.4445, -4.7750, 2.0315  # of the quintic iteration, steepest at 0
ITERATIONS = 5


class Muon(torch.optim.Optimizer):
    """Its state has the name of torch's own: momentum_buffer. `half`: on a CPU too."""

    def __init__(
        self, params: Any, lr: float, momentum: float, weight_decay: float = 0.0, *, half: bool = False
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})
        self.half = half

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Move every matrix that has a gradient."""
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[Tensor]] = {}
            for parameter in group["params"]:
                if parameter.grad is not None:
                    by_shape.setdefault(parameter.shape, []).append(parameter)
            for matrices in by_shape.values():
                self._move(matrices, group)

    def _move(self, matrices: list[Tensor], group: dict[str, Any]) -> None:
        momentum, rate = group["momentum"], group["lr"]
        ahead = []  # Nesterov's look ahead
        for matrix in matrices:
            gradient = cast(Tensor, matrix.grad)  # matrices without one are not among them
            buffer = self.state[matrix]["momentum_buffer"].lerp_(gradient, 1 - momentum)
            ahead.append(torch.lerp(gradient, buffer, momentum))
        updates = orthogonal(torch.stack(ahead), self.half)
        scale = 0.2 * math.sqrt(max(matrices[0].shape))
        for matrix, update in zip(matrices, updates, strict=True):
            matrix.mul_(1 - rate * group["weight_decay"])
            matrix.add_(update.to(matrix.dtype), alpha=-rate * scale)


def orthogonal(matrices: Tensor, half: bool = False) -> Tensor:
    """U·S'·Vᵀ of each U·S·Vᵀ, with singular values S' near 1.  [n, rows, columns]"""
    work = matrices.bfloat16() if half or matrices.device.type != "cpu" else matrices.float()
    if tall := work.shape[1] > work.shape[2]:
        work = work.mT  # the small side's Gram matrix is the cheaper one
    work = work / work.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)  # singular values at most 1
    a, b, c = COEFFICIENTS
    for _ in range(ITERATIONS):
        gram = work @ work.mT  # [n, rows, rows]
        work = torch.baddbmm(work, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), work, beta=a)
    return work.mT if tall else work
