"""The head of a masked language model: the architecture's own class in transformers, its matrix the word embeddings."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu
from transformers import AutoModelForMaskedLM

from encodery.errors import UserError
from encodery.models.encoder import Encoder, quiet
from encodery.models.pretrained import from_config, from_folder
from encodery.objectives._heads import drop_pooler

Stock = Any  # a transformers …ForMaskedLM


def _bert(stock: Stock, x: Tensor) -> Tensor:
    return stock.cls.predictions.transform(x)  # type: ignore[no-any-return]


def _roberta(stock: Stock, x: Tensor) -> Tensor:
    return stock.lm_head.layer_norm(gelu(stock.lm_head.dense(x)))  # type: ignore[no-any-return]


def _electra(stock: Stock, x: Tensor) -> Tensor:
    return stock.generator_predictions(x)  # type: ignore[no-any-return]


def _modernbert(stock: Stock, x: Tensor) -> Tensor:
    return stock.head(x)  # type: ignore[no-any-return]


def _distilbert(stock: Stock, x: Tensor) -> Tensor:
    return stock.vocab_layer_norm(stock.activation(stock.vocab_transform(x)))  # type: ignore[no-any-return]


def _albert(stock: Stock, x: Tensor) -> Tensor:
    head = stock.predictions
    return head.LayerNorm(head.activation(head.dense(x)))  # type: ignore[no-any-return]


# What each architecture's own class does before the product with the word embeddings.
STOCK: dict[str, Callable[[Stock, Tensor], Tensor]] = {
    "bert": _bert,
    "roberta": _roberta,
    "xlm-roberta": _roberta,
    "camembert": _roberta,
    "mpnet": _roberta,
    "electra": _electra,
    "amos": _electra,
    "modernbert": _modernbert,
    "distilbert": _distilbert,
    "albert": _albert,
    "deberta-v2": _bert,
}


class VocabularyHead(nn.Module):
    """Vectors for the product with the word embeddings, and the bias that is added to it."""

    def __init__(self, encoder: Encoder):
        super().__init__()
        if encoder.kind not in STOCK:
            raise UserError(
                f"objective: no masked language model of {encoder.kind} is known; known: {', '.join(STOCK)}"
            )
        drop_pooler(encoder, keep=False)
        with torch.device("meta"):  # only the head is wanted: the encoder's weights are there already
            stock = from_config(AutoModelForMaskedLM, encoder.net.config)
        prefix = stock.base_model_prefix
        for name, part in [(n, p) for n, p in stock.named_children() if n != prefix]:
            self.add_module(name, part.to_empty(device="cpu"))
        for part in self.modules():
            if part is not self:
                stock._init_weights(part)
        for parameter in self.parameters(recurse=True):
            if parameter.ndim == 1 and len(parameter) == encoder.net.config.vocab_size:
                nn.init.zeros_(parameter)
        encoder.begin(self)
        setattr(stock, prefix, encoder.net)
        stock.tie_weights()
        self.hidden = [stock]  # in a list: the encoder must not be registered twice
        self.vectors_of = STOCK[encoder.kind]

    @property
    def stock(self) -> Stock:
        """The transformers model that this head and the encoder make together."""
        return self.hidden[0]

    @property
    def saved(self) -> Stock:
        """The model that is written to disk."""
        return self.stock

    def forward(self, hidden: Tensor) -> Tensor:
        """Vectors [K, e]; only of the positions that are asked about."""
        return self.vectors_of(self.stock, hidden)

    @property
    def weight(self) -> Tensor:
        """The matrix [V, e]: the word embeddings."""
        weight: Tensor = self.stock.get_output_embeddings().weight
        return weight

    @property
    def bias(self) -> Tensor:
        """[V]; zero where the architecture has none."""
        bias: Tensor | None = self.stock.get_output_embeddings().bias
        return self.weight.new_zeros(len(self.weight)) if bias is None else bias

    def load(self, folder: Path) -> frozenset[str]:
        """Take over the head of a saved masked language model; its tensors' names, none where the folder has none."""
        with quiet():
            other, report = from_folder(
                AutoModelForMaskedLM, folder, dtype=torch.float32, use_safetensors=True, output_loading_info=True
            )
        prefix = other.base_model_prefix
        if any(not name.startswith(f"{prefix}.") for name in report["missing_keys"]):
            return frozenset()
        own = {n: p for n, p in other.state_dict().items() if not n.startswith(f"{prefix}.")}
        self.load_state_dict(own)
        return frozenset(own)
