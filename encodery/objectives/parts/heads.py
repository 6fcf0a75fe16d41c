"""Heads on an encoder's output: the architecture's own, ELECTRA's linear one, AMOS's two-layer ones."""

import inspect
from typing import Any, Literal

import torch
from torch import Tensor, nn
from transformers import AutoModelForSequenceClassification

from encodery.config.schema import AnyPooling, Pooling
from encodery.data.batches import Batch
from encodery.data.layouts import Rows, upcast
from encodery.errors import UserError
from encodery.models.encoder import Encoder
from encodery.models.kernels.first_token import can_end_with_first, ending_with_first
from encodery.models.packed_check import resting
from encodery.models.pretrained import from_config
from encodery.objectives.parts.pooled_classifier import PooledForSequenceClassification
from encodery.objectives.parts.stock_heads import first_word, foreign, own_pooling, require_same
from encodery.objectives.parts.stock_reader import StockModel, StockReader

# What architectures call the dropout of their heads; a key that a config need not have is read by some families alone.
DROPOUT_KEYS = ("classifier_dropout", "classifier_dropout_prob", "seq_classif_dropout", "summary_last_dropout")
UNLISTED_KEYS = {"deberta": "cls_dropout", "deberta-v2": "cls_dropout"}

HeadKind = Literal["stock", "linear", "mlp_tanh", "mlp_gelu", "san"]


class Stock(nn.Module):
    """The head of one of transformers' own classes, so that the saved folder loads there with the same logits."""

    def __init__(self, encoder: Encoder, outputs: int, dropout: float | None, auto: Any):
        super().__init__()
        config = encoder.net.config
        config.num_labels = outputs
        if type(config) not in auto._model_mapping:
            raise UserError(f"model.head: transformers has no {auto.__name__[9:]} for {encoder.kind}; use head: linear")
        with torch.device("meta"):  # only the head is wanted: the encoder's weights are there already
            stock = from_config(auto, config)
        prefix = stock.base_model_prefix
        pooler = getattr(stock.base_model, "pooler", None)
        for name, part in [(n, p) for n, p in stock.named_children() if n != prefix]:
            self.add_module(name, part.to_empty(device="cpu"))
        self._take_pooler(encoder, pooler)
        for name, part in self.named_modules():
            if part is not self:
                stock._init_weights(part)
            if dropout is not None and isinstance(part, nn.Dropout) and not name.startswith("pooler"):
                part.p = dropout  # not through the config: MPNet has no key for it, and other tasks share the config
        self.dropout_asked, self.kind = dropout, encoder.kind
        drop_pooler(encoder, keep=pooler is not None)
        setattr(stock, prefix, encoder.net)
        if encoder.kind == "modernbert":
            stock._init_weights(stock)  # it gives its classifier a scale of its own
        self.hidden = [stock]  # in a list: the encoder must not be registered twice
        self.readers = [StockReader(stock, encoder, "net")]

    def _take_pooler(self, encoder: Encoder, pooler: nn.Module | None) -> None:
        """The pooler of a class whose bare encoder has none (Nomic BERT): it is made here and kept with the head."""
        net: Any = encoder.net
        if pooler is not None and getattr(net, "pooler", None) is None:
            net.pooler, encoder.pooler_of_head = pooler.to_empty(device="cpu"), True
        if pooler is not None and encoder.pooler_of_head:
            self.add_module("pooler", net.pooler)

    @property
    def reader(self) -> StockReader:
        """The class as a function of hidden states."""
        return self.readers[0]

    @property
    def stock(self) -> StockModel:
        """The transformers model that this head and the encoder make together."""
        return self.hidden[0]

    @property
    def saved(self) -> StockModel:
        """The model that is written to disk."""
        self.tell_dropout()
        return self.stock

    def tell_dropout(self) -> None:
        """In the config that is saved: whoever goes on training with transformers has the same dropout."""
        config = self.stock.config
        keys = [key for key in DROPOUT_KEYS if hasattr(config, key)] + [UNLISTED_KEYS.get(self.kind)]
        for key in filter(None, keys if self.dropout_asked is not None else []):
            setattr(config, key, self.dropout_asked)


class StockHead(Stock):
    """The head of the architecture's …ForSequenceClassification."""

    def __init__(self, encoder: Encoder, outputs: int, dropout: float | None, pooling: AnyPooling):
        config = encoder.net.config
        if hasattr(config, "classifier_pooling") and pooling != "auto":  # some classes read it
            config.classifier_pooling = "mean" if pooling == "mean" else first_word(config)
        super().__init__(encoder, outputs, dropout, AutoModelForSequenceClassification)
        with resting(self, encoder.net), foreign(self.stock, "model.head"):
            self.own = own_pooling(self.reader, encoder.width)
        self.pooling = self.own if pooling == "auto" else pooling
        if self.pooling == self.own:
            require_same(encoder, self.stock, self._logits_of, "model.head")

    def _logits_of(self, hidden: Tensor, mask: Tensor) -> dict[str, Tensor]:
        if self.own == "own":
            return {"logits": self.reader(hidden, mask).logits}
        rows = Rows(mask)
        vector = rows.first(hidden) if self.own == "first" else rows.per_sequence(hidden, "mean")
        return {"logits": self.reader(vector[:, None]).logits}

    @property
    def saved(self) -> StockModel:
        """The architecture's own class where it reads the same, else ours."""
        self.tell_dropout()
        same = self.own == self.pooling
        return self.stock if same else PooledForSequenceClassification.around(self.stock, self.pooling)

    def forward(self, hidden: Tensor, batch: Batch) -> Tensor:
        """Logits [n, outputs]."""
        if self.pooling == "own":
            logits: Tensor = self.reader(*batch.rows(hidden), training=self.training).logits
            return logits
        vector = pooled(hidden, batch, self.pooling)  # type: ignore[arg-type]
        logits = self.reader(vector[:, None], training=self.training).logits
        return logits


class TokenHead(Stock):
    """The head of …ForTokenClassification or …ForQuestionAnswering: a vector in, its logits out, token by token."""

    def __init__(self, encoder: Encoder, outputs: int, dropout: float | None, auto: Any):
        super().__init__(encoder, outputs, dropout, auto)
        require_same(encoder, self.stock, lambda hidden, _: self._named(self.reader(hidden)), "model.head")

    @staticmethod
    def _named(found: Any) -> dict[str, Tensor]:
        return {name: found[name] for name in ("logits", "start_logits", "end_logits") if name in found}

    def forward(self, hidden: Tensor) -> Tensor:
        """Logits in the layout of the hidden states: [1, T, outputs] or [n, L, outputs]."""
        found = list(self._named(self.reader(hidden, training=self.training)).values())
        return found[0] if len(found) == 1 else torch.stack(found, -1)


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
    optional = "add_pooling_layer" in inspect.signature(type(encoder.net).__init__).parameters
    if not keep and optional and getattr(encoder.net, "pooler", None) is not None:
        encoder.net.pooler = None


def pooled(hidden: Tensor, batch: Batch, pooling: Pooling) -> Tensor:
    """One vector for each sequence [n, width]: the first token's, or the mean or maximum of all its tokens.

    [CLS] and [SEP] count, as in sentence-transformers; padding does not. Sums are made in float32.
    """
    if pooling == "first":
        return batch.first(hidden)
    return batch.per_sequence(upcast(hidden), pooling).to(hidden.dtype)


def build_head(
    kind: HeadKind, encoder: Encoder, outputs: int, dropout: float | None, pooling: AnyPooling = "auto"
) -> nn.Module:
    """A head by name; seed torch before. `auto`: what the class reads by itself, else what the encoder's heads read."""
    if kind == "stock":
        return StockHead(encoder, outputs, dropout, pooling)
    how: Pooling = encoder.pooling if pooling == "auto" else pooling
    if kind == "san":
        raise UserError("tasks.objective.head: san is for classifying pairs; use another head")
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


# The SAN head of MT-DNN (Liu et al. 2018, arXiv 1804.07888): an answer to a pair, thought over several times.
#
# h_0 = Σ softmax(w · y) y over the second text y;  for t = 0 … K − 1 over the first text x:
#     α = softmax(x · W h_t);  c = Σ α x;  p_t = softmax(V [c; h_t; |c − h_t|; c ⊙ h_t]);  h_{t+1} = GRU(c, h_t)
# The answer is log of the mean of p_t, in which turns are dropped while training (never all of an example). It is a
# logarithm of probabilities: cross-entropy on it is exact, temperatures and squared differences mean something else.


FAR = -1e9  # the score of a token that may not be looked at


class SanHead(nn.Module):
    """Several looks at the first text, each with what was read of the second one in mind."""

    def __init__(self, encoder: Encoder, outputs: int, dropout: float, separator: int, turns: int, turn_dropout: float):
        super().__init__()
        if outputs < 2:
            raise UserError(
                "tasks.objective.head: san is for classification; use another head for numbers and rankings"
            )
        width = encoder.width
        self.separator, self.turns, self.turn_dropout = separator, turns, turn_dropout
        self.dropout = nn.Dropout(dropout)
        self.begin, self.look = nn.Linear(width, 1), nn.Linear(width, width)
        self.think, self.out = nn.GRUCell(width, width), nn.Linear(4 * width, outputs)

    def forward(self, hidden: Tensor, batch: Batch) -> Tensor:
        """Log-probabilities [n, outputs]."""
        rows, _ = batch.rows(hidden)
        first, second = self.texts(batch)
        state = mean_by(self.begin(rows)[..., 0], rows, second)
        turns = []
        for _ in range(self.turns):
            seen = mean_by((rows * self.look(state)[:, None]).sum(2), rows, first)
            both = torch.cat([seen, state, (seen - state).abs(), seen * state], 1)
            turns.append(self.out(self.dropout(both)).softmax(1))
            state = self.think(seen, self.dropout(state))
        stacked = torch.stack(turns, 1)
        return (stacked * self.kept(stacked)).mean(1).clamp(min=1e-30).log()

    def texts(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Which tokens are of the first text, and which of the second; of an empty text its separators."""
        ids, real = batch.rows(batch.inputs["input_ids"])
        ends = (ids == self.separator) & real
        passed = ends.long().cumsum(1)
        place = torch.arange(ids.shape[1], device=ids.device)
        first = real & (passed == 0) & (place > 0)
        second = real & (passed > 0) & ~ends
        if int(ends.sum(1).max()) < 2:  # a pair has a separator after each text, even after an empty one
            raise UserError(f"tasks.objective.head: san reads pairs of texts, and {batch.task} has single ones")
        return tuple(torch.where(t.any(1, keepdim=True), t, ends) for t in (first, second))  # type: ignore[return-value]

    def kept(self, turns: Tensor) -> Tensor:
        """Which turns count [n, turns, 1]: while training some are dropped, but one of each example always stays."""
        if not self.training or not self.turn_dropout:
            return torch.ones_like(turns[..., :1])
        drawn, always = torch.rand((2, *turns.shape[:2]), device=turns.device)
        kept = (drawn >= self.turn_dropout).to(turns.dtype)
        kept = kept.scatter(1, always.argmax(1, keepdim=True), 1.0)
        scaled: Tensor = kept[..., None] / (1 - self.turn_dropout)
        return scaled


def mean_by(scores: Tensor, rows: Tensor, mask: Tensor) -> Tensor:
    """The mean of the rows' tokens by the softmax of their scores, over those that may be looked at."""
    shares = scores.masked_fill(~mask, FAR).softmax(1)
    return (shares[..., None] * rows).sum(1)
