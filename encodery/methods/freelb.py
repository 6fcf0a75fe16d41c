"""FreeLB: adversarial training that uses the gradient of every pass (Zhu et al. 2020, arXiv 1909.11764).

δ_1 = U(−1, 1) · init_mag / √(L · D)                                       per sequence of L tokens of width D
g  += (1/K) · ∇θ loss(E + δ_k)                                             for k = 1 … K
δ_{k+1} = project(δ_k + adv_lr · ∇δ / ‖∇δ‖, max_norm)                      after each pass but the last
"""

from encodery.data.batches import Batch
from encodery.methods._perturb import Attack, loss_notes, size_notes
from encodery.methods.base import Totals, add
from encodery.models.model import Model, Terms
from encodery.models.shift import Words


class FreeLB(Attack):
    """The mean gradient over K passes at perturbations that climb the loss."""

    def one(self, model: Model, batch: Batch, totals: Totals) -> Terms:
        """One micro-batch."""
        space = self.space(model, batch)
        whole, left, weight = self.clean(model, batch, totals)
        shift, part, words = space.draw(self.init_mag), left.times(1 / self.steps), Words()
        for k in range(1, self.steps + 1):
            last = k == self.steps
            shift.requires_grad_(not last)
            terms = self.descend(model, batch, part, shift, k - 1, words)
            add(whole, terms, weight / self.steps)
            add(whole, loss_notes("loss_adv" if last else f"loss_{k}", model, batch, terms))
            add(whole, size_notes(space, part, k, shift, shift.grad))
            if shift.grad is not None:
                shift = space.climb(shift, shift.grad, self.adv_lr, self.max_norm)
        words.settle()
        add(whole, self.look(model, space, shift, clean=not self.clean_weight))
        return whole
