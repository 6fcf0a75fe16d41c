"""PGD: train on the worst point that a few ascents find (Madry et al. 2018, arXiv 1706.06083; FreeLB's `std_adv`).

δ_1 as in FreeLB;  δ_{k+1} = project(δ_k + adv_lr · ∇δ / ‖∇δ‖, max_norm)   for k = 1 … K − 1, no weight gradient
g  += ∇θ loss(E + δ_K)
"""

import torch
from torch import Tensor

from encodery.data.batches import Batch
from encodery.methods._notes import loss_notes, size_notes
from encodery.methods._perturbation import Attack
from encodery.methods.base import Totals, add, detached
from encodery.models.model import Model, Terms


class PGD(Attack):
    """The gradient at the last of K perturbations. The earlier passes only update the perturbation."""

    def on_batch(self, model: Model, batch: Batch, totals: Totals) -> Terms:
        space = self.space(model, batch)
        summed, left, weight = self.clean(model, batch, totals)
        delta = space.draw(self.init_mag)
        for k in range(1, self.steps):
            grad, terms = self.slope(model, batch, left, delta, draw=k - 1)
            add(summed, loss_notes(f"loss_{k}", model, batch, terms))
            add(summed, size_notes(space, left, k, delta, grad))
            delta = self.climb(space, delta, grad)
        terms = self.descend(model, batch, left, delta, draw=self.steps - 1)
        add(summed, terms, weight)
        add(summed, loss_notes("loss_adv", model, batch, terms))
        add(summed, size_notes(space, left, self.steps, delta, None))
        add(summed, self.costly_notes(model, space, delta, clean=not self.clean_weight))
        return summed

    def slope(self, model: Model, batch: Batch, totals: Totals, delta: Tensor, draw: int) -> tuple[Tensor, Terms]:
        """Gradient for the perturbation alone: cheaper, and nothing is added to the weights' gradients."""
        _, terms = self.run(model, batch, delta.requires_grad_(), draw)
        (grad,) = torch.autograd.grad(totals.mean(terms), delta)
        return grad, detached(terms)
