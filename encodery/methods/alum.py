"""ALUM: a smooth answer around the embeddings, in fine-tuning as in pretraining (Liu et al. 2020, arXiv 2004.08994).

loss(E) + weight · distance(f(E), f(E + δ))
δ_0 ~ N(0, init_mag²);  δ_{k+1} = project(δ_k + adv_lr · ∇δ / ‖∇δ‖, max_norm)   of distance(sg f(E), f(E + δ))

It is SMART without the moving mean, so it has no state and costs one pass less.
"""

from pydantic import Field

from encodery.methods._smoothness import AscendingSmoothness


class Alum(AscendingSmoothness):
    """The loss, plus the divergence between the outputs for clean and for adversarially perturbed embeddings."""

    weight: float = Field(default=1.0, ge=0)
    """α, the weight of the smoothness term: 1 for fine-tuning, 10 for pretraining."""
