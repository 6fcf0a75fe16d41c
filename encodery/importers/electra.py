"""Discriminator and generator as two transformers folders: sizes are read off the tensors, no key is left over."""

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import BertTokenizerFast, ElectraConfig, ElectraForMaskedLM, ElectraForPreTraining

from encodery.core import files
from encodery.errors import RunFailed, UserError
from encodery.models.encoder import quiet
from encodery.models.pretrained import from_folder

HEAD_SIZE = 64  # of every published ELECTRA
KINDS = {"discriminator": ElectraForPreTraining, "generator": ElectraForMaskedLM}
SAMPLE = 12  # tokens of the text on which saved and loaded models are compared


@dataclass(frozen=True)
class Heads:
    """Attention heads, which no tensor tells; None: one per 64 of the width."""

    discriminator: int | None = None
    generator: int | None = None


def write(out: Path, models: Mapping[str, Mapping[str, Tensor]], heads: Heads, vocab: Path | None) -> list[str]:
    """The folders `discriminator/` and `generator/`; what is in them, line by line."""
    if out.exists():
        raise UserError(f"{out} exists; give a new folder")
    if vocab is not None and not vocab.is_file():
        raise UserError(f"{vocab}: there is no such file")
    out.parent.mkdir(parents=True, exist_ok=True)
    said = []
    with quiet(), files.atomic_folder(out) as beside:
        for name, tensors in models.items():
            model = build(name, tensors, getattr(heads, name))
            model.save_pretrained(beside / name)
            _verify(model, beside / name, name)
            _add_tokenizer(beside / name, vocab, model.config.vocab_size)
            said.append(_about(name, model))
    if vocab is None:
        said.append("no vocab.txt was found or given (--vocab): the folders have no tokenizer")
    return said


def build(name: str, tensors: Mapping[str, Tensor], heads: int | None) -> Any:
    """The model with exactly these weights."""
    model = KINDS[name](config_of(name, tensors, heads))
    expected = model.state_dict()
    missing = sorted(set(expected) - set(tensors))
    unexpected = sorted(set(tensors) - set(expected))
    wrong = [key for key in sorted(set(expected) & set(tensors)) if expected[key].shape != tensors[key].shape]
    for what, keys in (("are missing", missing), ("are not part of it", unexpected), ("have another shape", wrong)):
        if keys:
            more = f" and {len(keys) - 5} more" if len(keys) > 5 else ""
            raise UserError(f"{name}: {len(keys)} tensors {what}: {', '.join(keys[:5])}{more}")
    model.load_state_dict(dict(tensors), strict=True)
    return model.eval()


def config_of(name: str, tensors: Mapping[str, Tensor], heads: int | None) -> ElectraConfig:
    """Sizes as the tensors have them: small++ has a generator as wide as its discriminator, small has not."""
    try:
        words = tensors["electra.embeddings.word_embeddings.weight"]
        hidden = tensors["electra.encoder.layer.0.attention.self.query.weight"].shape[0]
        inner = tensors["electra.encoder.layer.0.intermediate.dense.weight"].shape[0]
        positions = tensors["electra.embeddings.position_embeddings.weight"].shape[0]
        types = tensors["electra.embeddings.token_type_embeddings.weight"].shape[0]
    except KeyError as error:
        raise UserError(f"{name}: the tensor {error} is missing; is this an ELECTRA checkpoint?") from None
    layers = {int(match[1]) for key in tensors if (match := re.match(r"electra\.encoder\.layer\.(\d+)\.", key))}
    if heads is None and hidden % HEAD_SIZE:
        option = "--heads" if name == "discriminator" else "--generator-heads"
        raise UserError(f"{name}: its width {hidden} is not a multiple of {HEAD_SIZE}; set the number with {option}")
    if heads is not None and (heads < 1 or hidden % heads):
        raise UserError(f"{name}: {heads} heads do not divide its width {hidden}")
    return ElectraConfig(
        vocab_size=words.shape[0], embedding_size=words.shape[1], hidden_size=hidden, intermediate_size=inner,
        num_hidden_layers=max(layers) + 1, num_attention_heads=heads or hidden // HEAD_SIZE,
        max_position_embeddings=positions, type_vocab_size=types, architectures=[KINDS[name].__name__],
    )  # fmt: skip


def _verify(model: Any, folder: Path, name: str) -> None:
    """The folder gives the same logits as the tensors did."""
    again, info = from_folder(KINDS[name], folder, output_loading_info=True)
    for what in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if info[what]:
            raise RunFailed(f"{name}: the saved folder has {what}: {sorted(map(str, info[what]))[:5]}")
    ids = torch.arange(SAMPLE)[None] % model.config.vocab_size
    with torch.no_grad():
        if not torch.equal(model(ids).logits, again.eval()(ids).logits):
            raise RunFailed(f"{name}: the saved folder gives other logits")


def _add_tokenizer(folder: Path, vocab: Path | None, size: int) -> None:
    """BERT's uncased WordPiece, which all published ELECTRAs use."""
    if vocab is None:
        return
    tokenizer = BertTokenizerFast(vocab=str(vocab), do_lower_case=True)
    if len(tokenizer) > size:
        raise UserError(f"{vocab}: has {len(tokenizer):,} pieces, but the model has {size:,} embeddings")
    tokenizer.save_pretrained(folder)
    shutil.copyfile(vocab, folder / "vocab.txt")


def _about(name: str, model: Any) -> str:
    config = model.config
    return (
        f"{name}: {config.num_hidden_layers} layers of width {config.hidden_size}, {config.num_attention_heads} heads, "
        f"embeddings {config.vocab_size:,} × {config.embedding_size}, {model.num_parameters():,} parameters; "
        "loads without a missing or unexpected key, same logits"
    )
