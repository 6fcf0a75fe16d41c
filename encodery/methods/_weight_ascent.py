"""What methods that move the weights share: there, the gradient is taken, and back to the bit."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

import torch
from pydantic import Field
from torch import Tensor, nn

from encodery.data.batches import Batch
from encodery.distributed import comm
from encodery.methods._notes import loss_notes
from encodery.methods.base import Method, Totals, add, backward, note, step_of
from encodery.methods.plain import Plain
from encodery.models.model import Model, Terms


class WeightAscent(Method):
    """Options of methods with two passes: one that says where the loss climbs, one for the gradient there."""

    consistent_dropout: bool = True
    """Use the same dropout masks in both passes."""
    start_step: int = Field(default=0, ge=0)
    """Train without the method before this step."""

    def there(
        self, weights: Sequence[nn.Parameter], slope: Sequence[Tensor], size: float
    ) -> AbstractContextManager[None]:
        """Inside, the weights stand where the second gradient is wanted; `size` is the norm of the first one."""
        raise NotImplementedError

    def __call__(self, model: Model, micro: Sequence[Batch], totals: Totals) -> Terms:
        clean = Plain()(model, micro, totals)
        if step_of(micro, totals) < self.start_step:
            return clean
        comm.reduce_gradients(p for p in model.parameters() if p.requires_grad)  # of the whole step
        weights = [p for p in model.parameters() if p.grad is not None]
        slope = [p.grad for p in weights if p.grad is not None]
        size = norm(slope)
        for weight in weights:
            weight.grad = None
        summed: Terms = {}
        with self.there(weights, slope, size):
            for batch in micro:
                terms = backward(model, batch, totals, 0 if self.consistent_dropout else 1)[1]
                add(summed, terms)
                add(summed, loss_notes("loss_adv", model, batch, terms))
        add(summed, note("grad_1", torch.tensor(size / totals.scale), 1))
        for key, value in clean.items():
            label = "loss_clean" if len(clean) == 1 else f"loss_clean.{key[1]}"
            add(summed, note(label, value, sum(model.objective(key[0]).counts(b.host)[key[1]] for b in micro)))
        return summed


def norm(tensors: Sequence[Tensor]) -> float:
    """l2 norm over all of them, in double."""
    return float(torch.stack([torch.linalg.vector_norm(t).double().cpu() for t in tensors]).norm())


@contextmanager
def moved(weights: Sequence[nn.Parameter], direction: Sequence[Tensor], length: float) -> Iterator[None]:
    """Inside, the weights stand elsewhere; afterwards they are what they were, to the bit, whatever happens."""
    before = [weight.detach().clone() for weight in weights]
    try:
        with torch.no_grad():
            for weight, along in zip(weights, direction, strict=True):
                weight.add_(along, alpha=length)
        yield
    finally:
        with torch.no_grad():
            for weight, old in zip(weights, before, strict=True):
                weight.copy_(old)
