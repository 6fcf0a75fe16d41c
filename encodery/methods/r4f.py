"""R4F: R3F with a head that cannot be steep (Aghajanyan et al. 2021, arXiv 2008.03156).

R3F's loss, subject to σ(W) ≤ head_norm         σ: largest singular value, W: the matrix of the head's last layer

W is scaled back to that limit at the beginning of each step, so evaluation and the saved model see what was trained.
"""

from collections.abc import Sequence

import torch
from pydantic import Field
from torch import nn

from encodery.data.batches import Batch
from encodery.errors import UserError
from encodery.methods.base import Totals, step_of
from encodery.methods.r3f import R3F
from encodery.models.model import Model, Terms


class R4F(R3F):
    """The loss plus the distance between a clean and a noisy answer, with a bounded head."""

    head_norm: float | None = Field(default=1.0, gt=0)
    """Largest spectral norm of the head's last layer; null: no limit (then it is R3F)."""

    def __call__(self, model: Model, micro: Sequence[Batch], totals: Totals) -> Terms:
        """All micro-batches of the step."""
        if self.head_norm is not None and step_of(micro, totals) >= self.start_step:
            for task in sorted({task for task, _ in totals.counts}):  # in every process, also without a batch
                limit(last_layer(model, task), self.head_norm)
        return super().__call__(model, micro, totals)


def last_layer(model: Model, task: str) -> nn.Linear:
    """The layer that gives a task's answer."""
    layers = [part for part in model.question(task).modules() if isinstance(part, nn.Linear)]
    if not layers:
        raise UserError(f"method.kind: r4f needs a head that ends in a linear layer; that of {task} has none")
    return layers[-1]


@torch.no_grad()
def limit(layer: nn.Linear, most: float) -> None:
    """Scale the matrix down if it is too steep; doing it twice changes nothing."""
    if not layer.weight.isfinite().all():  # the loss will not be finite either, and the loop says it better
        return
    steepness = float(torch.linalg.matrix_norm(layer.weight.float(), 2))
    if steepness > most * (1 + 1e-6):
        layer.weight.mul_(most / steepness)
