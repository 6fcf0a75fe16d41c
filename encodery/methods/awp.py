"""AWP: the gradient at weights that were pushed uphill, each matrix by its own size (Wu et al. 2020, arXiv 2004.05884).

v = clamp(gamma · ‖w‖₂ · ∇loss(w) / ‖∇loss(w)‖₂, −gamma·|w|, gamma·|w|)     for each matrix w, over the whole step
g = ∇loss(w + v)
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager

import torch
from pydantic import Field
from torch import Tensor, nn

from encodery.methods._perturbation import SMALLEST
from encodery.methods._weight_ascent import WeightAscent, moved, norm


class AWP(WeightAscent):
    """Two passes: the first finds an adversarial direction for every weight matrix, the second computes the gradient at
    the perturbed weights."""

    gamma: float = Field(default=5e-3, ge=0)
    """Size of the perturbation relative to the norm of each matrix. No weight changes by more than this fraction of
    itself."""

    def there(
        self, weights: Sequence[nn.Parameter], slope: Sequence[Tensor], size: float
    ) -> AbstractContextManager[None]:
        """Matrices only; biases and norms have no scale to speak of and stay."""
        pairs = [(weight, grad) for weight, grad in zip(weights, slope, strict=True) if weight.ndim > 1]
        return moved([weight for weight, _ in pairs], [self.push(*pair) for pair in pairs], 1.0)

    @torch.no_grad()
    def push(self, weight: Tensor, grad: Tensor) -> Tensor:
        """Where one matrix goes."""
        length = self.gamma * norm([weight]) / max(norm([grad]), SMALLEST)
        bound = self.gamma * weight.abs()
        return torch.clamp(grad * length, -bound, bound)
