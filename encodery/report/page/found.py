"""What all sections read: runs, their table, metrics, answers and rows of data; each file is read once."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from encodery.errors import UserError
from encodery.report import records, tables
from encodery.report.examples import task_of
from encodery.report.groups import Row, short, spelled, varying
from encodery.report.page.html import without_paths
from encodery.report.page.reference import Reference
from encodery.report.records import Record
from encodery.rundir import RunDir
from encodery.tasks.base import Example, Task

PLAIN = "plain"  # the baseline where none is named: training without a method
ANSWERS = 400_000  # predictions that one page reads


@dataclass
class Rows:
    """The rows of a split that answers belong to."""

    task: Task
    examples: Sequence[Example]


@dataclass
class Found:
    """Everything below some folders."""

    folders: Sequence[Path]
    records: Sequence[Record]
    table: tables.Table
    baseline: str | None
    text: bool = True
    references: Sequence[Reference] = ()
    remarks: list[str] = field(default_factory=list)  # what a section could not show
    _metrics: dict[Path, list[dict[str, Any]]] = field(default_factory=dict)
    _answers: dict[Path, dict[str, dict[str, Any]]] = field(default_factory=dict)
    _rows: dict[tuple[str, str], Rows | None] = field(default_factory=dict)
    _read: int = 0

    def remark(self, sentence: str) -> None:
        """Say something at the end of the page, once."""
        if sentence not in self.remarks:
            self.remarks.append(sentence)

    @cached_property
    def keys(self) -> list[str]:
        """The settings that vary."""
        return varying(self.records)

    @cached_property
    def _names(self) -> dict[str, str]:
        """Dotted keys by their last word, where that is unmistakable."""
        last = Counter(key.rpartition(".")[2] for key in self.keys)
        return {key: word if last[word := key.rpartition(".")[2]] == 1 and word != "kind" else key for key in self.keys}

    def label_of(self, key: str) -> str:
        """A setting in the words of this page."""
        return "method" if key == "method.kind" else self._names.get(key, key)

    @cached_property
    def _keys_of(self) -> dict[str, list[str]]:
        """The settings that vary among the runs of each task."""
        by_task: dict[str, list[Record]] = {}
        for record in self.records:
            by_task.setdefault(record.task, []).append(record)
        return {task: telling(those) for task, those in by_task.items()}

    def label(self, settings: Mapping[str, Any], task: str | None = None, most: int = 120) -> str:
        """A configuration in few words: only what varies (among runs of the task); a method by its name alone."""
        words = []
        for key in self.keys if task is None else self._keys_of.get(task, self.keys):
            value = without_paths(spelled(settings.get(key, "")))
            if value:
                words.append(value if key == "method.kind" else f"{self._names[key]} {value}")
        return short(", ".join(words), most)

    def group(self, record: Record) -> str:
        """What runs with one colour share: task and configuration."""
        many = len({one.task for one in self.records}) > 1
        label = self.label(record.settings, record.task)
        return ": ".join(filter(None, [record.task if many or not label else "", label])) or "run"

    def name(self, row: Row, most: int = 120) -> str:
        """The configuration of a row of the table, blank where its task has only one."""
        first = next(iter(row.runs.values()), None)
        return self.label(row.settings, first.task if first else None, most)

    @cached_property
    def groups(self) -> list[str]:
        """All of them, in the order of their colours."""
        return list(dict.fromkeys(map(self.group, self.records)))

    @cached_property
    def data(self) -> list[str]:
        """Data sets with scores, averages left out."""
        return list(dict.fromkeys(row.data for row in self.table.rows if row.runs))

    def rows_of(self, data: str) -> list[Row]:
        """The configurations on a data set that have scores, the best first."""
        mine = [row for row in self.table.rows if row.data == data and row.runs and row.summary.mean is not None]
        return sorted(mine, key=lambda row: (row.summary.mean or 0.0) * (1 if row.lower else -1))

    def metrics(self, record: Record) -> list[dict[str, Any]]:
        """metrics.jsonl; a damaged one is empty and named."""
        if record.path not in self._metrics:
            try:
                self._metrics[record.path] = RunDir(record.path).metrics()
            except (UserError, OSError) as error:
                self.remark(f"no curves of {record.name}: {without_paths(str(error))}")
                self._metrics[record.path] = []
        return self._metrics[record.path]

    def answers(self, record: Record, data: str) -> dict[str, dict[str, Any]]:
        """Predictions by example id; empty where there are none, or too many in all."""
        name, _, split = data.rpartition(":")
        try:
            path = RunDir(record.path).predictions_path(name, split)
        except UserError:
            return {}
        if path not in self._answers:
            self._answers[path] = self._read_answers(path) if path.is_file() else {}
        return self._answers[path]

    def _read_answers(self, path: Path) -> dict[str, dict[str, Any]]:
        if self._read > ANSWERS:
            self.remark(f"more than {ANSWERS:,} predictions: those of some runs are not shown")
            return {}
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
            found = {str(row["id"]): row for row in map(json.loads, lines) if "prediction" in row}
        except (OSError, ValueError, KeyError, TypeError):
            self.remark(f"{path.parent.parent.name}: {path.name} is damaged and not shown")
            return {}
        self._read += len(found)
        return found

    def rows(self, record: Record, data: str) -> Rows | None:
        """The rows that answers belong to, with their labels; None (and a remark) where they cannot be had."""
        name, _, split = data.rpartition(":")
        digest = record.digests.get(data, record.digests.get(split, "") if name == record.task else "")
        at = (data, digest)
        if at not in self._rows:
            try:
                self._rows[at] = _rows(record, name, split, digest)
            except (UserError, OSError) as error:
                self.remark(f"{data}: no examples are shown, because {without_paths(short(str(error), 200))}")
                self._rows[at] = None
        return self._rows[at]

    def task(self, record: Record, name: str) -> Task | None:
        """A task of a run; None (and a remark) where it cannot be made."""
        try:
            return task_of(_tree(record, name))
        except (UserError, OSError) as error:
            self.remark(f"{name}: no data card, because {without_paths(short(str(error), 200))}")
            return None


def task_names(record: Record) -> list[str]:
    """The tasks that a run was trained on; own code has the run's name for it."""
    entries = record.tree.get("tasks") or []
    return [records.task_name({"tasks": [one]}) or record.task for one in entries]


def telling(those: Sequence[Record]) -> list[str]:
    """The settings that vary, without those that another one tells: init_mag where max_norm always moves with it."""
    kept: list[str] = []
    for key in varying(those):
        if not any(_together(those, key, other) for other in kept):
            kept.append(key)
    return kept


def _together(those: Sequence[Record], a: str, b: str) -> bool:
    """Whether each of two settings says the other one."""
    seen = {(spelled(one.settings.get(a, "")), spelled(one.settings.get(b, ""))) for one in those}
    return len(seen) == len({one for one, _ in seen}) == len({two for _, two in seen})


def _rows(record: Record, name: str, split: str, digest: str) -> Rows:
    task = task_of(_tree(record, name))
    examples = task.examples(split)
    if digest and task.origin(split).digest != digest:
        raise UserError(f"the rows of {name}:{split} are not the ones that {record.name} was scored on")
    return Rows(task, examples)


def _tree(record: Record, name: str) -> Mapping[str, Any]:
    """The config of the run with the task of this name first; a task that it was only evaluated on goes by its name."""
    entries = record.tree.get("tasks") or []
    mine = [one for one in entries if records.task_name({"tasks": [one]}) == name]
    return {**record.tree, "tasks": mine or [{"name": name}]}


def gather(
    folders: Sequence[str | Path],
    baseline: str | None = None,
    *,
    text: bool = True,
    every: bool = False,
    references: Sequence[Reference] = (),
) -> Found:
    """Read the runs at and below the folders; without a baseline the plain method is one, where there is just one."""
    found, remarks = records.read(folders, every=every)
    remarks = [without_paths(line) for line in remarks]
    whole = tables.of_records(found, baseline, remarks=remarks)
    if baseline is None and _has_plain(found):
        try:
            whole, baseline = tables.of_records(found, PLAIN, remarks=remarks), PLAIN
        except UserError:  # several plain rows: nobody can say which is meant
            whole = tables.of_records(found, remarks=remarks)
    return Found([Path(folder) for folder in folders], found, whole, baseline, text, references)


def _has_plain(found: Sequence[Record]) -> bool:
    kinds = {record.settings.get("method.kind") for record in found}
    return PLAIN in kinds and len(kinds) > 1
