"""A few corrupted rows of a pretraining, for a person to look at: original, masked, sampled, label, probability."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from encodery.data import draws
from encodery.data.batches import Batch, Batches, texts_of
from encodery.models.model import Model
from encodery.objectives._masking import mask
from encodery.objectives.electra import written

# Colours of a terminal: what was asked about, what a sample replaced, what the model noticed, what it took for one.
MASKED, REPLACED, FOUND, ALARM, PLAIN = "\033[33m", "\033[31m", "\033[32m", "\033[35m", "\033[0m"


@dataclass(frozen=True)
class Row:
    """One sequence, token by token."""

    original: list[str]
    shown: list[str]
    asked: list[bool]
    read: list[str]  # what the discriminator reads; empty without one
    chances: list[float]  # that a token was replaced

    def lines(self, colour: bool) -> Iterator[str]:
        """Three or four lines: text, what is shown, what is sampled, and how sure the model is."""
        yield "    original  " + " ".join(self.original)
        shown = [_paint(t, MASKED, colour, a) for t, a in zip(self.shown, self.asked, strict=True)]
        yield "    shown     " + " ".join(shown)
        if self.read:
            yield "    sampled   " + " ".join(self._sampled(colour))
            yield "    replaced  " + "  ".join(self._judged(colour))

    def _sampled(self, colour: bool) -> Iterator[str]:
        for before, now, asked in zip(self.original, self.read, self.asked, strict=True):
            text = f"{before}→{now}" if before != now else now
            yield _paint(text, REPLACED if before != now else MASKED, colour, asked)

    def _judged(self, colour: bool) -> Iterator[str]:
        """Every replaced token with the model's probability of that, then every original one that it suspects."""
        for before, now, chance in zip(self.original, self.read, self.chances, strict=True):
            if before != now:
                yield _paint(f"{now} {chance:.0%}", FOUND if chance > 0.5 else REPLACED, colour)
            elif chance > 0.5:
                yield _paint(f"({now} {chance:.0%})", ALARM, colour)


def _paint(text: str, colour: str, wanted: bool, this: bool = True) -> str:
    return f"{colour}{text}{PLAIN}" if wanted and this else text


@torch.no_grad()
def rows(model: Model, batches: Batches, tokenizer: Any, count: int) -> list[Row]:
    """The first rows of the first step, as the objective sees them."""
    table, texts = texts_of(batches.table, batches.rows_at(0))
    noise = draws.key(batches.noise, "noise", 0)
    found = [batches.cutter.batch(table, np.array([row]), batches.task, 0) for row in texts[:count]]
    was_training = model.training
    model.eval()
    try:
        return [_row(model, replace(batch, noise=noise), tokenizer) for batch in found]
    finally:
        model.train(was_training)


def _row(model: Model, batch: Batch, tokenizer: Any) -> Row:
    question = model.question(batch.task)
    masked = mask(batch, question.options.masking, question.known)
    true = batch.inputs["input_ids"]
    asked = torch.zeros(true.numel(), dtype=torch.bool)
    asked[masked.cells] = True
    original, shown = (_words(tokenizer, batch.tokens(ids)) for ids in (true, masked.ids))
    outputs = model.outputs(batch)
    if "sample" not in outputs:
        return Row(original, shown, asked[batch.layout.cells].tolist(), [], [])
    read = _words(tokenizer, batch.tokens(written(batch, masked, outputs["sample"])))
    return Row(original, shown, asked[batch.layout.cells].tolist(), read, outputs["logits"].sigmoid().tolist())


def _words(tokenizer: Any, ids: torch.Tensor) -> list[str]:
    words: list[str] = tokenizer.convert_ids_to_tokens(ids.tolist())
    return words


def describe(model: Model, batches: Batches, tokenizer: Any, count: int) -> Iterator[str]:
    """For `encodery inspect`; in colour at a terminal."""
    yield "corrupted rows of the first step (asked positions yellow, replaced ones red)"
    for number, row in enumerate(rows(model, batches, tokenizer, count), start=1):
        yield f"  row {number}"
        yield from row.lines(sys.stdout.isatty())
