"""Microsoft's AMOS base++: fairseq's file, or the folder of their transformers port, with its tokenizer.

Their projections are fused (rows of the query, the key and the value under each other), and their head says 1 for an
original token, where everything here says 1 for a replaced one: so that head is negated, and only here. The large++
model that their table of SQuAD mentions was never released.
"""

import argparse
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from encodery.core import files
from encodery.errors import RunFailed, UserError
from encodery.importers.amos_tokenizer import Built, build
from encodery.importers.electra import Heads
from encodery.importers.pytorch_bin import load_weights_only
from encodery.models.amos import AmosForMaskedLM, AmosForPreTraining, AmosModel
from encodery.models.amos_config import AmosConfig
from encodery.models.encoder import quiet
from encodery.models.pretrained import from_folder
from encodery.objectives.amos import MIXTURE

FAIRSEQ, HUGGINGFACE = "encoder.sentence_encoder.", "amos."
HEAD = "discriminator_predictions.dense_prediction."
WEIGHTS = ("pytorch_model.bin", "model.safetensors")  # of a folder
TOKENIZER = ("sp.model", "dict.txt")
LOW = -1e4  # bias of rows that the generator must not guess
SAMPLE = 12  # tokens of the text on which saved and loaded models are compared

# Their names inside the encoder → ours; `in_proj` is cut in three.
RENAMES = [
    (r"embed_tokens\.weight", "embeddings.word_embeddings.weight"),
    (r"embed_positions\.weight", "embeddings.position_embeddings.weight"),
    (r"emb_layer_norm\.(\w+)", r"embeddings.LayerNorm.\1"),
    (r"(embeddings\.(?:word_embeddings|position_embeddings|LayerNorm)\.\w+)", r"\1"),
    (r"(relative_attention_bias\.weight)", r"\1"),
    *(
        (rf"(?:encoder\.)?layers?\.(\d+)\.(?:{theirs})(\w+)", rf"encoder.layer.\1.{ours}.\2")
        for theirs, ours in (
            (r"(?:attention\.)?self_attn\.in_proj[._]", "attention.self.IN"),
            (r"(?:attention\.)?self_attn\.out_proj\.", "attention.output.dense"),
            (r"self_attn_layer_norm\.|attention\.LayerNorm\.", "attention.output.LayerNorm"),
            (r"fc1\.|intermediate\.dense\.", "intermediate.dense"),
            (r"fc2\.|output\.dense\.", "output.dense"),
            (r"final_layer_norm\.|output\.LayerNorm\.", "output.LayerNorm"),
        )
    ),
]


@dataclass(frozen=True)
class AmosFile:
    """What a file holds, under our names."""

    body: dict[str, Tensor]
    head: dict[str, Tensor]  # may be empty
    generator: dict[str, Tensor]  # may be empty
    mixture: Tensor | None
    settings: dict[str, Any]  # of the config that lies beside it or in it


def convert(checkpoint: Path, out: Path, heads: Heads, vocab: Path | None) -> list[str]:
    """The file or folder → DIR/discriminator, and DIR/generator where its weights are there; what was made."""
    if out.exists():
        raise UserError(f"{out} exists; give a new folder")
    checkpoint_parts = read(checkpoint)
    config = config_of(checkpoint_parts, heads.discriminator)
    folder = vocab or (checkpoint if checkpoint.is_dir() else checkpoint.parent)
    model, dictionary = (tokenizer_file(folder, name) for name in TOKENIZER)
    tokenizer = build(model, dictionary, config.vocab_size)
    out.parent.mkdir(parents=True, exist_ok=True)
    with files.atomic_folder(out) as beside:
        said = [write(beside / "discriminator", checkpoint_parts.body, checkpoint_parts.head, config, tokenizer)]
        if checkpoint_parts.generator:
            said.append(write_generator(beside / "generator", checkpoint_parts, config, tokenizer))
    if not checkpoint_parts.head:
        said.append("there is no head for replaced tokens in these files: the folder holds the encoder alone")
    return [*said, *tokenizer.notes]


def tokenizer_file(folder: Path, name: str) -> Path:
    """sp.model or dict.txt, beside the weights or where --vocab says."""
    if not (folder / name).is_file():
        raise UserError(f"{folder / name}: no such file; name the folder of sp.model and dict.txt with --vocab")
    return folder / name


def read(path: Path) -> AmosFile:
    """All tensors of a checkpoint; one that has no place is an error."""
    file = next((path / name for name in WEIGHTS if (path / name).is_file()), path) if path.is_dir() else path
    tensors, settings = load(file)
    beside = file.parent / "config.json"
    if not settings and beside.is_file():
        settings = json.loads(beside.read_text(encoding="utf-8"))
    prefix = next((p for p in (FAIRSEQ, HUGGINGFACE) if any(key.startswith(p) for key in tensors)), None)
    if prefix is None:
        raise UserError(f"{path}: no tensor begins with {FAIRSEQ} or {HUGGINGFACE}: is this an AMOS checkpoint?")
    body = renamed(path, part(tensors, prefix))
    rest = {key: value for key, value in tensors.items() if not key.startswith((prefix, "auxiliary."))}
    generator, mixture = auxiliary(path, part(tensors, "auxiliary."), body)
    return AmosFile(body, detector(path, rest, body), generator, mixture, settings)


def load(file: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and settings; of anything but tensors only fairseq's settings are let in."""
    if file.suffix == ".safetensors":
        return {key: value.float() for key, value in load_file(file).items()}, {}
    if not file.is_file():
        raise UserError(f"{file}: there is no such file, and no folder with {' or '.join(WEIGHTS)}")
    stored = load_weights_only(file, argparse.Namespace)
    settings: dict[str, Any] = {}
    if isinstance(stored, dict) and isinstance(stored.get("model"), dict):
        settings = dict(vars(stored["args"])) if isinstance(stored.get("args"), argparse.Namespace) else {}
        stored = stored["model"]
    if not isinstance(stored, dict) or not all(isinstance(value, Tensor) for value in stored.values()):
        raise UserError(f"{file}: is neither a state dict nor a checkpoint of fairseq")
    return {key: value.float() for key, value in stored.items()}, settings


def part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Those with a prefix, without it."""
    return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}


def renamed(path: Path, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """An encoder under our names."""
    made: dict[str, Tensor] = {}
    for key, value in tensors.items():
        if not key.endswith("position_ids"):
            made |= dict(_cut(_rename(path, key), value))
    return made


def _rename(path: Path, key: str) -> str:
    for theirs, ours in RENAMES:
        if re.fullmatch(theirs, key):
            return re.sub(theirs, ours, key)
    raise UserError(f"{path}: the tensor {key} is not part of AMOS's encoder")


def _cut(name: str, value: Tensor) -> Iterator[tuple[str, Tensor]]:
    """A fused projection in its three parts; anything else as it is."""
    if ".IN." not in name:
        yield name, value.contiguous()
        return
    for which, rows in zip(("query", "key", "value"), value.chunk(3), strict=True):
        yield name.replace("IN", which), rows.contiguous()


def detector(path: Path, rest: Mapping[str, Tensor], body: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The head, negated: theirs says how sure it is that a token is original."""
    width = body["embeddings.word_embeddings.weight"].shape[1]
    head = {key: value for key, value in rest.items() if re.search(r"\bout_proj\.(weight|bias)$", key)}
    head = {key: value for key, value in head.items() if value.shape in ((1, width), (1,))}
    left = sorted(key for key in rest if key not in head and not key.startswith("classification_heads."))
    if left or len(head) not in (0, 2):
        raise UserError(f"{path}: {', '.join((left or sorted(head))[:5])}: not a part of AMOS that is known here")
    return {HEAD + key.rpartition(".")[2]: -value for key, value in head.items()}


def auxiliary(
    path: Path, tensors: Mapping[str, Tensor], body: Mapping[str, Tensor]
) -> tuple[dict[str, Tensor], Tensor | None]:
    """The generator and the vector that weighs its readouts, where a file of pretraining has them."""
    if not tensors:
        return {}, None
    names = {
        "lm_head.dense.weight": "generator_predictions.dense.weight",
        "lm_head.dense.bias": "generator_predictions.dense.bias",
        "lm_head.layer_norm.weight": "generator_predictions.LayerNorm.weight",
        "lm_head.layer_norm.bias": "generator_predictions.LayerNorm.bias",
        "lm_head.bias": "generator_lm_head.bias",
    }
    made = {f"amos.{key}": value for key, value in renamed(path, part(tensors, "sentence_encoder.")).items()}
    made["amos.embeddings.word_embeddings.weight"] = body["embeddings.word_embeddings.weight"]
    made |= {ours: tensors[theirs] for theirs, ours in names.items() if theirs in tensors}
    known = {*names, "lm_head.weight", "lm_head.layer_mixture.weight"}
    if left := sorted(key for key in tensors if key not in known and not key.startswith("sentence_encoder.")):
        raise UserError(f"{path}: {', '.join(left[:5])}: not a part of AMOS's generator that is known here")
    mixture = tensors.get("lm_head.layer_mixture.weight")
    return made, None if mixture is None else mixture.flatten()


def config_of(parts: AmosFile, heads: int | None) -> AmosConfig:
    """Sizes as the tensors have them; what no tensor tells comes from their config, or is as published."""
    body = parts.body
    try:
        words, positions = (body[f"embeddings.{name}_embeddings.weight"].shape for name in ("word", "position"))
        bins, count = body["relative_attention_bias.weight"].shape
        inner = body["encoder.layer.0.intermediate.dense.weight"].shape[0]
    except KeyError as error:
        raise UserError(f"the tensor {error} is missing; is this an AMOS checkpoint?") from None
    if heads not in (None, count):
        raise UserError(f"--heads {heads}: the relative position bias has {count}")
    layers = {int(match[1]) for key in body if (match := re.match(r"encoder\.layer\.(\d+)\.", key))}
    return AmosConfig(
        vocab_size=words[0], hidden_size=words[1], num_hidden_layers=max(layers) + 1, num_attention_heads=count,
        intermediate_size=inner, max_position_embeddings=positions[0], rel_pos_bins=bins,
        max_rel_pos=int(parts.settings.get("max_rel_pos") or 128),
        layer_norm_eps=float(parts.settings.get("layer_norm_eps") or 1e-5),
    )  # fmt: skip


def write(folder: Path, body: Mapping[str, Tensor], head: Mapping[str, Tensor], config: Any, tokenizer: Built) -> str:
    """The encoder and its head as a transformers folder; what it is."""
    kind = AmosForPreTraining if head else AmosModel
    state = {(f"amos.{key}" if head else key): value for key, value in body.items()} | dict(head)
    model = filled(kind, config, state, tokenizer.copies)
    save(model, folder, tokenizer)
    return about("discriminator", model)


def write_generator(folder: Path, parts: AmosFile, config: Any, tokenizer: Built) -> str:
    """The generator, and its mixture beside it."""
    layers = {int(match[1]) for key in parts.generator if (match := re.search(r"encoder\.layer\.(\d+)\.", key))}
    smaller = AmosConfig(**{**config.to_diff_dict(), "num_hidden_layers": max(layers) + 1})
    state = parts.generator | {"generator_lm_head.weight": parts.generator["amos.embeddings.word_embeddings.weight"]}
    model = filled(AmosForMaskedLM, smaller, state, tokenizer.copies)
    with torch.no_grad():
        model.generator_lm_head.bias[smaller.vocab_size :] = LOW
    save(model, folder, tokenizer)
    if parts.mixture is not None:
        save_file({"mixture": parts.mixture.contiguous()}, folder / MIXTURE)
    return about("generator", model)


def filled(kind: Any, config: Any, state: Mapping[str, Tensor], copies: list[int]) -> Any:
    """The model with these weights, and a row of its words once more for each copy."""
    rows = config.vocab_size
    by_word = ("word_embeddings.weight", "generator_lm_head.weight", "generator_lm_head.bias")
    wide = {k: torch.cat([v, v[copies]]) if k.endswith(by_word) else v for k, v in state.items()}
    model = kind(AmosConfig(**{**config.to_diff_dict(), "vocab_size": rows + len(copies)}))
    expected = model.state_dict()
    for what, keys in (
        ("are missing", sorted(set(expected) - set(wide))),
        ("are not part of it", sorted(set(wide) - set(expected))),
        ("have another shape", sorted(k for k in set(expected) & set(wide) if expected[k].shape != wide[k].shape)),
    ):
        if keys:
            raise UserError(f"{kind.__name__}: {len(keys)} tensors {what}: {', '.join(keys[:5])}")
    model.load_state_dict(wide)
    return model.eval()


def save(model: Any, folder: Path, tokenizer: Built) -> None:
    """Write, read again, and compare."""
    with quiet():
        model.save_pretrained(folder)
        again, report = from_folder(type(model), folder, output_loading_info=True)
    ids = torch.arange(SAMPLE)[None] % model.config.vocab_size
    with torch.no_grad():
        same = torch.equal(model(ids)[0], again.eval()(ids)[0])
    if report["missing_keys"] or report["unexpected_keys"] or not same:
        raise RunFailed(f"{folder.name}: the saved folder differs from what was read")
    tokenizer.tokenizer.save_pretrained(folder)


def about(name: str, model: Any) -> str:
    config = model.config
    return (
        f"{name}: {config.num_hidden_layers} layers of width {config.hidden_size}, {config.num_attention_heads} heads, "
        f"{config.rel_pos_bins} bins of distances, embeddings {config.vocab_size:,} × {config.hidden_size}, "
        f"{model.num_parameters():,} parameters; loads without a missing or unexpected key, same outputs"
    )
