"""Which examples a run answered rightly: for tests over examples. The rows are read again and must be the same."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from encodery.config.load import find
from encodery.config.schema import Entry
from encodery.errors import UserError
from encodery.report import stats
from encodery.report.groups import Row
from encodery.report.records import Record
from encodery.runs.directory import RunDir, task_and_split
from encodery.tasks.base import Answer, Example, Label, Task


class Marks:
    """Right or wrong by run and example, read once; what cannot be had becomes a remark."""

    def __init__(self) -> None:
        self._right: dict[tuple[str, str], dict[str, bool] | None] = {}
        self._gold: dict[tuple[str, str], Sequence[Example] | None] = {}
        self.remarks: list[str] = []

    def test(self, row: Row, base: Row, seed: int | str) -> float | None:
        """McNemar's p for two runs of a seed; None for numbers, averages, and rows that are not the same."""
        pair = [one.runs.get(seed) for one in (row, base)]
        if pair[0] is None or pair[1] is None:
            return None
        if pair[0].rows_digest(row.data) != pair[1].rows_digest(row.data):
            self._remark(f"{row.data}: not all runs were scored on the same rows, so no test over examples")
            return None
        mine, theirs = self.right(pair[0], row.data), self.right(pair[1], row.data)
        if mine is None or theirs is None or mine.keys() != theirs.keys():
            return None
        alone = sum(mine[id] and not theirs[id] for id in mine)
        return stats.mcnemar(alone, sum(theirs[id] and not mine[id] for id in mine))

    def right(self, record: Record, data: str) -> dict[str, bool] | None:
        """Whether each example was answered rightly."""
        at = (str(record.path), data)
        if at not in self._right:
            self._right[at] = self._read(record, data)
        return self._right[at]

    def _read(self, record: Record, data: str) -> dict[str, bool] | None:
        name, split = task_and_split(data)
        run = RunDir(record.path)
        path = run.predictions_path(name, split)
        examples = self._examples(record, data) if path.is_file() else None
        if examples is None:
            return None
        try:
            said = run.read_predictions(name, split)
            return {example.id: is_right(said[example.id]["prediction"], example.label) for example in examples}
        except (UserError, OSError, KeyError):
            self._remark(f"{path}: not all examples are answered there, so no test over examples")
            return None

    def _examples(self, record: Record, data: str) -> Sequence[Example] | None:
        at = (data, record.rows_digest(data))
        if at not in self._gold:
            try:
                self._gold[at] = _labelled(record, data)
            except UserError as error:
                self._remark(f"no test over examples of {data}: {error}")
                self._gold[at] = None
        return self._gold[at]

    def _remark(self, sentence: str) -> None:
        if sentence not in self.remarks:
            self.remarks.append(sentence)


def _labelled(record: Record, data: str) -> Sequence[Example] | None:
    """The rows that the run was scored on, with their labels; None where answers are numbers.

    An evaluation of a file stores how it was read: it may be called as the file of the training, or otherwise.
    """
    name, split = task_and_split(data)
    asked = record.asked.get(data)
    if asked is None and name != record.task:
        raise UserError("that was not the task of the run")
    task = task_of({**record.tree, "tasks": [asked]} if asked else record.tree)
    if not task.labels:
        return None
    if task.origin(split).digest != record.rows_digest(data):
        raise UserError(f"its rows are not the ones that {record.path} was scored on")
    examples = task.examples(split)
    return None if any(example.label is None for example in examples) else examples


def task_of(tree: Mapping[str, Any]) -> Task:
    """The task of a stored config. Own code is not run, and nothing heavy is imported: `config.load` would do both."""
    entry = {key: value for key, value in tree["tasks"][0].items() if key not in Entry.model_fields}
    family, _, part = str(entry.pop("name", "") or "").partition("/")
    kind = entry.pop("kind", None)
    if kind is None:
        entry |= {"part": part} if part else {}
    elif family:
        entry["name"] = "/".join(filter(None, (family, part)))
    if ".py:" in (kind or family):
        raise UserError("its task is own code, which tables and reports do not run (scores and curves are shown)")
    entry["data"] = entry.get("data") or tree.get("data")
    try:
        kinds = find("tasks", kind or family)
        assert issubclass(kinds, Task)
        task = kinds.variant(entry).model_validate_json(json.dumps(entry))
    except ValidationError as error:
        ours = [one["msg"].removeprefix("Value error, ") for one in error.errors() if one["type"] == "value_error"]
        name = "/".join(filter(None, (family, part))) or kind
        raise UserError("; ".join(ours) or f"the run's config does not say where the rows of {name} are") from None
    return task


def is_right(said: Any, label: Label) -> bool:
    """One label, or exactly the set of labels."""
    if isinstance(label, tuple):
        return set(said if isinstance(said, list) else [said]) == set(label)
    return bool(said == label)


# Two models on the same examples: where only one of them is right.


def paired(
    examples: Sequence[Example], mine: Mapping[str, Answer], theirs: Mapping[str, Answer]
) -> list[dict[str, Any]]:
    """McNemar's test over all examples, and over those of each heuristic and label where the task has such;
    several p are adjusted by Holm."""
    kinds: dict[str, list[Example]] = {"all": list(examples)}
    for example in examples:
        if "heuristic" in example.extra:
            kinds.setdefault(f"{example.extra['heuristic']} {example.label}", []).append(example)
    found = [{"what": what, **_marks(rows, mine, theirs)} for what, rows in kinds.items()]
    adjusted = stats.holm([one["p"] for one in found])
    return [{**one, "p_holm": p} for one, p in zip(found, adjusted, strict=True)]


def _marks(rows: Sequence[Example], mine: Mapping[str, Answer], theirs: Mapping[str, Answer]) -> dict[str, Any]:
    right = [(is_right(mine[e.id]["prediction"], e.label), is_right(theirs[e.id]["prediction"], e.label)) for e in rows]
    won, lost = sum(a and not b for a, b in right), sum(b and not a for a, b in right)
    return {"rows": len(rows), "won": won, "lost": lost, "p": stats.mcnemar(won, lost)}
