"""Tiny models and micro-batches for tests of methods, and a spy on the perturbations."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from encodery.data.batches import Batch, Batches
from encodery.methods import rdrop
from encodery.methods.base import ActiveMethod, Presampling, Totals, Updating
from encodery.methods.plain import Plain
from encodery.models import packed
from encodery.models.encoder import Encoder
from encodery.models.model import Model, Terms
from encodery.training.loop import count
from tests.toolbox.models import batcher_for, gradients, random_table, small_encoder, small_model, stream

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
    source: Batches | None = None  # where the micro-batches come from, for a method that draws rows itself
    scale: float = 1.0  # of the loss in the latest step

    def step(self, method: ActiveMethod, scale: float = 1.0) -> tuple[Gradients, Terms]:
        """Gradients and terms of one step."""
        self.model.train()
        self.model.zero_grad(set_to_none=True)
        totals = Totals(count(self.model, self.micro), scale, float(sum(map(len, self.micro))))
        self.scale = scale
        if isinstance(method, Updating):
            method.update = self.slide
        if isinstance(method, Presampling):
            method.source = self.source
        before = {n: p.detach().clone() for n, p in self.model.named_parameters()}
        terms = method(self.model, self.micro, totals)
        with torch.no_grad():  # only a method that updates inside a step has moved anything
            for name, parameter in self.model.named_parameters():
                parameter.copy_(before[name])
        return gradients(self.model), terms

    def slide(self, terms: Terms, micro: Sequence[Batch]) -> bool:
        """The update for a method that wants one inside a step: 0.1 times the true gradient, downhill."""
        with torch.no_grad():
            for parameter in self.model.parameters():
                if parameter.grad is not None:
                    parameter.sub_(parameter.grad, alpha=0.1 / self.scale)
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
        real = encoder.perturbed

        def perturbed(values: Tensor, *more: Any, **options: Any) -> Any:
            seen.append(values.detach().clone())
            return real(values, *more, **options)

        encoder.perturbed = perturbed
        try:
            yield seen
        finally:
            del encoder.perturbed

    def trace(self, method: ActiveMethod, scale: float = 1.0) -> list[Tensor]:
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
    batcher = batcher_for(encoder, "padded" if layout == "rows" else layout, most=most)
    source = stream(table, batcher, len(lengths))
    return Bench(model, source.at(step), source)


def lengthened(made: Bench, pads: int) -> Bench:
    """The same rows with more padding."""
    return Bench(made.model, [_lengthened(batch, pads, made.model.encoder.form.pad_id) for batch in made.micro])


def _lengthened(batch: Batch, pads: int, pad_id: int) -> Batch:
    fill = {"input_ids": pad_id, "attention_mask": 0, "token_type_ids": 0}
    inputs = {k: torch.nn.functional.pad(v, (0, pads), value=fill[k]) for k, v in batch.inputs.items()}
    return replace(batch, inputs=inputs, layout=type(batch.layout)(inputs["attention_mask"].bool()))


# Formulas written anew


def logits(made: Bench, delta: Tensor | None, site: Any = "word", detach: bool = False) -> Tensor:
    """The answer at a perturbation."""
    if delta is None:
        return made.model.outputs(made.micro[0])["logits"]
    with made.model.encoder.perturbed(delta, site, detach):
        return made.model.outputs(made.micro[0])["logits"]


def kl(p: Tensor, q: Tensor) -> Tensor:
    """Mean KL(p ‖ q) of two sets of logits."""
    return nn.functional.kl_div(q.log_softmax(1), p.log_softmax(1), log_target=True, reduction="batchmean")


def slope(made: Bench) -> Tensor:
    """Gradient of the loss with respect to the clean embeddings."""
    batch, model = made.micro[0], made.model.train()
    here = torch.zeros(*batch.inputs["input_ids"].shape, model.encoder.site_width("word"), requires_grad=True)
    loss = nn.functional.cross_entropy(logits(made, here), batch.targets["label"])
    return torch.autograd.grad(loss, here)[0]


def masks_by_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    """R-Drop's passes differ by a mask that only the draw decides, the same for every token.

    True masks follow from the micro-batch, so they change with the cut, and nothing could be compared.
    """
    now, real = [0], Encoder.forward

    def forward(self: Encoder, *given: Any, **options: Any) -> Tensor:
        hidden = real(self, *given, **options)
        return hidden * (1 + now[0] * torch.cos(torch.arange(hidden.shape[-1], dtype=hidden.dtype)))

    def seed(_batch: Batch, draw: int = 0) -> None:
        now[0] = draw

    monkeypatch.setattr(Encoder, "forward", forward)
    monkeypatch.setattr(rdrop, "seed_dropout", seed)
