"""Heads on an encoder's output: the architecture's own, ELECTRA's linear one, AMOS's two-layer ones."""

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn
from transformers import AutoModelForSequenceClassification

from encodery.data.batches import Batch
from encodery.errors import UserError
from encodery.models.encoder import Encoder
from encodery.models.ending import can_end_with_first, ending_with_first
from encodery.models.pretrained import from_config

HeadKind = Literal["stock", "linear", "mlp_tanh", "mlp_gelu", "san"]
StockModel = Any  # a transformers …ForSequenceClassification


def _bert(stock: StockModel, x: Tensor) -> Tensor:
    return stock.classifier(stock.dropout(stock.base_model.pooler(x[:, None])))  # type: ignore[no-any-return]


def _albert(stock: StockModel, x: Tensor) -> Tensor:
    pooled = stock.base_model.pooler_activation(stock.base_model.pooler(x))
    return stock.classifier(stock.dropout(pooled))  # type: ignore[no-any-return]


def _whole(stock: StockModel, x: Tensor) -> Tensor:
    return stock.classifier(x[:, None])  # type: ignore[no-any-return]


def _distilbert(stock: StockModel, x: Tensor) -> Tensor:
    return stock.classifier(stock.dropout(torch.relu(stock.pre_classifier(x))))  # type: ignore[no-any-return]


def _deberta(stock: StockModel, x: Tensor) -> Tensor:
    return stock.classifier(stock.dropout(stock.pooler(x[:, None])))  # type: ignore[no-any-return]


def _modernbert(stock: StockModel, x: Tensor) -> Tensor:
    return stock.classifier(stock.drop(stock.head(x)))  # type: ignore[no-any-return]


# What each architecture's own class does with the pooled vector (first token; ModernBERT may ask for the mean).
STOCK: dict[str, Callable[[StockModel, Tensor], Tensor]] = {
    "bert": _bert,
    "albert": _albert,
    "roberta": _whole,
    "xlm-roberta": _whole,
    "camembert": _whole,
    "electra": _whole,
    "mpnet": _whole,
    "amos": _whole,
    "distilbert": _distilbert,
    "deberta": _deberta,
    "deberta-v2": _deberta,
    "modernbert": _modernbert,
}


class Stock(nn.Module):
    """The head of one of transformers' own classes, so that the saved folder loads there with the same logits."""

    def __init__(self, encoder: Encoder, outputs: int, dropout: float | None, auto: Any):
        super().__init__()
        if encoder.kind not in STOCK:
            raise UserError(f"model.head: no stock head is known for {encoder.kind}; use head: linear")
        config = encoder.net.config
        config.num_labels = outputs
        with torch.device("meta"):  # only the head is wanted: the encoder's weights are there already
            stock = from_config(auto, config)
        prefix = stock.base_model_prefix
        keep_pooler = getattr(stock.base_model, "pooler", None) is not None
        for name, part in [(n, p) for n, p in stock.named_children() if n != prefix]:
            self.add_module(name, part.to_empty(device="cpu"))
        for name, part in self.named_modules():
            if part is not self:
                stock._init_weights(part)
            if dropout is not None and isinstance(part, nn.Dropout) and not name.startswith("pooler"):
                part.p = dropout  # not through the config: DeBERTa and MPNet have no key of their own for it
        drop_pooler(encoder, keep=keep_pooler)
        setattr(stock, prefix, encoder.net)
        if encoder.kind == "modernbert":
            stock._init_weights(stock)  # it gives its classifier a scale of its own
        self.hidden = [stock]  # in a list: the encoder must not be registered twice

    @property
    def stock(self) -> StockModel:
        """The transformers model that this head and the encoder make together."""
        return self.hidden[0]


class StockHead(Stock):
    """The head of the architecture's …ForSequenceClassification."""

    def __init__(self, encoder: Encoder, outputs: int, dropout: float | None):
        super().__init__(encoder, outputs, dropout, AutoModelForSequenceClassification)
        self.logits = STOCK[encoder.kind]
        self.mean = getattr(encoder.net.config, "classifier_pooling", "cls") == "mean"

    def forward(self, hidden: Tensor, batch: Batch) -> Tensor:
        """Logits [n, outputs]."""
        pooled = batch.per_sequence(hidden, "mean") if self.mean else batch.first(hidden)
        return self.logits(self.stock, pooled)


class TokenHead(Stock):
    """The head of …ForTokenClassification or …ForQuestionAnswering: a vector in, its logits out, token by token."""

    def forward(self, hidden: Tensor) -> Tensor:
        """Logits in the layout of the hidden states: [1, T, outputs] or [n, L, outputs]."""
        parts = dict(self.named_children())
        if "head" in parts:  # ModernBERT
            hidden = parts["head"](hidden)
        for name in ("dropout", "drop"):
            hidden = parts[name](hidden) if name in parts else hidden
        last = parts["classifier"] if "classifier" in parts else parts["qa_outputs"]
        logits: Tensor = last(hidden)
        return logits


class LinearHead(nn.Module):
    """ELECTRA's own: dropout and one linear layer, Glorot uniform, bias 0 (F1)."""

    def __init__(self, encoder: Encoder, outputs: int, dropout: float):
        super().__init__()
        drop_pooler(encoder, keep=False)
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(encoder.width, outputs)
        nn.init.xavier_uniform_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, hidden: Tensor, batch: Batch) -> Tensor:
        """Logits [n, outputs]."""
        logits: Tensor = self.out(self.dropout(batch.first(hidden)))
        return logits


class MlpHead(nn.Module):
    """AMOS's: dropout, a layer of the same width, tanh (fairseq) or gelu (its transformers port), dropout, linear."""

    def __init__(self, encoder: Encoder, outputs: int, dropout: float, activation: nn.Module):
        super().__init__()
        drop_pooler(encoder, keep=False)
        self.dropout, self.activation = nn.Dropout(dropout), activation
        self.dense = nn.Linear(encoder.width, encoder.width)
        self.out = nn.Linear(encoder.width, outputs)
        for layer in (self.dense, self.out):
            nn.init.normal_(layer.weight, std=0.02)
            nn.init.zeros_(layer.bias)

    def forward(self, hidden: Tensor, batch: Batch) -> Tensor:
        """Logits [n, outputs]."""
        inner = self.activation(self.dense(self.dropout(batch.first(hidden))))
        logits: Tensor = self.out(self.dropout(inner))
        return logits


def drop_pooler(encoder: Encoder, keep: bool) -> None:
    """Take an unused pooler out, so that no weight is saved or decayed that nothing trains."""
    if not keep and getattr(encoder.net, "pooler", None) is not None:
        encoder.net.pooler = None


def build_head(kind: HeadKind, encoder: Encoder, outputs: int, dropout: float | None) -> nn.Module:
    """A head by name; seed torch before."""
    if kind == "stock":
        return StockHead(encoder, outputs, dropout)
    if kind == "san":
        raise UserError("objective.head: san is for labels of pairs; here use another head")
    rate = 0.1 if dropout is None else dropout
    if kind == "linear":
        return LinearHead(encoder, outputs, rate)
    return MlpHead(encoder, outputs, rate, nn.Tanh() if kind == "mlp_tanh" else nn.GELU())


def ends_with_first(head: nn.Module, encoder: Encoder) -> bool:
    """Whether this head reads nothing but first tokens, and the encoder can stop at them."""
    known = type(head) in (StockHead, LinearHead, MlpHead) and not getattr(head, "mean", False)
    return known and can_end_with_first(encoder)


def answer(head: nn.Module, encoder: Encoder, batch: Batch) -> Tensor:
    """What a head says of each sequence, without the part of the last layer that it does not read."""
    if not ends_with_first(head, encoder):
        whole: Tensor = head(encoder(batch), batch)
        return whole
    with ending_with_first(encoder, batch) as short:
        logits: Tensor = head(encoder(batch), short)
    return logits
