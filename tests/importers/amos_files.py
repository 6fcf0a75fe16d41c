"""Files as Microsoft's AMOS has them: tensors of both layouts, a sentencepiece model, a dictionary."""

import argparse
import json
import struct
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

SIZES = {"layers": 2, "width": 16, "heads": 2, "inner": 24, "positions": 20, "bins": 8}
WORDS = [
    "▁the", "▁dog", "s", "▁.", "▁,", ",", ".", "...", "'", "▁'s", "!", "▁", "a", "b", "▁a", "-", "▁e", "mail", "▁(",
    ")", "t", "▁don", "1", "000", "▁1", '"', '▁"', "d", "o", "g", "n", "?!", "e", "▁It", "▁U", "S", "▁%%",
]  # fmt: skip
SCORES = {word: -1.0 - i / 7 for i, word in enumerate(WORDS)} | {"▁%%": -30.0, "%": -2.0, "%%": -3.0}


def varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def field(number: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def piece(text: str, score: float, kind: int) -> bytes:
    return field(1, text.encode()) + varint(2 << 3 | 5) + struct.pack("<f", score) + field(3, kind)


def write_tokenizer(folder: Path, kind: int = 1, scores: dict[str, float] = SCORES, lost: str = "") -> list[str]:
    """sp.model and dict.txt; all tokens in the order of their ids, the mask token last."""
    pieces = [piece("<unk>", 0.0, 2), piece("<s>", 0.0, 3), *(piece(t, s, 1) for t, s in scores.items())]
    model = b"".join(field(1, one) for one in pieces) + field(2, field(3, kind)) + field(3, field(1, b"identity"))
    (folder / "sp.model").write_bytes(model)
    listed = [word for word in reversed(scores) if word != lost]  # not in the order of the model
    (folder / "dict.txt").write_text("".join(f"{word} {9}\n" for word in listed), encoding="utf-8")
    return ["<s>", "<pad>", "</s>", "<unk>", *listed, "<mask>"]


def encoder(prefix: str, layers: int, names: dict[str, str], rows: int) -> dict[str, Tensor]:
    """Random weights under the names of one layout."""
    h, inner = SIZES["width"], SIZES["inner"]
    shapes = {
        "words": (rows, h), "positions": (SIZES["positions"], h), "norm.weight": (h,), "norm.bias": (h,),
        "bias": (SIZES["bins"], SIZES["heads"]),
    }  # fmt: skip
    block = {
        "in.weight": (3 * h, h), "in.bias": (3 * h,), "out.weight": (h, h), "out.bias": (h,), "norm1.weight": (h,),
        "norm1.bias": (h,), "up.weight": (inner, h), "up.bias": (inner,), "down.weight": (h, inner),
        "down.bias": (h,), "norm2.weight": (h,), "norm2.bias": (h,),
    }  # fmt: skip
    flat = {spelled(names, name): shape for name, shape in shapes.items()}
    for n in range(layers):
        flat |= {names["block"].format(n) + spelled(names, name): shape for name, shape in block.items()}
    return {prefix + name: torch.randn(shape) * 0.3 for name, shape in flat.items()}


def spelled(names: dict[str, str], name: str) -> str:
    first, _, last = name.partition(".")
    return names[first] + (f".{last}" if last else "")


FAIRSEQ = {
    "words": "embed_tokens.weight", "positions": "embed_positions.weight", "norm": "emb_layer_norm",
    "bias": "relative_attention_bias.weight", "block": "layers.{}.", "in": "self_attn.in_proj",
    "out": "self_attn.out_proj", "norm1": "self_attn_layer_norm", "up": "fc1", "down": "fc2",
    "norm2": "final_layer_norm",
}  # fmt: skip
HUGGINGFACE = {
    "words": "embeddings.word_embeddings.weight", "positions": "embeddings.position_embeddings.weight",
    "norm": "embeddings.LayerNorm", "bias": "relative_attention_bias.weight", "block": "encoder.layer.{}.",
    "in": "attention.self_attn.in_proj", "out": "attention.self_attn.out_proj", "norm1": "attention.LayerNorm",
    "up": "intermediate.dense", "down": "output.dense", "norm2": "output.LayerNorm",
}  # fmt: skip


def write_fairseq(folder: Path, rows: int) -> tuple[Path, dict[str, Tensor]]:
    """model.pt with the settings that fairseq stores, encoder, head and generator."""
    torch.manual_seed(0)
    h = SIZES["width"]
    state = encoder("encoder.sentence_encoder.", SIZES["layers"], FAIRSEQ, rows)
    state |= {
        "encoder.binary_head.out_proj.weight": torch.randn(1, h),
        "encoder.binary_head.out_proj.bias": torch.randn(1),
    }
    state |= encoder("auxiliary.sentence_encoder.", 3, FAIRSEQ, rows)
    shared = state["encoder.sentence_encoder.embed_tokens.weight"]
    state |= {"auxiliary.sentence_encoder.embed_tokens.weight": shared, "auxiliary.lm_head.weight": shared}
    for name, shape in {
        "dense.weight": (h, h), "dense.bias": (h,), "layer_norm.weight": (h,), "layer_norm.bias": (h,), "bias": (rows,),
        "layer_mixture.weight": (1, h),
    }.items():  # fmt: skip
        state[f"auxiliary.lm_head.{name}"] = torch.randn(shape)
    args = argparse.Namespace(arch="amos_base", max_rel_pos=12, rel_pos_bins=SIZES["bins"])
    torch.save({"args": args, "model": state, "optimizer_history": [{"num_updates": 3}]}, folder / "model.pt")
    return folder / "model.pt", state


def write_huggingface(folder: Path, rows: int, head: bool = False) -> tuple[Path, dict[str, Tensor]]:
    """pytorch_model.bin and config.json."""
    torch.manual_seed(1)
    state: dict[str, Any] = encoder("amos.", SIZES["layers"], HUGGINGFACE, rows)
    if head:
        state |= {
            "binary_head.out_proj.weight": torch.randn(1, SIZES["width"]),
            "binary_head.out_proj.bias": torch.randn(1),
        }
    torch.save(state, folder / "pytorch_model.bin")
    settings = {"model_type": "amos", "max_rel_pos": 12, "rel_pos_bins": SIZES["bins"], "layer_norm_eps": 1e-5}
    (folder / "config.json").write_text(json.dumps(settings))
    return folder, state
