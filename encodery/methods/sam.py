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
    """Two passes: one to find the direction in which the loss climbs fastest, one for the gradient there."""

    rho: float = Field(default=0.05, ge=0)
    """How far the weights are moved (l2 norm over all of them)."""

    def there(
        self, weights: Sequence[nn.Parameter], slope: Sequence[Tensor], size: float
    ) -> AbstractContextManager[None]:
        """All weights, along the whole gradient."""
        return moved(weights, slope, self.rho / max(size, SMALLEST))
