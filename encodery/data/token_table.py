"""Task × tokenizer → a memory-mapped token table, named by a hash of all that made it.

A table is a folder of .npy files. Rows are sequences; `starts` cuts the flat arrays. Built once beside its final
name and renamed when whole, so that a half-written table is never seen and two processes may build the same one.
manifest.json has size and sha256 of every file; they are compared whenever a process opens the table.
"""

import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from encodery.core import cache, files
from encodery.data.tokenizer import TokenizerPieces
from encodery.errors import UserError
from encodery.tasks.base import Example, Features, Task

VERSION = 2  # raise it when the content of a table changes for equal inputs
CHUNK = 2048  # examples tokenised at once


@dataclass(frozen=True)
class TokenTable:
    """The sequences of one split, on disk; or in memory, without a folder."""

    folder: Path | None

    @classmethod
    def in_memory(cls, **arrays: Any) -> "TokenTable":
        """A table that never touches the disk; what the cached properties would read from files is given by name."""
        table = cls(None)
        table.__dict__.update(arrays)
        return table

    def with_target(self, name: str, values: np.ndarray) -> "TokenTable":
        """The table with a number or row more for each sequence."""
        new = copy(self)
        new.__dict__["targets"] = {**self.targets, name: values}
        return new

    @cached_property
    def meta(self) -> dict[str, Any]:
        """Counts: rows, examples, cut sequences, longest."""
        result: dict[str, Any] = json.loads((self.folder / "meta.json").read_text()) if self.folder else {}
        return result

    @cached_property
    def starts(self) -> np.ndarray:
        """Where each sequence begins in the flat arrays; one more than there are sequences."""
        return self._array("starts")

    @cached_property
    def ids(self) -> np.ndarray:
        """Token ids, flat."""
        return self._array("ids")

    @cached_property
    def types(self) -> np.ndarray:
        """Type ids, flat."""
        return self._array("types")

    @cached_property
    def example(self) -> np.ndarray:
        """The example (row number in the split) each sequence belongs to."""
        return self._array("example")

    @cached_property
    def targets(self) -> dict[str, np.ndarray]:
        """What the sequences are asked for."""
        return {name: self._array(f"target_{name}") for name in self.meta["targets"]}

    @cached_property
    def token_targets(self) -> dict[str, np.ndarray]:
        """What the tokens are asked for, flat: a number per token."""
        return {name: self._array(f"token_{name}") for name in self.meta.get("token_targets", ())}

    @cached_property
    def marks(self) -> dict[str, np.ndarray]:
        """Numbers per token that a task's `decode` gets back, flat."""
        return {name: self._array(f"mark_{name}") for name in self.meta.get("marks", ())}

    @cached_property
    def group(self) -> np.ndarray | None:
        """Number of each sequence's group; None: every sequence stands alone."""
        return self._array("group") if self.meta.get("grouped") else None

    def rows_of(self, examples: np.ndarray) -> np.ndarray:
        """The rows of these examples, in table order; of a group only the first row, which stands for all."""
        if len(self) == len(self.example_ids):
            return examples
        rows = np.flatnonzero(np.isin(self.example, examples))
        return rows if self.group is None else rows[np.unique(self.group[rows], return_index=True)[1]]

    def whole_groups(self, rows: np.ndarray) -> np.ndarray:
        """All rows of the groups that these rows stand for."""
        if self.group is None:
            return rows
        first = np.searchsorted(self.group, self.group[rows], "left")  # groups lie one after another
        last = np.searchsorted(self.group, self.group[rows], "right")
        return np.concatenate([np.arange(a, b) for a, b in zip(first, last, strict=True)])

    @cached_property
    def example_ids(self) -> list[str]:
        """Ids of the examples, in the order of the split."""
        assert self.folder is not None
        result: list[str] = json.loads((self.folder / "examples.json").read_text())
        return result

    @cached_property
    def lengths(self) -> np.ndarray:
        """Tokens in each sequence."""
        return np.diff(self.starts)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def _array(self, name: str) -> np.ndarray:
        assert self.folder is not None
        array: np.ndarray = np.load(self.folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
        return array


def token_table(
    task: Task, split: str, pieces: TokenizerPieces, max_length: int, examples: Sequence[Example] | None = None
) -> TokenTable:
    """The table of a split, from the cache or made now. `examples` may be given where they are at hand."""
    rows = task.examples(split) if examples is None else examples
    folder = files.cache_root() / "tokens" / _key(task, split, pieces, max_length, rows)
    if folder.is_dir() and cache.damages(folder):
        cache.discard_folder(folder)
    if not (folder / "meta.json").exists():
        _build(folder, task, rows, pieces, max_length)
    return TokenTable(folder)


def memory_table(features: Iterable[Features], example_ids: Sequence[str]) -> TokenTable:
    """A table that never touches the disk, for raw input."""
    rows = list(features)
    targets = {name: [row.targets[name] for row in rows] for name in (rows[0].targets if rows else ())}
    starts = np.concatenate([[0], np.cumsum([len(row.ids) for row in rows])]).astype(np.int64)
    flat = {name: np.concatenate([_flat(row)[name] for row in rows]) for name in _flat(rows[0])}
    groups = [row.group for row in rows]
    return TokenTable.in_memory(
        ids=flat["ids"],
        types=flat["types"],
        starts=starts,
        example=np.asarray([row.example for row in rows], dtype=np.int64),
        targets={name: _target_array(values) for name, values in targets.items()},
        token_targets={name: flat[f"token_{name}"] for name in rows[0].token_targets},
        marks={name: flat[f"mark_{name}"] for name in rows[0].marks},
        group=None if None in groups else np.asarray(groups, dtype=np.int64),
        example_ids=list(example_ids),
    )


def _flat(row: Features) -> dict[str, np.ndarray]:
    """Everything of a sequence that has a number per token, by the name of its file."""
    columns: dict[str, np.ndarray] = {
        "ids": np.asarray(row.ids, dtype=np.int32),
        "types": np.asarray(row.types, dtype=np.uint8),
    }
    columns |= {f"token_{name}": np.asarray(values, dtype=np.int32) for name, values in row.token_targets.items()}
    return columns | {f"mark_{name}": np.asarray(values, dtype=np.int32) for name, values in row.marks.items()}


def _key(task: Task, split: str, pieces: TokenizerPieces, max_length: int, rows: Sequence[Example]) -> str:
    content = hashlib.sha256()
    for row in rows:  # the rows themselves, so that no option that changes them can be forgotten
        content.update(repr((row.id, row.texts, row.label, sorted(row.extra.items()))).encode())
    parts = [VERSION, task.name, split, task.objective(), pieces.digest, max_length, content.hexdigest()]
    parts += [reading] if (reading := task.reading()) else []
    return files.digest(parts)[:32]


def _build(folder: Path, task: Task, rows: Sequence[Example], pieces: TokenizerPieces, max_length: int) -> None:
    beside = files.hidden_sibling(folder)  # a name of its own even where processes of several machines share numbers
    beside.mkdir(parents=True)
    try:
        _write(beside, _features(task, rows, pieces, max_length), [r.id for r in rows], max_length)
        cache.write_manifest(beside, sorted(path.name for path in beside.iterdir()))
        files.sync_tree(beside)
        try:
            beside.rename(folder)
        except OSError:  # another process was faster; its table is the same
            if not (folder / "meta.json").exists():
                raise
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _features(task: Task, rows: Sequence[Example], pieces: TokenizerPieces, max_length: int) -> Iterator[Features]:
    for start in range(0, len(rows), CHUNK):
        chunk = rows[start : start + CHUNK]
        for features in task.encode(chunk, pieces, max_length):
            group = None if features.group is None else start + features.group
            yield replace(features, example=start + features.example, group=group)


@dataclass
class _Columns:
    """What is held in memory of each sequence while its tokens go to files, and the types of these files."""

    lengths: list[int] = field(default_factory=list)
    example: list[int] = field(default_factory=list)
    group: list[int | None] = field(default_factory=list)
    targets: dict[str, list[Any]] = field(default_factory=dict)
    kinds: dict[str, Any] = field(default_factory=lambda: {"ids": np.int32, "types": np.uint8})

    def add(self, row: Features) -> None:
        self.lengths.append(len(row.ids))
        self.example.append(row.example)
        self.group.append(row.group)
        for name, value in row.targets.items():
            self.targets.setdefault(name, []).append(value)

    @property
    def grouped(self) -> bool:
        return bool(self.group) and None not in self.group

    def named(self, prefix: str) -> list[str]:
        """The files of a sort, by the rest of their names."""
        return sorted(name.removeprefix(prefix) for name in self.kinds if name.startswith(prefix))


def _write(folder: Path, features: Iterable[Features], example_ids: Sequence[str], max_length: int) -> None:
    """Flat files grow as they come; only a few numbers per sequence are held in memory."""
    columns = _write_tokens(folder, features, example_ids)
    lengths = columns.lengths
    starts = np.concatenate([[0], np.cumsum(np.asarray(lengths, dtype=np.int64))]).astype(np.int64)
    example = np.asarray(columns.example, dtype=np.int64)
    arrays = {"starts": starts, "example": example, **_target_arrays(columns.targets)}
    if columns.grouped:
        arrays["group"] = np.asarray(columns.group, dtype=np.int64)
    for name, dtype in columns.kinds.items():
        arrays[name] = np.memmap(folder / f"{name}.raw", dtype=dtype, mode="r") if starts[-1] else np.zeros(0, dtype)
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array, allow_pickle=False)
    for raw in folder.glob("*.raw"):
        raw.unlink()
    (folder / "examples.json").write_text(json.dumps(list(example_ids)))
    meta = {
        "rows": len(lengths),
        "examples": len(example_ids),
        "tokens": int(starts[-1]),
        "longest": max(lengths, default=0),
        "full": int(sum(n >= max_length for n in lengths)),
        "targets": sorted(columns.targets),
        "token_targets": columns.named("token_"),
        "marks": columns.named("mark_"),
        "grouped": columns.grouped,
    }
    (folder / "meta.json").write_text(json.dumps(meta))


def _write_tokens(folder: Path, features: Iterable[Features], example_ids: Sequence[str]) -> _Columns:
    """What has a value for each token, as raw files."""
    columns, open_files = _Columns(), dict[str, Any]()
    with ExitStack() as stack:
        for row in features:
            if not row.ids:  # no first token to classify, and no place in a packed row
                raise UserError(
                    f"example {example_ids[row.example]} has no tokens: its text is empty for this tokenizer"
                )
            for name, values in _flat(row).items():
                if name not in open_files:
                    open_files[name] = stack.enter_context(open(folder / f"{name}.raw", "wb"))
                    columns.kinds[name] = values.dtype
                open_files[name].write(values.tobytes())
            columns.add(row)
    return columns


def _target_arrays(targets: Mapping[str, Sequence[Any]]) -> dict[str, np.ndarray]:
    return {f"target_{name}": _target_array(values) for name, values in targets.items()}


def _target_array(values: Sequence[Any]) -> np.ndarray:
    """Whole numbers stay whole, everything else is float32."""
    array = np.asarray(values)
    return array.astype(np.int64 if array.dtype.kind in "iu" else np.float32)
