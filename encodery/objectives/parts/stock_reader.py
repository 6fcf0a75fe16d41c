"""A class of transformers with a head as a function of hidden states.

Transformers' Auto classes may load this while encodery's encoder is being imported, so it imports nothing of that.
"""

import copy
import inspect
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutputWithPooling

StockModel = Any  # a transformers model with a head, or ours that has the same parts


class Answer(BaseModelOutputWithPooling):  # type: ignore[misc]
    """Hidden states as an encoder gives them; whatever else a class may ask for is not there."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return None


class StandIn(nn.Module):
    """In place of the encoder: whatever it is given, it answers with the hidden states that it was told."""

    answer: Any = None

    def forward(self, *_: Any, **__: Any) -> Any:
        """What the encoder would have given."""
        return self.answer


class StockReader:
    """A class with a head as a function of hidden states."""

    def __init__(self, stock: StockModel, owner: Any, name: str):
        """The owner's attribute is the encoder, whose pooler belongs to the head (no closure: copies are whole)."""
        self.stock, self.owner, self.name, self.stand_in = stock, owner, name, StandIn()
        self.shell = copy.copy(stock)  # shares all parts of the class but the encoder
        self.shell._modules = {**stock._modules, stock.base_model_prefix: self.stand_in}
        self.takes = frozenset(inspect.signature(stock.forward).parameters)
        config = stock.base_model.config
        self.pad = config.pad_token_id if config.pad_token_id is not None else 0
        self.other = 1 if self.pad == 0 else 0  # any id but that of padding

    def __call__(self, hidden: Tensor, mask: Tensor | None = None, training: bool = False) -> Any:
        """What the class makes of hidden states [n, L, width]; `mask` [n, L] says which of them are real."""
        real = torch.ones(hidden.shape[:2], dtype=torch.bool, device=hidden.device) if mask is None else mask
        ids = torch.where(real, self.other, self.pad)
        given = {"input_ids": ids, "attention_mask": real.long(), "return_dict": True}
        self.shell.training = training
        self.stand_in.answer = Answer(
            last_hidden_state=hidden, pooler_output=pooler_output(getattr(self.owner, self.name), hidden)
        )
        try:
            return self.shell.forward(**{name: value for name, value in given.items() if name in self.takes})
        finally:
            self.stand_in.answer = None

    def vectors(self, hidden: Tensor, training: bool = False) -> Tensor:
        """What the class multiplies with its output matrix, of hidden states [K, width]."""
        matrix = self.stock.get_output_embeddings()  # not the shell's: it looks for the encoder's embeddings too
        if matrix is None:
            raise NoProduct
        handle = matrix.register_forward_pre_hook(_stop)
        try:
            self(hidden[None], training=training)
        except _Reached as reached:
            return reached.vectors[0]
        finally:
            handle.remove()
        raise NoProduct


class NoProduct(Exception):
    """A masked language model that does not end with one product."""


class _Reached(Exception):
    """Ends a pass in front of the output matrix, whose product is made elsewhere, a few rows at a time."""

    def __init__(self, vectors: Tensor):
        super().__init__()
        self.vectors = vectors


def _stop(_module: nn.Module, given: tuple[Tensor, ...]) -> None:
    raise _Reached(given[0])


def pooler_output(net: Any, hidden: Tensor) -> Tensor | None:
    """What the encoder's own pooler makes of hidden states; a bare layer reads the first one, with an activation."""
    pooler = getattr(net, "pooler", None)
    if pooler is None:
        return None
    if not isinstance(pooler, nn.Linear):
        return pooler(hidden)  # type: ignore[no-any-return]
    activation = getattr(net, "pooler_activation", None) or getattr(net, "activation", None)
    first: Tensor = pooler(hidden[:, 0])
    return first if activation is None else activation(first)
