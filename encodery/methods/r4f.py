"""R4F: R3F with a head that cannot be steep (Aghajanyan et al. 2021, arXiv 2008.03156).

R3F's loss, subject to σ(W) ≤ head_norm         σ: largest singular value, W: the matrix of the head's last layer
                                                (each of them, where a head ends in several)

W is scaled back to that limit at the beginning of each step, so evaluation and the saved model see what was trained.
"""

from collections.abc import Sequence

import torch
from pydantic import Field
from torch import nn

from encodery.data.batches import Batch
from encodery.errors import UserError
from encodery.methods.base import ActiveMethod, Totals, step_of
from encodery.methods.r3f import R3F
from encodery.models.model import Model, Terms


class R4F(R3F):
    """R3F with a bound on the spectral norm of the head."""

    head_norm: float | None = Field(default=1.0, gt=0)
    """Maximum spectral norm of the head's last layer. null: no limit, which is R3F."""

    def __call__(self, model: Model, micro: Sequence[Batch], totals: Totals) -> Terms:
        if self.head_norm is not None and step_of(micro, totals) >= self.start_step:
            for task in sorted({task for task, _ in totals.counts}):  # in every process, also without a batch
                for layer in model.objective(task).last_layers():
                    limit(layer, self.head_norm)
        return super().__call__(model, micro, totals)

    def start(self, model: Model) -> ActiveMethod:
        """What takes the steps of a run, where there is something to bound."""
        for task in model.names:
            if self.head_norm is not None and not model.objective(task).last_layers():
                raise UserError(
                    f"method.kind: r4f needs a head that ends in a linear layer of its own; that of {task} has none "
                    "(masked tokens are predicted with the word embeddings, which the bound would shrink); use r3f"
                )
        return super().start(model)


@torch.no_grad()
def limit(layer: nn.Linear, most: float) -> None:
    """Scale the matrix down if it is too steep; doing it twice changes nothing."""
    if not layer.weight.isfinite().all():  # the loss will not be finite either, and the loop says it better
        return
    steepness = float(torch.linalg.matrix_norm(layer.weight.float(), 2))
    if steepness > most * (1 + 1e-6):
        layer.weight.mul_(most / steepness)
