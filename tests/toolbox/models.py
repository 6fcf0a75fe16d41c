"""Tiny encoders with a head, token tables in memory, and what tests compare: gradients."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig, AutoModel

from encodery.data.batches import Batches, MicroBatcher
from encodery.data.token_table import TokenTable
from encodery.models.encoder import Encoder
from encodery.models.model import Model
from encodery.objectives.classification import Classification

# Fields of a transformers config that make an encoder tiny, in the words of each architecture.
SMALL = {
    "vocab_size": 61, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
    "max_position_embeddings": 64, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2,
}  # fmt: skip
OTHER_FIELDS: dict[str, dict[str, Any]] = {
    "albert": {"embedding_size": 8},
    "electra": {"embedding_size": 8},
    "distilbert": {"vocab_size": 61, "dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32, "pad_token_id": 1},
    "deberta-v2": {
        "relative_attention": True, "position_buckets": 8, "pos_att_type": ["p2c", "c2p"], "share_att_key": True,
        "norm_rel_ebd": "layer_norm", "position_biased_input": False, "type_vocab_size": 0,
    },
    "xmod": {"default_language": "en_XX"},
    "modernbert": {"local_attention": 6, "global_attn_every_n_layers": 2, "cls_token_id": 0, "sep_token_id": 2},
}  # fmt: skip
KINDS = [
    "bert", "roberta", "xlm-roberta", "camembert", "electra", "albert", "distilbert", "modernbert", "deberta-v2",
    "mpnet", "amos",
]  # fmt: skip
DROPOUTS = (
    "hidden_dropout_prob", "attention_probs_dropout_prob", "dropout", "attention_dropout", "mlp_dropout",
    "embedding_dropout", "classifier_dropout", "classifier_dropout_prob", "seq_classif_dropout",
)  # fmt: skip


def small_config(kind: str, dropout: float = 0.0, **more: Any) -> Any:
    """A transformers config of a tiny encoder."""
    fields = {} if kind == "distilbert" else dict(SMALL)
    found = AutoConfig.for_model(kind, **{**fields, **OTHER_FIELDS.get(kind, {}), **more})
    for name in DROPOUTS:
        if hasattr(found, name):
            setattr(found, name, dropout)
    return found


def small_encoder(
    kind: str = "bert", layout: str = "auto", seed: int = 0, dropout: float = 0.0, **more: Any
) -> Encoder:
    """A tiny encoder whose weights (biases and norms too) are all random, so that nothing is hidden by a zero."""
    torch.manual_seed(seed)
    net = AutoModel.from_config(small_config(kind, dropout, **more))
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            scale = 0.2 if parameter.ndim > 1 else 0.05
            parameter.copy_(torch.randn_like(parameter) * scale + ("norm" in name.lower() and "weight" in name))
    return Encoder(net, layout)


class MemoryTable(TokenTable):
    """A token table that lies in memory."""

    def __init__(self, ids: Sequence[Sequence[int]], types: Sequence[Sequence[int]], targets: dict[str, Any]):
        object.__setattr__(self, "folder", None)
        starts = np.concatenate([[0], np.cumsum([len(row) for row in ids])]).astype(np.int64)
        self.__dict__.update(
            ids=np.concatenate([np.asarray(row, dtype=np.int32) for row in ids]),
            types=np.concatenate([np.asarray(row, dtype=np.uint8) for row in types]),
            starts=starts,
            targets={name: np.asarray(values) for name, values in targets.items()},
            token_targets={},
            marks={},
            group=None,
            example=np.arange(len(ids)),
            example_ids=[f"row-{i}" for i in range(len(ids))],
        )


def random_table(lengths: Sequence[int], classes: int = 3, seed: int = 0, form: str = "single") -> MemoryTable:
    """Sequences of the given lengths with random tokens, types and labels."""
    rng = np.random.default_rng(seed)
    ids = [[0, *rng.integers(3, 61, n - 1)] for n in lengths]
    types = [(np.arange(n) > n // 2).astype(int) for n in lengths]
    labels: Any = rng.integers(0, classes, len(lengths))
    if form == "regression":
        labels = rng.normal(size=len(lengths)).astype(np.float32)
    elif form == "multilabel":
        labels = rng.integers(0, 2, (len(lengths), classes)).astype(np.float32)
    targets: dict[str, Any] = {"label": labels}
    if form == "span":
        starts = [int(rng.integers(n // 2 + 1, n)) if n > 3 and i % 3 else 0 for i, n in enumerate(lengths)]
        ends = [int(rng.integers(start, n)) if start else 0 for start, n in zip(starts, lengths, strict=True)]
        targets = {"start": starts, "end": ends, "impossible": [float(not start) for start in starts]}
    table = MemoryTable(ids, types, targets)
    tokens = int(sum(lengths))
    if form == "tagging":  # a third of the pieces is not asked for
        tags = np.where(rng.random(tokens) < 0.3, -100, rng.integers(0, classes, tokens))
        table.__dict__.update(targets={}, token_targets={"tag": tags})
    elif form == "span":
        allowed = np.concatenate([(np.arange(n) == 0) | (np.arange(n) > n // 2) for n in lengths]).astype(int)
        table.__dict__.update(token_targets={"allowed": allowed})
    elif form in ("ranking", "pooled"):  # two or three sequences make an example
        group = np.arange(len(lengths)) // 2
        group[-1] = group[-2]
        first = np.concatenate([[True], group[1:] != group[:-1]])
        targets = {"right": first.astype(int)} if form == "ranking" else {"label": labels[group]}
        table.__dict__.update(targets=targets, group=group)
    return table


def small_model(encoder: Encoder, seed: int = 0, **options: Any) -> Model:
    """The encoder with a classifier on top; one task called `t`."""
    form = options.get("form", "single")
    options.setdefault("labels", [] if form == "regression" else ["a", "b", "c"])
    torch.manual_seed(seed)
    return Model(encoder, {"t": Classification(**options).build(encoder, None)})


def batcher_for(
    encoder: Encoder, layout: str | None = None, budget: int = 1 << 30, most: int | None = None
) -> MicroBatcher:
    """A batcher in the encoder's layout."""
    return MicroBatcher(layout or encoder.layout, encoder.form, budget, most)  # type: ignore[arg-type]


def stream(table: TokenTable, batcher: MicroBatcher, batch_size: int = 32, seed: int = 1) -> Batches:
    """All rows of a table as a training stream."""
    return Batches("t", table, np.arange(len(table)), batch_size, seed, seed, batcher)


def gradients(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Copies of all gradients by name."""
    return {n: p.grad.detach().clone() for n, p in model.named_parameters() if p.grad is not None}


def furthest(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> float:
    """The largest difference of any number in two sets of tensors, as a share of max(1, largest number)."""
    assert a.keys() == b.keys()
    largest = max(float(x.abs().max()) for x in a.values())
    return max(float((a[name] - b[name]).abs().max()) for name in a) / max(1.0, largest)
