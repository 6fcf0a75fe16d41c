"""A prepared corpus as a table: rows are blocks, tokens lie in memory-mapped shards, nothing is loaded as a whole."""

from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from encodery.core import cache, files
from encodery.data.corpus import shards
from encodery.errors import UserError

OnProgress = Callable[[float | None, int], None]  # share of the text that is prepared (None: nobody knows), characters
OPEN = 256  # shards that are mapped at the same time: each costs a file handle


@lru_cache(maxsize=OPEN)
def open_shard(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a shard, compared with the list of its folder when it is first read."""
    cache.require_shard(path)
    return shards.mapped(path)


class Spread:
    """The token ids of all shards as one long array."""

    dtype = np.dtype(np.int32)

    def __init__(self, paths: Sequence[Path], name: str, ends: NDArray[np.int64]) -> None:
        self.paths, self.name, self.ends = paths, name, ends  # ends: tokens up to and with each shard

    def __len__(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    def __getitem__(self, index: Any) -> np.ndarray:
        """Any index of numpy that gives an array: places, a slice, a matrix of places."""
        places = np.arange(len(self))[index] if isinstance(index, slice) else np.asarray(index)
        if places.size and (places.min() < 0 or places.max() >= len(self)):
            raise IndexError(f"places {places.min()} to {places.max()} of {len(self)} tokens")
        shard = np.searchsorted(self.ends, places, side="right")
        values = np.empty(places.shape, self.dtype)
        for number in np.unique(shard):
            here = shard == number
            begin = self.ends[number - 1] if number else 0
            values[here] = open_shard(self.paths[number])[self.name][places[here] - begin]
        return values


class Types:
    """Type ids, from where the second segment of each row begins."""

    dtype = np.dtype(np.uint8)

    def __init__(self, starts: np.ndarray, first: np.ndarray, second_type: int) -> None:
        self.starts, self.first, self.second_type = starts, first, second_type

    def __getitem__(self, index: Any) -> np.ndarray:
        places = np.arange(int(self.starts[-1]))[index] if isinstance(index, slice) else np.asarray(index)
        if not self.second_type:
            return np.zeros(places.shape, self.dtype)
        rows = np.searchsorted(self.starts, places, side="right") - 1
        second = places - self.starts[rows] >= self.first[rows]
        return np.where(second, self.second_type, 0).astype(self.dtype)


class DocumentNames(Sequence[str]):
    """`document-17`, made when somebody asks."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [f"document-{i}" for i in range(self.size)[index]]
        return f"document-{range(self.size)[index]}"


class Unlabelled:
    """Nothing is asked of plain text, and no sequence belongs to another."""

    targets: dict[str, np.ndarray] = {}
    token_targets: dict[str, np.ndarray] = {}
    marks: dict[str, np.ndarray] = {}
    group: None = None

    def whole_groups(self, rows: np.ndarray) -> np.ndarray:
        """Every row stands alone."""
        return rows


class BlockTable(Unlabelled):
    """The blocks of one split: what `TokenTable` is for tasks, with the same attributes."""

    def __init__(self, folder: Path, split: str) -> None:
        self.folder, self.split = folder, split

    @cached_property
    def about(self) -> dict[str, Any]:
        """All that the folder says of itself."""
        result: dict[str, Any] = files.read_json(self.folder / "meta.json")
        return result

    @cached_property
    def report(self) -> dict[str, Any]:
        """What was read, left out and made."""
        result: dict[str, Any] = files.read_json(self.folder / "report.json")
        return result

    @property
    def meta(self) -> dict[str, Any]:
        """Counts: rows, examples, tokens, longest, full."""
        result: dict[str, Any] = self.about["splits"][self.split]
        return result

    @cached_property
    def starts(self) -> np.ndarray:
        """Where each block begins among all tokens; one more than there are blocks."""
        return self._array("starts")

    @cached_property
    def lengths(self) -> np.ndarray:
        """Tokens in each block."""
        return self._array("lengths")

    @cached_property
    def example(self) -> np.ndarray:
        """The document that each block is from (of a full block: the first of them)."""
        return self._array("document")

    def sources(self) -> list[tuple[int, int]]:
        """First block and number of blocks of each source (entry of `files`), which follow each other."""
        if "sources" not in self.about:
            raise UserError(f"shares: {self.folder} does not record its sources; prepare it again")
        ends = np.cumsum([0, *self.about["sources"]])
        rows = np.searchsorted(self.example, ends)
        return [(int(begin), int(end - begin)) for begin, end in pairwise(rows)]

    @cached_property
    def ids(self) -> Spread:
        paths = [self.folder / "shards" / shards.name(i) for i in range(self.about["shards"])]
        return Spread(paths, f"{self.split}.ids", np.cumsum(self.meta["shard_tokens"], dtype=np.int64))

    @cached_property
    def types(self) -> Types:
        return Types(self.starts, self._array("first"), self.about["second_type"])

    @property
    def example_ids(self) -> DocumentNames:
        """Names of the documents."""
        return DocumentNames(self.about["documents"])

    @property
    def has_pieces(self) -> bool:
        """Whether a block may hold several texts that must not see each other (`blocks: full`)."""
        return bool(self.about["blocks"] == "full")

    @cached_property
    def texts(self) -> "Texts | None":
        """The texts of full blocks, as a table of their own; None where a block is one sequence."""
        return Texts(self) if self.has_pieces else None

    def __len__(self) -> int:
        return len(self.lengths)

    def _array(self, name: str) -> np.ndarray:
        array: np.ndarray = np.load(self.folder / self.split / f"{name}.npy", mmap_mode="r", allow_pickle=False)
        return array


class Texts(Unlabelled):
    """The texts inside full blocks: what the encoder reads is a text, what a batch counts is a block."""

    def __init__(self, blocks: BlockTable) -> None:
        self.blocks = blocks
        self.bounds, self.starts = blocks._array("piece_bounds"), blocks._array("piece_starts")
        self.ids, self.types, self.example_ids = blocks.ids, blocks.types, blocks.example_ids

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def lengths(self) -> "Lengths":
        """Tokens in each text."""
        return Lengths(self.starts)

    @property
    def example(self) -> "Of":
        """The document of a text (of the first text in its block)."""
        return Of(self)

    def of(self, rows: np.ndarray) -> np.ndarray:
        """The texts of these blocks, block by block."""
        return np.concatenate([np.arange(self.bounds[row], self.bounds[row + 1]) for row in rows])


class Lengths:
    """Differences of starts, made for the rows that are asked for."""

    def __init__(self, starts: np.ndarray) -> None:
        self.starts = starts

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        values: np.ndarray = self.starts[rows + 1] - self.starts[rows]
        return values


class Of:
    """From a text to its block's document."""

    def __init__(self, texts: Texts) -> None:
        self.texts = texts

    def __getitem__(self, row: int) -> int:
        block = int(np.searchsorted(self.texts.bounds, int(row), side="right")) - 1
        return int(self.texts.blocks.example[block])
