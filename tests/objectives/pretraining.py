"""Tiny encoders, tables and batches for the tests of pretraining objectives."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from encodery.config.components import find
from encodery.data.batches import Batch
from encodery.models.encoder import Encoder
from encodery.models.model import Model
from tests.toolbox.models import MemoryTable, batcher_for, small_encoder
from tests.toolbox.tokenizers import word_tokenizer
from tests.toolbox.vocabulary import VOCAB

PAD, UNK, CLS, SEP, MASK = range(5)
TOKENS = len(VOCAB)


def text_table(lengths: list[int], seed: int = 0) -> MemoryTable:
    """[CLS] … [SEP] of ordinary words, the second half of type 1."""
    rng = np.random.default_rng(seed)
    ids = [[CLS, *rng.integers(5, TOKENS, n - 2), SEP] for n in lengths]
    return MemoryTable(ids, [(np.arange(n) > n // 2).astype(int) for n in lengths], {})


def trunk(kind: str = "electra", layout: str = "auto", dropout: float = 0.0, **more: Any) -> Encoder:
    """A tiny encoder over the words of the tests' tokenizer."""
    ids = {"pad_token_id": PAD, "bos_token_id": CLS, "eos_token_id": SEP}
    return small_encoder(kind, layout, dropout=dropout, vocab_size=TOKENS, **ids, **more)


def asked(objective: str, options: dict[str, Any] | None = None, **of_trunk: Any) -> Model:
    """A model with one pretraining question called `t`, in evaluation mode."""
    encoder = trunk(**of_trunk)
    torch.manual_seed(0)
    question: Any = find("objectives", objective).model_validate_json(json.dumps(options or {}))
    return Model(encoder, {"t": question.build(encoder, word_tokenizer())}).eval()


def batch_of(model: Model, table: MemoryTable, rows: list[int] | None = None, noise: int = 7) -> Batch:
    """These rows (or all) as one batch of a step."""
    wanted = np.arange(len(table)) if rows is None else np.asarray(rows)
    return replace(batcher_for(model.encoder).batch(table, wanted, "t", 0), noise=noise, step=3)
