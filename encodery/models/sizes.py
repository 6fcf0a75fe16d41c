"""Sizes of new encoders, in the words of each architecture's config class."""

from typing import Any

from transformers import AutoConfig

from encodery.errors import UserError
from encodery.schema import SIZES, NewModel

FACTORISED = {"electra": "embedding_size", "albert": "embedding_size"}
DISTILBERT = {
    "num_hidden_layers": "n_layers", "hidden_size": "dim", "num_attention_heads": "n_heads",
    "intermediate_size": "hidden_dim",
}  # fmt: skip


def new_config(new: NewModel, tokenizer: Any) -> Any:
    """A transformers config of the asked architecture and size, for this tokenizer."""
    layers, width, heads, inner, embedding = SIZES[new.size]
    fields: dict[str, Any] = {
        "num_hidden_layers": layers,
        "hidden_size": width,
        "num_attention_heads": heads,
        "intermediate_size": inner,
    }
    if new.kind in FACTORISED:
        fields[FACTORISED[new.kind]] = 128 if new.kind == "albert" else embedding
    if new.kind == "distilbert":
        fields = {DISTILBERT[k]: v for k, v in fields.items()}
    fields |= {"vocab_size": highest_id(tokenizer) + 1, "pad_token_id": tokenizer.pad_token_id}
    if new.kind == "modernbert":  # its special ids default to positions in its own vocabulary
        fields |= {
            "cls_token_id": tokenizer.cls_token_id,
            "sep_token_id": tokenizer.sep_token_id,
            "bos_token_id": tokenizer.cls_token_id,
            "eos_token_id": tokenizer.sep_token_id,
        }
    if new.kind == "deberta-v2":  # as v3: relative positions, shared key
        fields |= {
            "relative_attention": True, "position_buckets": 256, "pos_att_type": ["p2c", "c2p"],
            "share_att_key": True, "norm_rel_ebd": "layer_norm", "position_biased_input": False, "type_vocab_size": 0,
        }  # fmt: skip
    config = AutoConfig.for_model(new.kind)
    unknown = [name for name in new.config if not hasattr(config, name)]
    if unknown:
        raise UserError(f"model.new.config: {type(config).__name__} has no field {', '.join(unknown)}")
    return AutoConfig.for_model(new.kind, **fields | new.config)


def highest_id(tokenizer: Any) -> int:
    """The largest token id; a vocabulary with holes or doubles has fewer entries than that."""
    return int(max(len(tokenizer) - 1, *tokenizer.get_vocab().values()))
