"""The heads of transformers' own classes, run on hidden states that are there already.

Nothing is known here of any architecture by name. A class with a head is asked to do its own forward pass, with a
stand-in for its encoder that hands out the given hidden states. What comes out is by construction what transformers
would have computed, and `require_same` compares the two once when a head is made.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from encodery.core.text import first_line
from encodery.errors import UserError
from encodery.models.encoder import Encoder
from encodery.models.packed_check import probe, resting, unpacked
from encodery.objectives.parts.stock_reader import NoProduct, StockModel, StockReader

TOLERANCE = 1e-4  # between a head on given hidden states and the class's own pass, beside the largest value


def own_pooling(reader: StockReader, width: int) -> str:
    """What the class reads of a sequence: `first`, `mean`, or `own` for anything else."""
    drawn = torch.Generator().manual_seed(0)
    hidden = torch.randn(1, 5, width, generator=drawn)
    changed = hidden.clone()
    changed[:, 1:] = torch.randn(1, 4, width, generator=drawn)
    with torch.no_grad():
        logits = reader(hidden).logits
        if torch.equal(reader(changed).logits, logits):
            return "first"
        mean = reader(hidden.mean(1, keepdim=True)).logits
    return "mean" if torch.allclose(mean, logits, rtol=1e-4, atol=1e-5) else "own"


def first_word(config: Any) -> str:
    """What a config calls the first token in `classifier_pooling`: ModernBERT cls, EuroBERT bos."""
    hints = str(inspect.get_annotations(type(config)).get("classifier_pooling", ""))
    return "cls" if "cls" in hints or config.classifier_pooling == "cls" else "bos"


Values = Mapping[str, Tensor]


def require_same(encoder: Encoder, stock: StockModel, ours: Callable[[Tensor, Tensor], Values], key: str) -> None:
    """Refuse a class whose head, run on hidden states, is not what the class computes from texts.

    `ours` makes values of hidden states and a mask; those that the class gives too, by name, must be equal.
    """
    ids, mask = probe(encoder)
    given = {"input_ids": ids, "attention_mask": mask.long()}
    with unpacked(encoder), resting(stock), torch.random.fork_rng(devices=[]), torch.no_grad():
        with foreign(stock, key):
            theirs = stock(**given)
            own = ours(encoder.net(**given).last_hidden_state, mask)
        for name, values in own.items():
            far = difference(values, theirs[name], mask)
            if not far < TOLERANCE:
                raise UserError(
                    f"{key}: {type(stock).__name__} reads more than the last hidden states of its encoder, or has it "
                    f"compute others (its {name} differ by {far:.1e}); use head: linear"
                )


@contextmanager
def foreign(stock: StockModel, key: str) -> Iterator[None]:
    """Whatever a class that was not made for plain text raises here is a reason to refuse it."""
    try:
        yield
    except NoProduct:
        raise UserError(f"{key}: {type(stock).__name__} does not end with a product with one matrix") from None
    except (RuntimeError, TypeError, ValueError, AttributeError, IndexError, AssertionError) as error:
        raise UserError(
            f"{key}: {type(stock).__name__} cannot read tokens and a mask alone ({first_line(error)})"
        ) from None


def difference(a: Tensor, b: Tensor, mask: Tensor) -> float:
    """The largest one, beside the largest value; what is at padding does not count."""
    if a.shape != b.shape:
        return float("inf")
    if a.shape[:2] == mask.shape:
        a, b = a[mask], b[mask]
    return float((a - b).abs().max()) / max(1.0, float(b.abs().max()))
