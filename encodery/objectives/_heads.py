"""Heads on an encoder's output: the architecture's own, ELECTRA's linear one, AMOS's two-layer ones."""

from typing import Any, Literal

import torch
from torch import Tensor, nn
from transformers import AutoModelForSequenceClassification

from encodery.data.batches import Batch
from encodery.errors import UserError
from encodery.models.encoder import Encoder
from encodery.models.ending import can_end_with_first, ending_with_first
from encodery.models.pretrained import from_config
from encodery.objectives._numbers import wide
from encodery.objectives._pooled import PooledForSequenceClassification
from encodery.objectives._stock import STOCK, StockModel
from encodery.schema import AnyPooling, Pooling

HeadKind = Literal["stock", "linear", "mlp_tanh", "mlp_gelu", "san"]


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

    @property
    def saved(self) -> StockModel:
        """The model that is written to disk."""
        return self.stock


class StockHead(Stock):
    """The head of the architecture's …ForSequenceClassification."""

    def __init__(self, encoder: Encoder, outputs: int, dropout: float | None, pooling: Pooling):
        if hasattr(encoder.net.config, "classifier_pooling"):  # ModernBERT's own class reads it
            encoder.net.config.classifier_pooling = "mean" if pooling == "mean" else "cls"
        super().__init__(encoder, outputs, dropout, AutoModelForSequenceClassification)
        self.logits, self.pooling = STOCK[encoder.kind], pooling

    @property
    def saved(self) -> StockModel:
        """The architecture's own class where it reads the same, else ours."""
        own = getattr(self.stock.config, "classifier_pooling", "cls").replace("cls", "first")
        return self.stock if own == self.pooling else PooledForSequenceClassification.around(self.stock, self.pooling)

    def forward(self, hidden: Tensor, batch: Batch) -> Tensor:
        """Logits [n, outputs]."""
        return self.logits(self.stock, pooled(hidden, batch, self.pooling))


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

    def __init__(self, encoder: Encoder, outputs: int, dropout: float, pooling: Pooling):
        super().__init__()
        drop_pooler(encoder, keep=False)
        self.dropout, self.pooling = nn.Dropout(dropout), pooling
        self.out = nn.Linear(encoder.width, outputs)
        nn.init.xavier_uniform_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, hidden: Tensor, batch: Batch) -> Tensor:
        """Logits [n, outputs]."""
        logits: Tensor = self.out(self.dropout(pooled(hidden, batch, self.pooling)))
        return logits


class MlpHead(nn.Module):
    """AMOS's: dropout, a layer of the same width, tanh (fairseq) or gelu (its transformers port), dropout, linear."""

    def __init__(self, encoder: Encoder, outputs: int, dropout: float, pooling: Pooling, activation: nn.Module):
        super().__init__()
        drop_pooler(encoder, keep=False)
        self.pooling = pooling
        self.dropout, self.activation = nn.Dropout(dropout), activation
        self.dense = nn.Linear(encoder.width, encoder.width)
        self.out = nn.Linear(encoder.width, outputs)
        for layer in (self.dense, self.out):
            nn.init.normal_(layer.weight, std=0.02)
            nn.init.zeros_(layer.bias)

    def forward(self, hidden: Tensor, batch: Batch) -> Tensor:
        """Logits [n, outputs]."""
        inner = self.activation(self.dense(self.dropout(pooled(hidden, batch, self.pooling))))
        logits: Tensor = self.out(self.dropout(inner))
        return logits


def drop_pooler(encoder: Encoder, keep: bool) -> None:
    """Take an unused pooler out, so that no weight is saved or decayed that nothing trains."""
    if not keep and getattr(encoder.net, "pooler", None) is not None:
        encoder.net.pooler = None


def pooled(hidden: Tensor, batch: Batch, pooling: Pooling) -> Tensor:
    """One vector for each sequence [n, width]: the first token's, or the mean or maximum of all its tokens.

    [CLS] and [SEP] count, as in sentence-transformers; padding does not. Sums are made in float32.
    """
    if pooling == "first":
        return batch.first(hidden)
    return batch.per_sequence(wide(hidden), pooling).to(hidden.dtype)


def build_head(
    kind: HeadKind, encoder: Encoder, outputs: int, dropout: float | None, pooling: AnyPooling = "auto"
) -> nn.Module:
    """A head by name; seed torch before. `auto` reads what the encoder's heads read by default."""
    how: Pooling = encoder.pooling if pooling == "auto" else pooling
    if kind == "stock":
        return StockHead(encoder, outputs, dropout, how)
    if kind == "san":
        raise UserError("objective.head: san is for labels of pairs; here use another head")
    rate = 0.1 if dropout is None else dropout
    if kind == "linear":
        return LinearHead(encoder, outputs, rate, how)
    return MlpHead(encoder, outputs, rate, how, nn.Tanh() if kind == "mlp_tanh" else nn.GELU())


def ends_with_first(head: nn.Module, encoder: Encoder) -> bool:
    """Whether this head reads nothing but first tokens, and the encoder can stop at them."""
    known = type(head) in (StockHead, LinearHead, MlpHead)
    return known and getattr(head, "pooling", None) == "first" and can_end_with_first(encoder)


def answer(head: nn.Module, encoder: Encoder, batch: Batch) -> Tensor:
    """What a head says of each sequence, without the part of the last layer that it does not read."""
    if not ends_with_first(head, encoder):
        whole: Tensor = head(encoder(batch), batch)
        return whole
    with ending_with_first(encoder, batch) as short:
        logits: Tensor = head(encoder(batch), short)
    return logits
