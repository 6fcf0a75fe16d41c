"""FGM: one ascent of fixed length from the clean embeddings (Miyato et al. 2017, arXiv 1605.07725).

    δ = epsilon · ∇loss(E) / ‖∇loss(E)‖,   (clean_weight · loss(E) + loss(E + δ)) / (clean_weight + 1)

target example: one δ per sequence, the paper's. target matrix: the version that circulates as a snippet, which moves
the word embedding matrix W itself, W + epsilon · G / ‖G‖ with the gradient G of the whole step, and puts it back.
"""

from collections.abc import Sequence
from typing import ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from encodery.data.batches import Batch
from encodery.distributed import comm
from encodery.errors import UserError
from encodery.methods._perturbation import SMALLEST, OneStep, Space
from encodery.methods._weight_ascent import moved, norm
from encodery.methods.base import Totals, add, note, step_of
from encodery.models.model import Model, Terms


class FGM(OneStep):
    """A clean pass that gives the gradient direction, then a pass on embeddings perturbed along it."""

    epsilon: float = Field(default=1.0, ge=0)
    """Norm of the perturbation."""
    target: Literal["example", "matrix"] = "example"
    """example: every sequence has its own perturbation; matrix: one perturbation of the word embedding matrix per
    step."""

    lengths: ClassVar[tuple[str, ...]] = ("epsilon",)

    @property
    def reach(self) -> float:
        """One ascent; a matrix that is moved for the whole step is no perturbation of single texts."""
        return self.epsilon if self.target == "example" else 0.0

    def __call__(self, model: Model, micro: Sequence[Batch], totals: Totals) -> Terms:
        if self.target == "example" or step_of(micro, totals) < self.start_step:
            return super().__call__(model, micro, totals)
        return self.matrix(model, micro, totals)

    @model_validator(mode="after")
    def _matrix_has_no_sequences(self) -> Self:
        usual = (self.site, self.norm, self.norm_scope, self.perturb_special_tokens) == ("word", "l2", "example", True)
        if self.target == "matrix" and not usual:
            raise ValueError("target matrix goes with site word, norm l2, norm_scope example and all tokens only")
        return self

    def require(self, model: Model) -> None:
        """A matrix that is moved must be one that is trained."""
        if self.target == "example":
            super().require(model)
        elif not table_of(model).requires_grad:
            raise UserError("method.target: matrix needs a trained embedding matrix; with model.tune use example")

    def delta(self, space: Space, grad: Tensor) -> Tensor:
        """One ascent from the clean embeddings."""
        return space.climb(space.zero(), grad, self.epsilon, None)

    def matrix(self, model: Model, micro: Sequence[Batch], totals: Totals) -> Terms:
        """The whole step, one perturbation of the word embedding matrix."""
        table = table_of(model)
        summed, part, slope = Terms(), totals.times(self.share or 1.0), torch.zeros_like(table)
        for batch in micro:
            grad = self.first(model, batch, part, table, summed)
            slope = grad.clone() if self.share else slope + grad
        size = norm([comm.sum_(slope)])  # the direction is that of the whole step
        with moved([table], [slope], self.epsilon / max(size, SMALLEST)):
            for batch in micro:
                self.second(model, batch, totals, None, summed)
        add(summed, note("grad_1", slope.new_tensor(size / part.scale), 1))
        return summed


def table_of(model: Model) -> nn.Parameter:
    """The word embedding matrix."""
    table: nn.Parameter = model.encoder.net.get_input_embeddings().weight
    return table
