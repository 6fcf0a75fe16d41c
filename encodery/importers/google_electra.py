"""Google's ELECTRA checkpoints: one TensorFlow file holds both models, which share their embeddings."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from encodery.errors import UserError
from encodery.importers import electra, tf_checkpoint

DROP = ("/adam_m", "/adam_v", "global_step")
SHARED = "electra/embeddings/"
KNOWN = ("electra/", "generator/", "discriminator_predictions/", "generator_predictions/")

Rename = Callable[[str], str | None]  # a variable's name in the model, or None where it has none


def convert(checkpoint: Path, out: Path, heads: electra.Heads, vocab: Path | None) -> list[str]:
    """Checkpoint → discriminator/ and generator/; what was made."""
    prefix = tf_checkpoint.find_prefix(checkpoint)
    beside = prefix.parent / "vocab.txt"
    return electra.write(out, models(prefix), heads, vocab or (beside if beside.is_file() else None))


def models(prefix: Path) -> dict[str, dict[str, Tensor]]:
    """The tensors of each model under transformers' names."""
    tensors = tf_checkpoint.read(prefix, DROP)
    unknown = sorted(name for name in tensors if not name.startswith(KNOWN))
    if unknown:
        raise UserError(f"{prefix}: {len(unknown)} variables are not of pretraining: {', '.join(unknown[:5])}")
    made = {"discriminator": dict(_renamed(tensors, _discriminator))}
    if any(name.startswith("generator_predictions/") for name in tensors):
        made["generator"] = dict(_renamed(tensors, _generator_of(tensors)))
        made["generator"]["generator_lm_head.weight"] = made["generator"]["electra.embeddings.word_embeddings.weight"]
    return made


def _discriminator(name: str) -> str | None:
    if name.startswith(("electra/", "discriminator_predictions/")):
        return name.replace("predictions/dense_1/", "predictions/dense_prediction/")
    return None


def _generator_of(found: dict[str, np.ndarray]) -> Rename:
    """The generator's own variables, and the discriminator's where both are one network or share embeddings."""
    own = {name for name in found if name.startswith("generator/")}
    untied = any(name.startswith("generator/embeddings/") for name in own)

    def rename(name: str) -> str | None:
        if name == "generator_predictions/output_bias":
            return "generator_lm_head/bias"
        if name.startswith("generator_predictions/"):
            return name
        if name.startswith("generator/"):
            return f"electra/{name.removeprefix('generator/')}"
        if name.startswith(SHARED):
            return None if untied else name
        return name if name.startswith("electra/") and not own else None

    return rename


def _renamed(found: dict[str, np.ndarray], rename: Rename) -> Iterator[tuple[str, Tensor]]:
    for name, value in found.items():
        new = rename(name)
        if new is not None:
            yield _tensor(new, value)


def _tensor(name: str, value: np.ndarray) -> tuple[str, Tensor]:
    """TensorFlow's words to torch's: kernels are transposed."""
    name = re.sub(r"/layer_(\d+)/", r"/layer/\1/", name).replace("/", ".")
    kernel = name.endswith(".kernel")
    name = re.sub(r"\.(kernel|gamma)$", ".weight", name)
    name = re.sub(r"\.beta$", ".bias", name)
    name = f"{name}.weight" if name.endswith("_embeddings") else name
    return name, torch.from_numpy(np.array(value.T if kernel else value, dtype=np.float32, order="C"))
