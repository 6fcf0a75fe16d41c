"""Which rows of the training set are used: a random part, or the first ones of a selection file."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from encodery import files
from encodery.data import draws
from encodery.data.provenance import Provenance
from encodery.errors import UserError
from encodery.tasks.base import Example

FILE, META = "selection.jsonl", "selection.meta.json"
FORMAT = 1


def share(rows: int, fraction: float) -> int:
    """floor(rows · fraction), exactly as the decimal number says: 0.29 of 100 is 29."""
    return int(Fraction(Decimal(repr(float(fraction)))) * rows + Fraction(1, 10**9))


def training_rows(rows: np.ndarray, fraction: float, count: int | None, seed: int) -> np.ndarray:
    """A random part of the rows, in table order; a smaller part lies within a larger one of the same seed."""
    if count is not None and count > len(rows):
        raise UserError(f"tasks.count: {count:,} rows are asked for, but the training set has {len(rows):,}")
    wanted = count if count is not None else share(len(rows), fraction)
    if wanted < 1:
        raise UserError(f"tasks.fraction: {fraction:g} of {len(rows):,} rows is less than one row")
    if wanted >= len(rows):
        return rows
    return rows[np.sort(draws.choose(seed, "fraction", len(rows), wanted))]


@dataclass(frozen=True)
class Subset:
    """Chosen examples, best first, and what they were chosen from and how."""

    ids: Sequence[str]
    meta: Mapping[str, Any]
    scores: Sequence[float] | None = None
    weights: Sequence[float] | None = None
    clusters: Sequence[int] | None = None

    def require_own(self, folder: Path) -> None:
        """Runs point at selections: one that lies there is not replaced by another."""
        if not (folder / META).is_file():
            return
        there, ours = files.read_json(folder / META), {**self.meta, "count": len(self.ids)}
        told = ("encodery", "notes", "labels", "task")  # follow from the rest; the fingerprint stands for the rows
        other = [key for key in ours if key not in told and there.get(key) != _as_read(ours[key])]
        if other:
            what = ", ".join(f"{key}: {there.get(key)} there, {ours[key]} now" for key in other)
            raise UserError(f"{folder} holds another selection ({what}); give another folder with -o")

    def write(self, folder: Path) -> Path:
        """selection.jsonl, then selection.meta.json with its digest."""
        with files.io_trouble(f"{folder} cannot be written", folder.parent):
            folder.mkdir(parents=True, exist_ok=True)
        path = folder / FILE
        with files.atomic(path) as stream:
            for rank in range(len(self.ids)):
                stream.write((files.plain_json(self._line(rank)) + "\n").encode())
        meta = {"format": FORMAT, **self.meta, "count": len(self.ids), "sha256": files.sha256(path)}
        files.write_json(folder / META, meta)
        return path

    def _line(self, rank: int) -> dict[str, Any]:
        line: dict[str, Any] = {"id": self.ids[rank], "rank": rank}
        for name, values in (("score", self.scores), ("weight", self.weights), ("cluster", self.clusters)):
            if values is not None:
                line[name] = values[rank] if not isinstance(values[rank], float) else finite(float(values[rank]))
        return line

    @classmethod
    def read(cls, path: Path | str) -> "Subset":
        """A selection file, or the folder that holds one."""
        file = path_of(path)
        meta_file = file.with_name(META) if file.name == FILE else file.with_suffix(".meta.json")
        meta = files.read_json(meta_file) if meta_file.is_file() else {}
        if meta.get("sha256") not in (None, files.sha256(file)):
            raise UserError(f"{file} was changed after it was chosen (its meta file has the sha256): choose again")
        lines = [_parsed(file, number, line) for number, line in enumerate(file.read_text("utf-8").splitlines(), 1)]
        ids = [str(line["id"]) for line in lines]
        if len(set(ids)) < len(ids):
            raise UserError(f"{file}: an id stands there more than once")
        weights = [float(line.get("weight", 1.0)) for line in lines]
        scores = [float(line["score"]) for line in lines if line.get("score") is not None]
        return cls(
            ids, meta, scores if len(scores) == len(ids) else None,
            weights if any(weight != 1.0 for weight in weights) else None,
        )  # fmt: skip

    def first(self, fraction: float, count: int | None) -> "Subset":
        """The best ones: a share of the pool, or so many."""
        pool = int(self.meta.get("pool", len(self.ids)))
        wanted = count if count is not None else share(pool, fraction)
        if wanted < 1:
            raise UserError(f"tasks.fraction: {fraction:g} of {pool:,} rows is less than one row")
        short = self.meta.get("short") or (count is None and fraction == 1.0)  # it would not choose more
        if wanted > len(self.ids) and not short:
            raise UserError(
                f"tasks.subset: {wanted:,} rows are asked for, but {len(self.ids):,} of {pool:,} were chosen; "
                "choose more, or ask for fewer"
            )
        weights = self.weights[:wanted] if self.weights is not None else None
        return Subset(self.ids[:wanted], self.meta, weights=weights)

    @property
    def made_from(self) -> Provenance:
        """The pool that was chosen from."""
        meta = self.meta
        return Provenance(meta.get("task"), meta.get("split"), meta.get("pool"), None, meta.get("fingerprint"))

    def require_rows(self, path: str, rows: Sequence[Example], task: str, split: str = "train") -> str | None:
        """The rows must be those that were chosen from, in any order; a warning where the file does not tell."""
        warning = self.made_from.require_fit(path, Provenance.of(task, split, rows), verb="chosen")
        known = {example.id for example in rows}
        lost = [id for id in self.ids if id not in known]
        if lost:
            raise UserError(f"{path}: {len(lost):,} of its ids are not in {task}:{split} (first: {lost[0]})")
        return warning


def _as_read(value: Any) -> Any:
    """As it comes back from a JSON file."""
    return json.loads(files.plain_json(value))


def path_of(path: Path | str) -> Path:
    """The selection file that a path means."""
    file = Path(path) / FILE if Path(path).is_dir() else Path(path)
    if not file.is_file():
        raise UserError(f"{file}: there is no such selection; `encodery select` makes one")
    return file


def digest_of(path: Path | str) -> str:
    """What stands for a selection in the identity of a run."""
    return files.sha256(path_of(path))


def _parsed(file: Path, number: int, line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
        if not isinstance(found, dict) or not isinstance(found.get("id"), str | int):
            raise ValueError("no id")
        return found
    except ValueError as error:
        raise UserError(f"{file}, line {number}: is no row of a selection ({error})") from None


def finite(value: float) -> float | str:
    """JSON has no infinity."""
    return value if np.isfinite(value) else str(value)
