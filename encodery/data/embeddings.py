"""Vectors of a split on disk, for reading, and the options that made them (embed.py makes them). No torch here."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from encodery.core import cache, files
from encodery.core.options import Options
from encodery.data.provenance import Provenance
from encodery.errors import UserError


class EmbedOptions(Options):
    """Which vector represents an example."""

    site: Literal["cls", "pooler", "mean"] = "cls"
    """cls: the first token; pooler: the first token through the model's pooler; mean: the mean over all tokens."""
    layer: int = -1
    """Layer to read: 0 is the embedding layer, 1 the first layer, -1 the last one."""
    max_length: int | None = Field(default=None, ge=4)
    """Maximum sequence length in tokens. Default: the run's, else 128."""
    batch_size: int = Field(default=64, ge=1)
    """Maximum number of sequences in a forward pass."""
    int8: bool = False
    """Use int8 weights through ONNX Runtime on the CPU (extra `onnx`): faster and slightly less exact."""


@dataclass(frozen=True)
class Embeddings:
    """Finished vectors, on disk."""

    folder: Path

    @property
    def vectors(self) -> np.ndarray:
        """[n, width] in float32, mapped into memory."""
        found: np.ndarray = np.load(self.folder / "vectors.npy", mmap_mode="r", allow_pickle=False)
        return found

    @property
    def ids(self) -> list[str]:
        """The example of each row."""
        found: list[str] = json.loads((self.folder / "ids.json").read_text(encoding="utf-8"))
        return found

    @property
    def meta(self) -> dict[str, Any]:
        """What they are made of."""
        found: dict[str, Any] = files.read_json(self.folder / "meta.json")
        return found

    @property
    def made_from(self) -> Provenance:
        """The rows that have vectors; older folders know the names alone."""
        meta = self.meta
        return Provenance.read(meta, task=meta.get("task"), split=meta.get("split"))

    @classmethod
    def open(cls, folder: Path | str) -> "Embeddings":
        """An existing folder, whole."""
        if not (Path(folder) / "meta.json").is_file():
            raise UserError(f"{folder} holds no finished embeddings; run `encodery embed` again to resume")
        cache.require_intact(Path(folder), "run the `encodery embed` command that wrote it again to repair it")
        return cls(Path(folder))
