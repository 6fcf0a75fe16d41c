"""SAM: the gradient at the worst point near the weights (Foret et al. 2021, arXiv 2010.01412).

e = rho · ∇loss(θ) / ‖∇loss(θ)‖₂     over all trained weights and the whole step
g = ∇loss(θ + e)
"""

from collections.abc import Sequence

from pydantic import Field

from encodery.data.batches import Batch
from encodery.methods._perturb import SMALLEST, loss_notes, moved, norm
from encodery.methods.base import Method, Totals, add, backward, note
from encodery.methods.plain import Plain
from encodery.models.model import Model, Terms


class SAM(Method):
    """Two passes: one to find the direction in which the loss climbs fastest, one for the gradient there."""

    rho: float = Field(default=0.05, ge=0)
    """How far the weights are moved (l2 norm over all of them)."""
    consistent_dropout: bool = True
    """The same dropout masks in both passes."""
    start_step: int = Field(default=0, ge=0)
    """Plain training before this step."""

    def __call__(self, model: Model, micro: Sequence[Batch], totals: Totals) -> Terms:
        """All micro-batches of the step."""
        clean = Plain()(model, micro, totals)
        if micro[0].step < self.start_step:
            return clean
        weights = [p for p in model.parameters() if p.grad is not None]
        slope = [p.grad for p in weights if p.grad is not None]
        size = norm(slope)
        for weight in weights:
            weight.grad = None
        whole: Terms = {}
        with moved(weights, slope, self.rho / max(size, SMALLEST)):
            for batch in micro:
                terms = backward(model, batch, totals, 0 if self.consistent_dropout else 1)[1]
                add(whole, terms)
                add(whole, loss_notes("loss_adv", model, batch, terms))
        first = next(iter(clean.values()))
        add(whole, note("grad_1", first.new_tensor(size / totals.scale), 1))
        for key, value in clean.items():
            label = "loss_clean" if len(clean) == 1 else f"loss_clean.{key[1]}"
            add(whole, note(label, value, sum(model.question(key[0]).counts(b)[key[1]] for b in micro)))
        return whole
