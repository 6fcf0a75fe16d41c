"""What the sequence classes of transformers do with the vector that stands for a text, by architecture."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

StockModel = Any  # a transformers …ForSequenceClassification, or ours that has the same parts


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


# All of them read the first token; ModernBERT may ask for the mean.
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
