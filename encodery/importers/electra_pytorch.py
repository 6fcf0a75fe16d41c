"""Checkpoints of richarddwang/electra_pytorch: one .pth of fastai with both models under their prefixes."""

from pathlib import Path
from typing import Any

from torch import Tensor

from encodery.errors import UserError
from encodery.importers import electra
from encodery.importers.pytorch_bin import load_weights_only

NO_WEIGHTS = ("embeddings.position_ids",)  # a buffer that older transformers stored


class PlainList:
    """Stands for fastcore's `L`, the list in which fastai keeps the optimiser's settings: data, and no code of it."""

    items: list[Any]


LIST = (PlainList, "fastcore.foundation.L")


def convert(file: Path, out: Path, heads: electra.Heads, vocab: Path | None) -> list[str]:
    """The .pth → discriminator/ and generator/; what was made."""
    return electra.write(out, models(file), heads, vocab)


def models(file: Path) -> dict[str, dict[str, Tensor]]:
    """The tensors of each model, without the prefix."""
    tensors = _load(file)
    made = {name: _part(tensors, f"{name}.") for name in ("discriminator", "generator")}
    other = sorted(key for key in tensors if not key.startswith(tuple(f"{name}." for name in made)))
    if not made["discriminator"] or other:
        hint = f" ({', '.join(other[:3])})" if other else ""
        raise UserError(f"{file}: its keys do not begin with discriminator. and generator.{hint}")
    return {name: part for name, part in made.items() if part}


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {
        key.removeprefix(prefix): value.float().contiguous()
        for key, value in tensors.items()
        if key.startswith(prefix) and not key.endswith(NO_WEIGHTS)
    }


def _load(file: Path) -> dict[str, Tensor]:
    """A state dict, or fastai's {model, opt}. All but tensors and that list is refused by torch, which names it."""
    stored = load_weights_only(file, LIST)
    if isinstance(stored, dict) and isinstance(stored.get("model"), dict):
        stored = stored["model"]
    if not isinstance(stored, dict) or not all(isinstance(value, Tensor) for value in stored.values()):
        raise UserError(f"{file}: is neither a state dict nor a {{model, opt}} of fastai")
    return dict(stored)
