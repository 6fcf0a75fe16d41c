"""FreeAT: every pass over a batch is an update, and climbs (Shafahi et al. 2019, arXiv 1904.12843; FreeLB's code).

δ_1 as in FreeLB; for k = 1 … K on the same batch:
    g = ∇θ loss(E + δ_k);  δ_{k+1} = project(δ_k + adv_lr · ∇δ / ‖∇δ‖, max_norm), from the same pass
    θ ← update(θ, g)

A step is a batch: it counts once for schedule, epochs and checkpoints, and updates the weights K times.
"""

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor

from encodery.data.batches import Batch
from encodery.methods._notes import loss_notes, size_notes
from encodery.methods._perturbation import Attack, Space
from encodery.methods.base import Totals, Updating, add, losses_of, step_of
from encodery.methods.plain import Plain
from encodery.models.model import Model, Terms


class FreeAT(Attack):
    """K updates per batch, each at a perturbation that climbs the loss further."""

    updates: ClassVar[bool] = True

    consistent_dropout: bool = False
    """Use the same dropout masks in all passes of a step."""

    def start(self, model: Model) -> "_FreeAT":
        """What takes the steps, once the loop has handed it the update."""
        self.require(model)
        return _FreeAT(self.sized(model))

    def __call__(self, model: Model, micro: Sequence[Batch], totals: Totals) -> Terms:
        """Without `start` there is nothing to update with."""
        raise TypeError("FreeAT updates inside a step: use what start(model) returns")


class _FreeAT(Updating):
    """FreeAT at work."""

    def __init__(self, options: FreeAT):
        super().__init__()
        self.options = options

    def __call__(self, model: Model, micro: Sequence[Batch], totals: Totals) -> Terms:
        """All micro-batches of the step, K times; the last update is the loop's, as with every method."""
        options, self.updated = self.options, False
        if step_of(micro, totals) < options.start_step:
            return Plain()(model, micro, totals)
        spaces = [options.space(model, batch) for batch in micro]
        deltas, summed = [space.draw(options.init_mag) for space in spaces], Terms()
        for k in range(1, options.steps + 1):
            terms = Terms()
            deltas = [self.on_batch(model, s, d, totals, k, terms) for s, d in zip(spaces, deltas, strict=True)]
            add(summed, terms, 1 / options.steps)
            if k < options.steps and not self.update_now(losses_of(terms), micro):
                break  # fp16 overflowed: the loop sees that gradient and skips the rest of the step
        for space, delta in zip(spaces, deltas, strict=True):
            add(summed, options.costly_notes(model, space, delta, clean=not options.clean_weight))
        return summed

    def on_batch(self, model: Model, space: Space, delta: Tensor, totals: Totals, k: int, summed: Terms) -> Tensor:
        """One pass over a micro-batch; returns the next perturbation."""
        options, batch, last = self.options, space.batch, k == self.options.steps
        clean, left, weight = options.clean(model, batch, totals)
        terms = options.descend(model, batch, left, delta.requires_grad_(not last), k - 1)
        add(summed, clean)
        add(summed, terms, weight)
        add(summed, loss_notes("loss_adv" if last else f"loss_{k}", model, batch, terms))
        add(summed, size_notes(space, left, k, delta, delta.grad))
        return delta if last else options.climb(space, delta, delta.grad)
