"""SiFT: SMART's smoothness on normalised embeddings (He et al. 2021, arXiv 2006.03654, and DeBERTa's code).

loss(E) + weight · distance(f(E), f(sg(N(E)) + δ))       N: each token's embedding with mean 0 and deviation 1
δ_0 ~ N(0, init_mag²), cut at ±2·init_mag;  δ_1 = δ_0 + adv_lr · ∇δ / max|∇δ|   token by token

sg: on the perturbed branch no gradient goes into the embeddings. Embeddings of all sizes are perturbed alike.
"""

from typing import ClassVar

from pydantic import Field
from torch import Tensor

from encodery.methods._perturbation import Norm, Scope, Space
from encodery.methods._smoothness import AscendingSmoothness
from encodery.models.perturb import Site


class Sift(AscendingSmoothness):
    """The loss, plus the divergence between the outputs for clean and for adversarially perturbed normalised
    embeddings."""

    detach: ClassVar[bool] = True

    weight: float = Field(default=5.0, ge=0)
    """λ, the weight of the smoothness term."""
    adv_lr: float = Field(default=1e-4, ge=0)
    """Step size of the ascent, in standard deviations of a token's embedding."""
    init_mag: float = Field(default=1e-2, ge=0)
    """Standard deviation of the random start, which is truncated at two standard deviations."""
    max_norm: float | None = Field(default=None, ge=0)
    """Maximum norm of the perturbation. null or 0: no limit."""
    norm: Norm = "linf"
    """Norm of the perturbation: l2, or linf (the largest absolute value)."""
    norm_scope: Scope = "token"
    """token: normalise the gradient of each token; example: of each sequence."""
    site: Site = "normalised"
    """Where the perturbation is added. normalised: before the layer norm of the embedding layer, in units of each
    token's standard deviation; word and embedding_output as in the other methods."""

    def start_at(self, space: Space) -> Tensor:
        """Normal, without its tails."""
        return space.normal(self.init_mag).clamp(-2 * self.init_mag, 2 * self.init_mag)
