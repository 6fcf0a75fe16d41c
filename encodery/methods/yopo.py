"""YOPO: cheap ascents through the first layer between full passes (Zhang et al. 2019, arXiv 1905.00877; FreeLB's code).

δ_1 as in FreeLB;  g += (1/K) · ∇θ loss(E + δ_k)             for k = 1 … K, full passes
p = ∂loss/∂h at h = first layer(E + δ_k), kept from that pass
δ ← project(δ + adv_lr · ∇δ / ‖∇δ‖, max_norm)                of p · first layer(E + δ), layer_steps times, p fixed

With layer_steps 1 and consistent dropout it is FreeLB, by the chain rule.
"""

import torch
from pydantic import Field
from torch import Tensor

from encodery.data.batches import Batch
from encodery.errors import UserError
from encodery.methods._perturbation import Attack, Space
from encodery.methods.base import Totals
from encodery.models.first_block import Watch, first_block
from encodery.models.model import Model, Terms


class YOPO(Attack):
    """The mean gradient over K full passes. Between them, the perturbation is updated through the first layer only."""

    layer_steps: int = Field(default=2, ge=1)
    """n, the number of ascent steps through the first layer after each full pass but the last."""

    def require(self, model: Model) -> None:
        """The first layer must be known."""
        super().require(model)
        first_block(model.encoder.net)
        if model.encoder.compiled:
            raise UserError("train.compile: method yopo looks into the first layer; set it to false")

    def on_batch(self, model: Model, batch: Batch, totals: Totals) -> Terms:
        with Watch(model.encoder) as watch:

            def ascend(space: Space, delta: Tensor, k: int) -> Tensor:
                slope = watch.slope()
                for _ in range(self.layer_steps):
                    delta = delta.detach().requires_grad_()
                    with watch.only_first():
                        self.run(model, batch, delta, draw=k - 1)
                    (grad,) = torch.autograd.grad((watch.output.float() * slope).sum(), delta)
                    delta = self.climb(space, delta, grad)
                return delta

            return self.averaged(model, batch, totals, ascend)
