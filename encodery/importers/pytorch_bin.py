"""Models that have only `pytorch_model.bin`: opened once, as weights only, and written as safetensors.

Nothing in such a file is ever run: torch reads tensors and plain containers, and refuses everything else by its name.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from encodery.config.schema import ModelOptions
from encodery.core import files
from encodery.core.files import require_new
from encodery.core.text import first_line
from encodery.errors import RunFailed, UserError
from encodery.models import locate
from encodery.models.encoder import load_encoder

WEIGHTS = "model.safetensors"


def convert(name: str, out: Path, revision: str | None = None) -> list[str]:
    """A hub name or a folder → a folder with safetensors, config and tokenizer; what was made."""
    require_new(out)
    source = locate.resolve_bin(name, revision)
    if list(source.path.glob("*.safetensors")):
        raise UserError(f"{name}: it has safetensors weights already; give it to --model as it is")
    tensors = dict(_separate(_weights(source.path)))
    out.parent.mkdir(parents=True, exist_ok=True)
    with files.atomic_folder(out) as beside:
        for file in locate.files_beside_weights(source.path):
            shutil.copyfile(file, beside / file.name)
        save_file(tensors, beside / WEIGHTS, metadata={"format": "pt"})
        _verify(tensors, beside)
        encoder, notes = load_encoder(beside, ModelOptions(name=str(beside)))
    count = sum(tensor.numel() for tensor in tensors.values())
    where = f"{name} at {source.revision}" if source.revision else name
    return [
        f"{out}: {encoder.kind}, {len(tensors):,} tensors, {count:,} weights of {where}; all are identical bit "
        "for bit, and the encoder loads",
        *notes,
    ]


def _weights(folder: Path) -> dict[str, Tensor]:
    """All tensors of a folder: of one file, or of the parts that an index names."""
    index = folder / locate.BIN_INDEX
    if not index.is_file():
        return _load(folder / locate.BIN)
    places: dict[str, str] = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
    tensors: dict[str, Tensor] = {}
    for part in sorted(set(places.values())):
        tensors |= _load(folder / Path(part).name)
    if missing := sorted(set(places) - set(tensors)):
        raise UserError(f"{index}: {missing[0]} is in none of its files")
    return tensors


def load_weights_only(file: Path, *allowed: Any) -> Any:
    """What a file of torch holds: of anything but tensors and plain containers only the allowed classes are let in."""
    try:
        with torch.serialization.safe_globals(list(allowed)):
            return torch.load(file, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise UserError(f"{file}: there is no such file") from None
    except Exception as error:  # an object that is no weight, a damaged archive: pickle and zip raise a zoo
        raise UserError(f"{file}: cannot be opened as weights ({first_line(error)})") from None


def _load(file: Path) -> dict[str, Tensor]:
    stored = load_weights_only(file)
    if not isinstance(stored, dict) or not all(isinstance(value, Tensor) for value in stored.values()):
        raise UserError(f"{file}: contains something other than named tensors")
    return dict(stored)


def _separate(tensors: dict[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Tied tensors share their memory, which safetensors does not have: each gets its own."""
    seen: set[int] = set()
    for name, tensor in tensors.items():
        storage = tensor.untyped_storage()
        alone = storage.data_ptr() not in seen and storage.nbytes() == tensor.nbytes
        seen.add(storage.data_ptr())
        yield name, tensor.contiguous() if alone else tensor.contiguous().clone()


def _verify(tensors: dict[str, Tensor], folder: Path) -> None:
    again = load_file(folder / WEIGHTS)
    if again.keys() != tensors.keys() or not all(_same(tensors[name], again[name]) for name in tensors):
        raise RunFailed(f"{folder / WEIGHTS}: the written file differs from what was read; nothing was kept")


def _same(a: Tensor, b: Tensor) -> bool:
    """To the bit, so that a NaN equals itself."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return torch.equal(a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8))
