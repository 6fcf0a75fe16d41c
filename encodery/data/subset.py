"""Which rows of the training set are used: a random part, or the first ones of a selection file."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from encodery.config.schema import Entry
from encodery.core import files
from encodery.core.text import are, counted
from encodery.data import rng
from encodery.data.provenance import Provenance
from encodery.data.sampling import Sampler
from encodery.data.token_table import TokenTable
from encodery.errors import UserError
from encodery.tasks.base import Example, Task
from encodery.tasks.forms.classification import SWAPPED
from encodery.tasks.sources.own_files import WHOLE, Own

FILE, META = "selection.jsonl", "selection.meta.json"
FORMAT = 1


def share(rows: int, fraction: float) -> int:
    """floor(rows · fraction), exactly as the decimal number says: 0.29 of 100 is 29."""
    return int(Fraction(Decimal(repr(float(fraction)))) * rows + Fraction(1, 10**9))


def training_rows(rows: np.ndarray, fraction: float, count: int | None, seed: int) -> np.ndarray:
    """A random part of the rows, in table order; a smaller part lies within a larger one of the same seed."""
    if count is not None and count > len(rows):
        raise UserError(f"tasks.count: {count:,} rows are requested, but the training set has {len(rows):,}")
    wanted = count if count is not None else share(len(rows), fraction)
    if wanted < 1:
        raise UserError(f"tasks.fraction: {fraction:g} of {len(rows):,} rows is less than one row")
    if wanted >= len(rows):
        return rows
    return rows[np.sort(rng.choose(seed, "fraction", len(rows), wanted))]


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
        other = [key for key in ours if key not in told and there.get(key) != json.loads(files.plain_json(ours[key]))]
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
            raise UserError(f"{file}: an id appears more than once")
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
                f"tasks.subset: {wanted:,} rows are requested, but {len(self.ids):,} of {pool:,} were chosen; "
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
        raise UserError(f"{file}, line {number}: is not a row of a selection ({error})") from None


def finite(value: float) -> float | str:
    """JSON has no infinity."""
    return value if np.isfinite(value) else str(value)


# The rows of a task entry that a run trains on: a random part, or the first ones of a selection.


def rows(task: Task, entry: Entry, examples: Sequence[Example], seed: int) -> np.ndarray:
    """Positions of the chosen examples, in file order: with everything chosen a run is the same as without."""
    if entry.subset is None:
        return training_rows(np.arange(len(examples)), entry.fraction, entry.count, seed)
    whole = Subset.read(entry.subset)
    require_fit(whole, entry.subset, task)
    wanted = set(whole.first(entry.fraction, entry.count).ids)
    found = [i for i, example in enumerate(examples) if example.id.removesuffix(SWAPPED) in wanted]
    if not found:
        raise UserError(f"tasks.subset: none of its rows is left to train on ({entry.subset})")
    return np.array(found)


def require_fit(chosen: Subset, path: str, task: Task) -> str | None:
    """The training rows, or all rows of the file that they are a part of, must be those that were chosen from."""
    split = WHOLE if _of_the_file(chosen, task) else "train"
    return chosen.require_rows(path, task.examples(split), task.name, split)


def _of_the_file(chosen: Subset, task: Task) -> bool:
    """Whether rows that are dev here were among those that were chosen from."""
    return chosen.meta.get("split") == WHOLE and isinstance(task, Own) and task.divided


def warnings(task: Task, entry: Entry) -> list[str]:
    """What a person should know about the selection: that nothing tells whether it belongs to these rows, and how many
    of its rows are dev here."""
    if not entry.subset:
        return []
    whole = Subset.read(entry.subset)
    unknown = whole.made_from.answers is None  # else `rows` compares what can be compared
    lines = [require_fit(whole, entry.subset, task) if unknown else None]
    lines += [_about_dev(whole.first(entry.fraction, entry.count), task)] if _of_the_file(whole, task) else []
    return [f"WARNING tasks.subset: {line}" for line in lines if line]


def _about_dev(chosen: Subset, task: Task) -> str | None:
    dev = {example.id for example in task.examples("dev")}
    count = sum(id in dev for id in chosen.ids)
    rows = counted(len(chosen.ids), "chosen row")
    return f"{count:,} of {rows} {are(count)} set aside as dev here and not trained on" if count else None


def sampler(task: Task, entry: Entry, table: TokenTable, used: np.ndarray) -> Sampler | None:
    """What draws the table rows in use by the scores of `sample_by`; what has no such scores is refused."""
    if entry.sample_by is None:
        return None
    if {**task.objective(), **entry.objective}["kind"] != "classification":
        raise UserError(
            f"tasks.sample_by: draws rows with weights, which {task.name} cannot use; only classification can"
        )
    path, found = entry.sample_by, Subset.read(entry.sample_by)
    require_fit(found, path, task)
    by_id = dict(zip(found.ids, scores_of(path, found), strict=True))
    ids = [table.example_ids[int(place)].removesuffix(SWAPPED) for place in table.example[used]]
    lost = [id for id in ids if id not in by_id]
    if lost:
        raise UserError(
            f"tasks.sample_by: {path} has no score for {len(lost):,} of {len(ids):,} rows (first: {lost[0]}); choose "
            "again with fraction 1"
        )
    return Sampler.of(np.array([by_id[id] for id in ids]), entry.sample_smoothing)


def scores_of(path: str, subset: Subset) -> Sequence[float]:
    """The scores of a selection, if rows can be drawn by them: finite, not negative, the highest first."""
    scores = subset.scores
    if scores is None:
        raise UserError(
            f"tasks.sample_by: {path} has no scores; choose by el2n, loss, entropy, grand or another scorer"
        )
    wrong = next((id for id, one in zip(subset.ids, scores, strict=True) if not 0 <= one < float("inf")), None)
    if wrong is not None:
        raise UserError(f"tasks.sample_by: {path}: the score of {wrong} is negative or not finite")
    if max(scores) <= 0:
        raise UserError(f"tasks.sample_by: {path}: all scores are 0")
    if scores[0] < scores[-1]:
        raise UserError(
            f"tasks.sample_by: {path} puts its lowest scores first, but rows with high scores would be drawn most; "
            "choose by a score that is high for the rows you want"
        )
    return scores


def weights(
    task: Task, entry: Entry, table: TokenTable, used: np.ndarray | None = None, drawn: Sampler | None = None
) -> np.ndarray | None:
    """The weight of each row of the table: of the selection, times those of rows that are drawn by their scores."""
    own = subset_weights(task, entry, table)
    if drawn is None or used is None:
        return own
    by_example = dict(zip(table.example[used].tolist(), drawn.weights.tolist(), strict=True))
    each = np.array([by_example.get(int(place), 1.0) for place in table.example], np.float32)
    return each if own is None else each * own


def subset_weights(task: Task, entry: Entry, table: TokenTable) -> np.ndarray | None:
    """The weight of each row of the table, where the selection has weights other than 1."""
    weights = Subset.read(entry.subset).weights if entry.subset else None
    if weights is None:
        return None
    if {**task.objective(), **entry.objective}["kind"] != "classification":
        raise UserError(f"tasks.subset: it has weights, which {task.name} cannot use; only classification can")
    by_id = dict(zip(Subset.read(str(entry.subset)).ids, weights, strict=True))
    each = np.array([by_id.get(id.removesuffix(SWAPPED), 1.0) for id in table.example_ids], np.float32)
    return np.asarray(each[np.asarray(table.example)])
