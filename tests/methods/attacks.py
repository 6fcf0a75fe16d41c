"""Tiny models and micro-batches for tests of methods, and a spy on the perturbations."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from encodery.data.batches import Batch
from encodery.loop import count
from encodery.methods.base import Running, Totals, Updating
from encodery.methods.plain import Plain
from encodery.models import packed
from encodery.models.model import Model, Terms
from tests.helpers import cutter_for, gradients, random_table, small_encoder, small_model, stream

KINDS = ["bert", "roberta", "albert", "electra", "distilbert", "deberta-v2", "modernbert"]
QUICK = {("bert", "packed"), ("bert", "rows"), ("deberta-v2", "rows")}  # in the fast suite; the others are slow tests
PLACES = [
    pytest.param(kind, layout, marks=[] if (kind, layout) in QUICK else [pytest.mark.slow])
    for kind in KINDS
    for layout in ("packed", "rows")
    if layout == "rows" or kind in packed.PROVEN
]
LENGTHS = [9, 4, 12, 7, 3, 12, 5, 8]
Gradients = dict[str, Tensor]


@dataclass
class Bench:
    """A model, the micro-batches of a step, and what a method did with them."""

    model: Model
    micro: list[Batch]

    def step(self, method: Running, scale: float = 1.0) -> tuple[Gradients, Terms]:
        """Gradients and terms of one step."""
        self.model.train()
        self.model.zero_grad(set_to_none=True)
        totals = Totals(count(self.model, self.micro), scale, float(sum(map(len, self.micro))))
        if isinstance(method, Updating):
            method.update = self.slide
        before = {n: p.detach().clone() for n, p in self.model.named_parameters()}
        terms = method(self.model, self.micro, totals)
        with torch.no_grad():  # only a method that updates inside a step has moved anything
            for name, parameter in self.model.named_parameters():
                parameter.copy_(before[name])
        return gradients(self.model), terms

    def slide(self, terms: Terms, micro: Sequence[Batch]) -> bool:
        """The update for a method that wants one inside a step: 0.1 times the gradient, downhill."""
        with torch.no_grad():
            for parameter in self.model.parameters():
                if parameter.grad is not None:
                    parameter.sub_(parameter.grad, alpha=0.1)
        self.model.zero_grad(set_to_none=True)
        return True

    def plain(self) -> Gradients:
        """What plain training would give."""
        return self.step(Plain())[0]

    @contextmanager
    def spied(self) -> Iterator[list[Tensor]]:
        """All perturbations that go through the encoder's door, in the layout of the batch."""
        seen: list[Tensor] = []
        encoder: Any = self.model.encoder
        real = encoder.shifted

        def shifted(values: Tensor, *more: Any, **options: Any) -> Any:
            seen.append(values.detach().clone())
            return real(values, *more, **options)

        encoder.shifted = shifted
        try:
            yield seen
        finally:
            del encoder.shifted

    def trace(self, method: Running, scale: float = 1.0) -> list[Tensor]:
        """The perturbations of one step."""
        with self.spied() as seen:
            self.step(method, scale)
        return seen

    def norms(self, values: Tensor) -> Tensor:
        """l2 norm of each sequence of the first micro-batch, in double."""
        return self.micro[0].per_sequence(values.double().square().sum(2), "sum").sqrt()


def bench(
    kind: str = "bert",
    layout: str = "rows",
    dropout: float = 0.0,
    lengths: Sequence[int] = tuple(LENGTHS),
    most: int | None = None,
    form: str = "single",
    step: int = 0,
    more: dict[str, Any] | None = None,
    **options: Any,
) -> Bench:
    """A tiny model and one step of random rows; `rows` means one micro-batch here (padded)."""
    encoder = small_encoder(kind, layout, dropout=dropout, **(more or {}))
    model = small_model(encoder, form=form, **options)
    table = random_table(lengths, form=form)
    cutter = cutter_for(encoder, "padded" if layout == "rows" else layout, most=most)
    return Bench(model, stream(table, cutter, len(lengths)).at(step))


def lengthened(made: Bench, pads: int) -> Bench:
    """The same rows with more padding."""
    return Bench(made.model, [_lengthened(batch, pads, made.model.encoder.form.pad_id) for batch in made.micro])


def _lengthened(batch: Batch, pads: int, pad_id: int) -> Batch:
    fill = {"input_ids": pad_id, "attention_mask": 0, "token_type_ids": 0}
    inputs = {k: torch.nn.functional.pad(v, (0, pads), value=fill[k]) for k, v in batch.inputs.items()}
    return replace(batch, inputs=inputs, layout=type(batch.layout)(inputs["attention_mask"].bool()))
