"""FGSM: every number moves by the same amount, uphill (Goodfellow et al. 2015, arXiv 1412.6572).

δ = epsilon · sign(∇loss(E)),   (clean_weight · loss(E) + loss(E + δ)) / (clean_weight + 1)
"""

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from encodery.methods._perturbation import OneStep, Space


class FGSM(OneStep):
    """A clean pass that gives the sign of the gradient, then a pass on embeddings perturbed along it."""

    epsilon: float = Field(default=1e-3, ge=0)
    """Size of the perturbation of each component."""
    norm: Literal["linf"] = "linf"
    """Only linf: every component has its own bound."""
    norm_scope: Literal["example"] = "example"
    """Only example; it has no effect, because every component has its own bound."""

    lengths: ClassVar[tuple[str, ...]] = ("epsilon",)

    @property
    def reach(self) -> float:
        """Every number moves as far."""
        return self.epsilon

    def delta(self, space: Space, grad: Tensor) -> Tensor:
        """The sign of every number; zero where the gradient is zero."""
        return space.keep(self.epsilon * torch.sign(grad))
