"""A data file as a task: with the columns and labels of the run that shall answer it, else as the file itself says."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from encodery.config.layers import is_data_file
from encodery.errors import UserError
from encodery.inference.answer_head import speaks
from encodery.runs.directory import RunDir
from encodery.tasks.base import Task
from encodery.tasks.sources.file_layout import columns_in
from encodery.tasks.sources.infer_table import infer
from encodery.tasks.sources.own_files import Own
from encodery.tasks.table import Table

SPLIT = "test"  # of such a task; its labels may be absent
# What a run's own task says about any file with such rows.
_KEPT = (
    "form", "text", "text2", "label", "id", "candidates", "labels", "label_separator", "window_stride", "pool",
    "stride",
    "train_on_special_labels", "head", "max_question", "max_answer", "null_threshold", "metric", "metrics", "positive",
)  # fmt: skip
_COLUMNS = ("text", "text2", "label", "id", "candidates")
_AMBIGUOUS = (".txt", ".jsonl", ".ndjson", ".json")  # may be plain text for a pretrained model


def of_file(name: str, runs: Sequence[RunDir], columns: Mapping[str, Any], labelled: bool = True) -> Task | None:
    """The task that a file is; None if the word names no such file, or if the file is text for a pretrained model.

    A file that lacks the label column of the run has no labels; without `labelled` none are read.
    """
    path = Path(name).expanduser()
    if not is_data_file(name) or not path.is_file():
        return None
    heads = [(head, about) for run in runs for head, about in _heads(run).items()]
    if not heads and path.suffix.lower() in _AMBIGUOUS and (runs or not _has_rows(path)):
        return None
    like, given = _given(path, heads)
    labels = given.get("labels")
    given |= {key: value for key, value in columns.items() if value is not None}
    if columns.get("labels") and isinstance(labels, list):
        given["labels"] = _renamed(columns["labels"], labels)
    lacking = _lacking(path, given) if columns.get("label") is None else None
    found = infer(path, given, labelled and lacking is None, flag="--{}-column")
    task = _built({"train": None, "dev": None, SPLIT: str(path.absolute()), **found.options}).asking_like(like)
    if isinstance(task, Table) and not (labelled and lacking is None):
        task.without_labels(lacking)
    return task


def unlabelled(path: Path, run: RunDir, own: Mapping[str, Any], flag: str) -> dict[str, Any] | None:
    """The settings of a file that lacks the label column of a run; None if it has it. `own` ones stay."""
    _, given = _given(path, list(_heads(run).items()))
    given = {key: value for key, value in given.items() if key in _KEPT} | dict(own)
    if _lacking(path, given) is None:
        return None
    return {"kind": "table", SPLIT: str(path.absolute()), **infer(path, given, labelled=False, flag=flag).options}


def _lacking(path: Path, given: Mapping[str, Any]) -> str | None:
    """The label column of the run, if the file does not have it."""
    label, there = given.get("label"), set(columns_in(path))
    if label is None or not there or _here(label, there):
        return None
    return ", ".join(map(str, label)) if isinstance(label, list) else str(label)


def _heads(run: RunDir) -> dict[str, Any]:
    """What the run's model answers: its heads by the names of their tasks."""
    from encodery.models.model import read_card  # brings torch, which a file without runs does not need

    card = read_card(run.model)
    return {head: about for head, about in (card or {"tasks": {}})["tasks"].items() if speaks(about)}


def _has_rows(path: Path) -> bool:
    """Whether a file that could be plain text is a table."""
    try:
        infer(path, {}, labelled=path.suffix.lower() == ".txt")
    except UserError:
        return False
    return True


def _given(path: Path, heads: Sequence[tuple[str, Any]]) -> tuple[str | None, dict[str, Any]]:
    """The head that is asked, and what its task says of the file: the first one whose columns the file has."""
    there = set(columns_in(path))
    for head, about in heads:
        task = about.get("task") or {}
        if "train" in task and "form" in task and (not there or task.get("text") in there):
            kept = {key: task[key] for key in _KEPT if task.get(key) is not None}
            missing = [
                key
                for key in _COLUMNS
                if key != "label" and there and kept.get(key) is not None and not _here(kept[key], there)
            ]
            return head, _with_labels({k: v for k, v in kept.items() if k not in missing}, about)
    if not heads:
        return None, {}
    head, about = heads[0]
    return head, _with_labels(_form(about), about)


def _renamed(new_names: Mapping[str, str], labels: Sequence[str]) -> dict[str, str]:
    """New names for the labels of a file; those of the run keep theirs, also where no row has them."""
    for new in new_names.values():
        if new not in labels:
            raise UserError(f"--rename-labels: {new} is not a label of the run; it has {', '.join(labels)}")
    return {label: label for label in labels} | dict(new_names)


def _here(column: Any, there: set[str]) -> bool:
    return set(column if isinstance(column, list) else [column]) <= there


def _form(about: Mapping[str, Any]) -> dict[str, Any]:
    """What a head of another kind of task asks: its form, with a second text where it reads two."""
    form = about["objective"].get("form")
    if form is None:
        return {"form": {"tagging": "tags", "span": "spans"}.get(about["objective"]["kind"], "ranking")}
    return {"form": "pair" if form == "single" and about.get("texts") == 2 else form}


def _with_labels(given: dict[str, Any], about: Mapping[str, Any]) -> dict[str, Any]:
    """The labels of the head, in its order, unless the run itself renames those of its files."""
    if given["form"] in ("regression", "spans", "ranking") or isinstance(given.get("labels"), dict):
        return given
    return given | {"labels": list(about["labels"])}


def _built(options: dict[str, Any]) -> Own:
    try:
        task = Table.variant(options).model_validate(options)
    except ValidationError as error:
        reasons = "; ".join(one["msg"].removeprefix("Value error, ") for one in error.errors())
        raise UserError(f"{options[SPLIT]}: {reasons}") from None
    assert isinstance(task, Own)
    return task
