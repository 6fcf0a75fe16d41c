"""Shards of a prepared corpus: one safetensors file each, whole or not there, with the counts of what it holds."""

import json
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from encodery.core import files
from encodery.data.corpus.segments import Block
from encodery.errors import UserError

SPLITS = ("train", "dev")
_DTYPES = {"U16": np.uint16, "I32": np.int32, "I64": np.int64}


def name(number: int) -> str:
    """`00017.safetensors`."""
    return f"{number:05d}.safetensors"


@dataclass
class Flat:
    """Blocks of one split, end to end, as they grow."""

    small: bool  # ids fit into 16 bits
    full: bool
    ids: "array[int]" = field(init=False)
    lengths: "array[int]" = field(default_factory=lambda: array("i"))
    first: "array[int]" = field(default_factory=lambda: array("i"))
    document: "array[int]" = field(default_factory=lambda: array("q"))
    pieces: "array[int]" = field(default_factory=lambda: array("i"))
    piece_counts: "array[int]" = field(default_factory=lambda: array("i"))
    text: int = 0

    def __post_init__(self) -> None:
        self.ids = array("H" if self.small else "i")

    def add(self, blocks: Iterable[Block]) -> None:
        for block in blocks:
            self.ids.extend(block.ids)
            self.lengths.append(len(block.ids))
            self.first.append(block.first)
            self.document.append(block.document)
            self.text += block.text
            if self.full:
                self.pieces.extend(block.lengths)
                self.piece_counts.append(len(block.lengths))

    def arrays(self, split: str) -> dict[str, np.ndarray]:
        """By the names that the file uses."""
        found = {"ids": self.ids, "lengths": self.lengths, "first": self.first, "document": self.document}
        if self.full:
            found |= {"pieces": self.pieces, "piece_counts": self.piece_counts}
        return {f"{split}.{key}": np.frombuffer(value, dtype=value.typecode) for key, value in found.items()}


def write(path: Path, flats: dict[str, Flat], counts: dict[str, Any]) -> None:
    """The shard in one instant; the bytes depend on nothing but its content."""
    from safetensors.numpy import save

    arrays = {key: value for split, flat in flats.items() for key, value in flat.arrays(split).items()}
    files.write_atomic(path, save(arrays, metadata={"counts": json.dumps(counts, sort_keys=True)}))


def mapped(path: Path) -> dict[str, np.ndarray]:
    """Its arrays, memory-mapped through one file handle."""
    header, begin = _header(path)
    raw = np.memmap(path, dtype=np.uint8, mode="r")
    arrays = {}
    for key, about in header.items():
        if key != "__metadata__":
            a, b = about["data_offsets"]
            arrays[key] = raw[begin + a : begin + b].view(_DTYPES[about["dtype"]])
    return arrays


def counts(path: Path) -> dict[str, Any]:
    """What was counted while the shard was made."""
    result: dict[str, Any] = json.loads(_header(path)[0]["__metadata__"]["counts"])
    return result


def _header(path: Path) -> tuple[dict[str, Any], int]:
    try:
        with path.open("rb") as stream:
            size = int.from_bytes(stream.read(8), "little")
            header: dict[str, Any] = json.loads(stream.read(size))
    except (OSError, ValueError, MemoryError) as error:
        raise UserError(f"{path}: the shard is missing or damaged ({error}); delete it and prepare again") from None
    ends = [about["data_offsets"][1] for key, about in header.items() if key != "__metadata__"]
    if path.stat().st_size != 8 + size + max(ends, default=0):
        raise UserError(f"{path}: the shard is truncated; delete it and prepare again")
    return header, 8 + size
