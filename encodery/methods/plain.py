"""Plain training: the gradient of the loss, nothing else."""

from collections.abc import Sequence

from encodery.data.batches import Batch
from encodery.methods.base import Method, Totals, backward, each
from encodery.models.model import Model, Terms


class Plain(Method):
    """One forward and one backward pass per micro-batch."""

    def __call__(self, model: Model, micro: Sequence[Batch], totals: Totals) -> Terms:
        return each(self.on_batch, model, micro, totals)

    def on_batch(self, model: Model, batch: Batch, totals: Totals) -> Terms:
        return backward(model, batch, totals)[1]
