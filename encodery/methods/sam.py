"""SAM: the gradient at the worst point near the weights (Foret et al. 2021, arXiv 2010.01412).

e = rho · ∇loss(θ) / ‖∇loss(θ)‖₂     over all trained weights and the whole step
g = ∇loss(θ + e)
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager

from pydantic import Field
from torch import Tensor, nn

from encodery.methods._perturbation import SMALLEST
from encodery.methods._weight_ascent import WeightAscent, moved


class SAM(WeightAscent):
    """Two passes: the first finds the direction in which the loss rises fastest, the second computes the gradient at
    the weights moved along it."""

    rho: float = Field(default=0.05, ge=0)
    """ρ, the l2 norm of the perturbation of all weights."""

    def there(
        self, weights: Sequence[nn.Parameter], slope: Sequence[Tensor], size: float
    ) -> AbstractContextManager[None]:
        """All weights, along the whole gradient."""
        return moved(weights, slope, self.rho / max(size, SMALLEST))
