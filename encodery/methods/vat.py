"""VAT: virtual adversarial training, which needs no labels (Miyato et al. 2018, arXiv 1704.03976; 1605.07725 for text).

d ← ∇r KL(sg p(E) ‖ p(E + r)) / ‖…‖  at r = xi · d      power_steps times, from a random direction of length 1
loss(E) + weight · KL(sg p(E) ‖ p(E + epsilon · d))

sg: the clean answer is a fixed target. A row without a label counts in the second term all the same.
"""

from typing import ClassVar

from pydantic import Field
from torch import Tensor

from encodery.data.batches import Batch
from encodery.methods._perturbation import Space
from encodery.methods._smoothness import Smooth
from encodery.methods.base import Totals, add
from encodery.models.model import Model, Outputs, Terms


class VAT(Smooth):
    """The loss, plus the divergence between the outputs for clean embeddings and for embeddings perturbed in the
    direction in which the output changes most."""

    one_sided: ClassVar[bool] = True

    epsilon: float = Field(default=1.0, ge=0)
    """Norm of the perturbation."""
    xi: float = Field(default=1e-2, gt=0)
    """ξ, the length of the finite difference that estimates the direction. If it is too small for the precision of the
    run, the direction is noise."""
    power_steps: int = Field(default=1, ge=1)
    """Number of power iterations that refine the direction."""

    lengths: ClassVar[tuple[str, ...]] = ("epsilon", "xi")

    @property
    def reach(self) -> float:
        """The end of the direction."""
        return self.epsilon

    @property
    def last_draw(self) -> int:
        """After the power iterations."""
        return self.power_steps + 1

    def worst(self, model: Model, batch: Batch, totals: Totals, fixed: Outputs, space: Space) -> tuple[Tensor, Terms]:
        """Along the largest eigenvector of the divergence's curvature, by power iteration."""
        direction, notes = space.unit(space.normal(1.0)), Terms()
        for k in range(1, self.power_steps + 1):
            grad, sizes = self.slope(model, space, totals, fixed, space.keep(direction * self.xi), k)
            add(notes, sizes)
            direction = space.unit(grad)
        return space.keep(direction * self.epsilon), notes
