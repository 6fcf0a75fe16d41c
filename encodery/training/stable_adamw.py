"""StableAdamW (Wortsman et al. 2023, arXiv 2304.13013): the rate of a tensor is cut when its update is too large.

    RMS_t = √ mean(g² / max(v̂, ε²))      η_t = η / max(1, RMS_t)
    θ ← θ - η_t·λ·θ - η_t·m̂ / (√v̂ + ε)

The second moment lags behind gradients that grow suddenly; RMS_t says by how much. With it clipping of the gradient is
not needed (`optim.clip: 0`).
"""

from typing import Any

import torch
from torch import Tensor


class StableAdamW(torch.optim.Optimizer):
    """Its state has AdamW's names: step, exp_avg, exp_avg_sq."""

    def __init__(
        self, params: Any, lr: float, betas: tuple[float, float], eps: float, weight_decay: float = 0.0
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Move every parameter that has a gradient."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    move(parameter, parameter.grad, self.state[parameter], group)


def move(parameter: Tensor, grad: Tensor, state: dict[str, Tensor], group: dict[str, Any]) -> None:
    """One parameter, one step."""
    beta1, beta2 = group["betas"]
    state["step"] += 1
    count = float(state["step"])
    mean = state["exp_avg"].lerp_(grad, 1 - beta1) / (1 - beta1**count)
    square = state["exp_avg_sq"].mul_(beta2).addcmul_(grad, grad, value=1 - beta2) / (1 - beta2**count)
    surprise = (grad.square() / square.clamp(min=group["eps"] ** 2)).mean().sqrt()
    rate = group["lr"] / max(1.0, float(surprise))
    parameter.mul_(1 - rate * group["weight_decay"])
    parameter.addcdiv_(mean, square.sqrt_().add_(group["eps"]), value=-rate)
