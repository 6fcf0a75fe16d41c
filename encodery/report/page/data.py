"""What all sections read: runs, their table, metrics, answers and rows of data; each file is read once."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import cached_property
from pathlib import Path
from typing import Any

from encodery.config import components
from encodery.core import files
from encodery.core.redact import without_paths
from encodery.core.text import short
from encodery.errors import UserError
from encodery.report import records
from encodery.report import table as report_table
from encodery.report.examples import task_of
from encodery.report.groups import Row
from encodery.report.page.configurations import Configurations
from encodery.report.page.references import Reference
from encodery.report.records import TASKS, Record
from encodery.runs.directory import RunDir, task_and_split
from encodery.tasks.base import Example, Task

PLAIN = "plain"  # the baseline where none is named: training without a method
ANSWERS = 400_000  # predictions that one page reads
LABEL = 90  # letters of a configuration's name


@dataclass
class Rows:
    """The rows of a split that answers belong to."""

    task: Task
    examples: Sequence[Example]


@dataclass
class PageData:
    """Everything below some folders."""

    folders: Sequence[Path]
    records: Sequence[Record]
    table: report_table.Table
    baseline: str | None
    text: bool = True
    references: Sequence[Reference] = ()
    metric: str | None = None  # asked for instead of each task's main metric
    remarks: list[str] = field(default_factory=list)  # what a section could not show
    kept: dict[str, Any] = field(default_factory=dict)  # what several sections need, read once
    _metrics: dict[Path, list[dict[str, Any]]] = field(default_factory=dict)
    _answers: dict[Path, dict[str, dict[str, Any]]] = field(default_factory=dict)
    _rows: dict[tuple[str, str], Rows | None] = field(default_factory=dict)
    _read: int = 0

    def remark(self, sentence: str) -> None:
        """Say something at the end of the page, once."""
        if sentence not in self.remarks:
            self.remarks.append(sentence)

    @cached_property
    def configurations(self) -> Configurations:
        """Names of what was trained."""
        return Configurations(self.records)

    @property
    def keys(self) -> list[str]:
        """The settings that vary."""
        return self.configurations.keys

    def label_of(self, key: str) -> str:
        """A setting in the words of this page."""
        return "method" if key == "method.kind" else self.configurations.names.get(key, key)

    def label(self, settings: Mapping[str, Any], task: str | None = None, most: int = LABEL) -> str:
        """A configuration in few words, unlike those of all others."""
        return self.configurations.label(settings, task, most)

    def group(self, record: Record) -> str:
        """What runs with one colour share: task and configuration."""
        many = len({one.task for one in self.records}) > 1
        label = self.label(record.settings, record.task)
        return ": ".join(filter(None, [record.task if many or not label else "", label])) or "run"

    def name(self, row: Row, most: int = LABEL) -> str:
        """The configuration of a row of the table, blank where its task has only one."""
        first = next(iter(row.runs.values()), None)
        label = self.label(row.settings, first.task if first else None, most)
        if first is None or TASKS not in self.keys:
            return label
        return short(", ".join(filter(None, [f"trained on {first.task}", label])), most)

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
        name, split = task_and_split(data)
        run = RunDir(record.path)
        try:
            path = run.predictions_path(name, split)
        except UserError:
            return {}
        if path not in self._answers:
            self._answers[path] = self._read_answers(run, name, split) if path.is_file() else {}
        return self._answers[path]

    def _read_answers(self, run: RunDir, name: str, split: str) -> dict[str, dict[str, Any]]:
        if self._read > ANSWERS:
            self.remark(f"more than {ANSWERS:,} predictions: those of some runs are not shown")
            return {}
        try:
            answers = run.read_predictions(name, split)
        except (UserError, OSError):
            self.remark(f"{run.path.name}: {run.predictions_path(name, split).name} is damaged and not shown")
            return {}
        self._read += len(answers)
        return answers

    def beside_answers(self, row: Row, ending: str, parts: Sequence[str]) -> list[Mapping[str, Any]]:
        """What `evaluate` wrote beside the predictions of each seed, if it has these parts; a damaged file is named."""
        stored: list[Mapping[str, Any]] = []
        for run in row.runs.values():
            path = RunDir(run.path).predictions_path(*task_and_split(row.data)).with_suffix(ending)
            try:
                one = files.read_json(path) if path.is_file() else None
            except UserError:
                one = {}
            if isinstance(one, dict) and all(isinstance(one.get(part), dict) for part in parts):
                stored.append(one)
            elif one is not None:
                self.remark(f"{run.name}: {path.name} is damaged and not shown")
        return stored

    def rows(self, record: Record, data: str) -> Rows | None:
        """The rows that answers belong to, with their labels; None (and a remark) where they cannot be had."""
        digest = record.rows_digest(data)
        at = (data, digest)
        if at not in self._rows:
            try:
                self._rows[at] = _rows(record, data, digest)
            except (UserError, OSError) as error:
                self.remark(f"{data}: no examples are shown, because {without_paths(short(str(error), 200))}")
                self._rows[at] = None
        return self._rows[at]

    def examples(self, task: str, split: str) -> dict[str, Example]:
        """Rows by id of a data set that is only known by its name: from a run of that task, else by the name alone.

        Empty (with a remark) where they cannot be had; whoever asks compares ids.
        """
        at = (f"{task}:{split}", "by name")
        if at not in self._rows:
            mine = [record for record in self.records if task in task_names(record)]
            try:
                whole = task_of(_tree(mine[0], task) if mine else {"tasks": [{"name": task}], "data": None})
                self._rows[at] = Rows(whole, whole.examples(split))
            except (UserError, OSError) as error:
                self.remark(f"{task}:{split}: no texts are shown, because {without_paths(short(str(error), 200))}")
                self._rows[at] = None
        rows = self._rows[at]
        return {example.id: example for example in rows.examples} if rows else {}

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


def _rows(record: Record, data: str, digest: str) -> Rows:
    """From the file that an evaluation read, whatever its name: it may be called as the file of the training."""
    name, split = task_and_split(data)
    asked = record.asked.get(data)
    task = task_of({**record.tree, "tasks": [asked]} if asked else _tree(record, name))
    examples = task.examples(split)
    if digest and task.origin(split).digest != digest:
        raise UserError(f"the rows of {data} are not the ones that {record.name} was scored on")
    return Rows(task, examples)


def _tree(record: Record, name: str) -> Mapping[str, Any]:
    """The config of the run with the task of this name first; elsewhere the name says all."""
    entries = record.tree.get("tasks") or []
    mine = [one for one in entries if records.task_name({"tasks": [one]}) == name]
    if not mine and name.partition("/")[0] not in components.names(
        "tasks"
    ):  # own code, whose name the config does not tell
        mine = [one for one in entries if ".py:" in str(one.get("kind") or one.get("name"))]
    return {**record.tree, "tasks": mine or [{"name": name}]}


def gather(
    folders: Sequence[str | Path],
    baseline: str | None = None,
    *,
    text: bool = True,
    every: bool = False,
    references: Sequence[Reference] = (),
    metric: str | None = None,
) -> PageData:
    """Read the runs at and below the folders; without a baseline the plain method is one, where there is just one.

    `metric`: compare by it instead of each task's main metric.
    """
    runs, remarks = records.read(folders, every=every)
    remarks = [without_paths(line) for line in remarks]
    table = report_table.of_records(runs, baseline, metric, remarks=remarks)
    if baseline is None and _has_plain(runs):
        try:
            table, baseline = report_table.of_records(runs, PLAIN, metric, remarks=remarks), PLAIN
        except UserError:  # several plain rows: nobody can say which is meant
            table = report_table.of_records(runs, None, metric, remarks=remarks)
    return PageData([Path(folder) for folder in folders], runs, table, baseline, text, references, metric)


def _has_plain(found: Sequence[Record]) -> bool:
    kinds = {record.settings.get("method.kind") for record in found}
    return PLAIN in kinds and len(kinds) > 1


# Files of a name at and below some folders.


_NEVER = {"checkpoints", "shards", "kept", "model"}


def below(folders: Sequence[Path], pattern: str) -> Iterator[Path]:
    """In the order of their paths; hidden folders, weights and what was moved aside are not entered."""
    seen: set[Path] = set()
    for folder in folders:
        for place, inner, names in os.walk(folder):
            inner[:] = sorted(name for name in inner if name[0] != "." and name not in _NEVER and ".old-" not in name)
            for name in sorted(names):
                path = Path(place, name)
                if fnmatch(name, pattern) and path.resolve() not in seen:
                    seen.add(path.resolve())
                    yield path


def json_lines(path: Path) -> list[dict[str, Any]]:
    """The mappings of a file with one JSON value a line."""
    found = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    return [one for one in found if isinstance(one, dict)]
