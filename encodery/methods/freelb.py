"""FreeLB: adversarial training that uses the gradient of every pass (Zhu et al. 2020, arXiv 1909.11764).

δ_1 = U(−1, 1) · init_mag / √(L · D)                                       per sequence of L tokens of width D
g  += (1/K) · ∇θ loss(E + δ_k)                                             for k = 1 … K
δ_{k+1} = project(δ_k + adv_lr · ∇δ / ‖∇δ‖, max_norm)                      after each pass but the last
"""

from encodery.data.batches import Batch
from encodery.methods._perturbation import Attack
from encodery.methods.base import Totals
from encodery.models.model import Model, Terms


class FreeLB(Attack):
    """The mean gradient over K passes, at perturbations that climb the loss step by step."""

    def on_batch(self, model: Model, batch: Batch, totals: Totals) -> Terms:
        return self.averaged(model, batch, totals, lambda space, delta, _: self.climb(space, delta, delta.grad))
