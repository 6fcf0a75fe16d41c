"""FGM: one ascent of fixed length from the clean embeddings (Miyato et al. 2017, arXiv 1605.07725).

    δ = epsilon · ∇loss(E) / ‖∇loss(E)‖,   (clean_weight · loss(E) + loss(E + δ)) / (clean_weight + 1)

target example: one δ per sequence, the paper's. target matrix: the version that circulates as a snippet, which moves
the word embedding matrix W itself, W + epsilon · G / ‖G‖ with the gradient G of the whole step, and puts it back.
"""

from collections.abc import Sequence
from typing import Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from encodery.data.batches import Batch
from encodery.errors import UserError
from encodery.methods._perturb import SMALLEST, Perturbation, loss_notes, moved, norm, size_notes
from encodery.methods.base import Totals, add, detached, note
from encodery.models.model import Model, Terms
from encodery.models.shift import Words


class FGM(Perturbation):
    """A clean pass that gives the direction, and an adversarial one."""

    epsilon: float = Field(default=1.0, ge=0)
    """Length of the perturbation."""
    target: Literal["example", "matrix"] = "example"
    """example: each sequence has its own; matrix: the word embedding matrix is moved, once for the whole step."""
    clean_weight: float = Field(default=1.0, ge=0)
    """Weight of the clean loss against 1 for the adversarial one; the sum of the weights is made 1."""

    def __call__(self, model: Model, micro: Sequence[Batch], totals: Totals) -> Terms:
        """All micro-batches of the step."""
        if self.target == "example" or micro[0].step < self.start_step:
            return super().__call__(model, micro, totals)
        return self.matrix(model, micro, totals)

    @property
    def share(self) -> float:
        """Weight of the clean loss, of 1."""
        return self.clean_weight / (1 + self.clean_weight)

    @model_validator(mode="after")
    def _matrix_has_no_sequences(self) -> Self:
        usual = (self.site, self.norm, self.norm_scope, self.perturb_special_tokens) == ("word", "l2", "example", True)
        if self.target == "matrix" and not usual:
            raise ValueError("target matrix goes with site word, norm l2, norm_scope example and all tokens only")
        return self

    def one(self, model: Model, batch: Batch, totals: Totals) -> Terms:
        """One micro-batch, a perturbation for each sequence."""
        space, whole = self.space(model, batch), Terms()
        here, part, words = space.zero().requires_grad_(), totals.times(self.share or 1.0), Words()
        grad = self.first(model, batch, part, here, whole, words)
        shift = space.climb(here, grad, self.epsilon, None)
        add(whole, size_notes(space, part, 1, here, grad))
        self.second(model, batch, totals, shift, whole, words)
        words.settle()
        add(whole, size_notes(space, part, 2, shift, None))
        add(whole, self.look(model, space, shift, clean=False))
        return whole

    def first(
        self, model: Model, batch: Batch, part: Totals, wanted: Tensor, whole: Terms, words: Words | None = None
    ) -> Tensor:
        """The clean pass: the gradient of what is to be moved. The weights get theirs only if the pass counts."""
        _, terms = self.run(model, batch, None if isinstance(wanted, nn.Parameter) else wanted, 0, words)
        if self.share:
            add(whole, detached(terms), self.share)
            part.mean(terms).backward()  # type: ignore[no-untyped-call]
            grad = wanted.grad
        else:
            (grad,) = torch.autograd.grad(part.mean(terms), wanted)
        add(whole, loss_notes("loss_clean", model, batch, detached(terms)))
        assert grad is not None
        return grad

    def second(
        self,
        model: Model,
        batch: Batch,
        totals: Totals,
        shift: Tensor | None,
        whole: Terms,
        words: Words | None = None,
    ) -> None:
        """The adversarial pass."""
        _, terms = self.run(model, batch, shift, 1, words)
        totals.times(1 - self.share).mean(terms).backward()  # type: ignore[no-untyped-call]
        add(whole, detached(terms), 1 - self.share)
        add(whole, loss_notes("loss_adv", model, batch, detached(terms)))

    def matrix(self, model: Model, micro: Sequence[Batch], totals: Totals) -> Terms:
        """The whole step, one perturbation of the word embedding matrix."""
        table: nn.Parameter = model.encoder.net.get_input_embeddings().weight
        if not table.requires_grad:
            raise UserError("method.target: matrix needs a trained embedding matrix; with model.tune use example")
        whole, part, slope = Terms(), totals.times(self.share or 1.0), torch.zeros_like(table)
        for batch in micro:
            grad = self.first(model, batch, part, table, whole)
            slope = grad.clone() if self.share else slope + grad
        size = norm([slope])
        with moved([table], [slope], self.epsilon / max(size, SMALLEST)):
            for batch in micro:
                self.second(model, batch, totals, None, whole)
        add(whole, note("grad_1", slope.new_tensor(size / part.scale), 1))
        return whole
