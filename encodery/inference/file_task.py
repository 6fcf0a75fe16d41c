"""A data file as a task: with the columns and labels of the run that shall answer it, else as the file itself says."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from encodery.config.layers import is_data_file
from encodery.core import files
from encodery.errors import UserError
from encodery.inference.answer_head import no_such_head, speaks
from encodery.models import locate
from encodery.runs.directory import RunDir
from encodery.tasks.base import Task
from encodery.tasks.sources.file_layout import columns_in
from encodery.tasks.sources.infer_table import infer
from encodery.tasks.sources.own_files import Own
from encodery.tasks.table import Table

Head = tuple[str, Any]  # its name, and what the card beside the weights says of it
SPLIT = "test"  # of such a task; its labels may be absent
# What a run's own task says about any file with such rows.
_KEPT = (
    "form", "text", "text2", "label", "id", "candidates", "labels", "label_separator", "window_stride", "pool",
    "stride",
    "train_on_special_labels", "head", "max_question", "max_answer", "null_threshold", "metric", "metrics", "positive",
)  # fmt: skip
_COLUMNS = ("text", "text2", "label", "id", "candidates")
_AMBIGUOUS = (".txt", ".jsonl", ".ndjson", ".json")  # may be plain text for a pretrained model


def of_file(
    name: str,
    runs: Sequence[RunDir],
    columns: Mapping[str, Any],
    labelled: bool = True,
    head: str | None = None,
    models: Sequence[str] = (),
) -> Task | None:
    """The task that a file is; None if the word names no such file, or if the file is text for a pretrained model.

    A file that lacks the label column of the run has no labels; without `labelled` none are read. Of several heads
    (of the `runs`, or of other `models` that say what they were trained on) `head` answers, else the only one that the
    file fits.
    """
    path = Path(name).expanduser()
    if not is_data_file(name) or not path.is_file():
        return None
    answering = _answering(runs, models, head)
    heads = [one for _, own in answering for one in own]
    if not heads and path.suffix.lower() in _AMBIGUOUS and (runs or not _has_rows(path)):
        return None
    several = next((model for model in answering if len(model[1]) > 1), None)
    if labelled and several:
        return _only_fitting(path, *several, columns)
    return _read_by(path, heads, columns, labelled)


def _answering(runs: Sequence[RunDir], models: Sequence[str], wanted: str | None) -> list[tuple[str, list[Head]]]:
    """Every model whose card says what its heads ask, with these heads, or only with the one that is wanted."""
    cards = [(str(run.path), _heads(run.model)) for run in runs]
    cards += [(name, _heads(locate.resolve(name).path)) for name in models if not files.is_run(name)]
    for source, heads in cards:
        if wanted is not None and heads and wanted not in heads:
            raise UserError(no_such_head(source, wanted, list(heads)))
    return [(source, [one for one in heads.items() if wanted in (None, one[0])]) for source, heads in cards]


def _only_fitting(path: Path, source: str, heads: Sequence[Head], columns: Mapping[str, Any]) -> Task:
    """The file as the task of the only head that it fits, in form, columns and labels; else an error says why not."""
    there = set(columns_in(path))
    exact = [one for one in heads if _has_columns(one[1], there, columns)]
    reasons: dict[str, str] = {}
    for candidates in (exact, heads):
        fitting: dict[str, Task] = {}
        for head, about in candidates:
            try:
                fitting[head] = _readable(_read_by(path, [(head, about)], columns, labelled=True))
            except UserError as error:
                reasons[head] = " ".join(line.strip() for line in str(error).splitlines()[:2])
        if len(fitting) > 1:
            task = next(iter(fitting.values()))
            raise UserError(f"{source}: the heads {', '.join(fitting)} all fit {task.name}; choose one with --head")
        if fitting:
            return next(iter(fitting.values()))
    listed = "".join(f"\n  {head}: {reason}" for head, reason in reasons.items())
    raise UserError(f"{path}: fits none of the heads of {source}; --head names the one that is meant:{listed}")


def _has_columns(about: Mapping[str, Any], there: set[str], columns: Mapping[str, Any]) -> bool:
    """Whether the file has all columns of the head's own files; published tasks have none that a file must have."""
    task = about.get("task") or {}
    if "train" not in task or not there:
        return True
    named = [columns.get(key) or task.get(key) for key in _COLUMNS if key != "id"]
    return all(_here(name, there) for name in named if name is not None)


def _readable(task: Task) -> Task:
    """The task, if one of its rows at least can be read; a few bad ones say nothing about which head is meant."""
    lenient = type(task).model_validate(task.to_dict() | {"skip_bad_rows": True})
    if isinstance(task, Table) and isinstance(lenient, Table) and task.unread:
        lenient.without_labels(task.lacking)
    if not _rows(lenient):
        task.examples(SPLIT)  # says what is wrong with them
    return task


def _rows(task: Task) -> int:
    try:
        return len(task.examples(SPLIT))
    except UserError:
        return 0


def _read_by(path: Path, heads: Sequence[Head], columns: Mapping[str, Any], labelled: bool) -> Task:
    """The file as a task with what the first of these heads with its text column says of it."""
    like, given = _given(path, heads)
    labels = given.get("labels")
    given |= {key: value for key, value in columns.items() if value is not None}
    if columns.get("labels") and isinstance(labels, list):
        given["labels"] = _renamed(columns["labels"], labels)
    lacking = _lacking(path, given) if columns.get("label") is None else None
    inferred = infer(path, given, labelled and lacking is None, flag="--{}-column")
    if like is not None and inferred.options.get("form") != given["form"]:
        raise UserError(
            f"{path}: has the form {inferred.options.get('form')}, but the head {like} answers {given['form']}"
        )
    task = _built({"train": None, "dev": None, SPLIT: str(path.absolute()), **inferred.options}).asking_like(like)
    if isinstance(task, Table) and not (labelled and lacking is None):
        task.without_labels(lacking)
    return task


def unlabelled(path: Path, run: RunDir, own: Mapping[str, Any], flag: str) -> dict[str, Any] | None:
    """The settings of a file that lacks the label column of a run; None if it has it. `own` ones stay."""
    _, given = _given(path, list(_heads(run.model).items()))
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


def _heads(model: Path) -> dict[str, Any]:
    """What a model answers: its heads by the names of their tasks; none where no card lies beside the weights."""
    # brings torch, which a file without models does not need
    from encodery.models.model import read_card, require_openable

    card = read_card(model)
    speaking = {head: about for head, about in (card or {"tasks": {}})["tasks"].items() if speaks(about)}
    require_openable(model, speaking)
    return speaking


def _has_rows(path: Path) -> bool:
    """Whether a file that could be plain text is a table."""
    try:
        infer(path, {}, labelled=path.suffix.lower() == ".txt")
    except UserError:
        return False
    return True


def _given(path: Path, heads: Sequence[Head]) -> tuple[str | None, dict[str, Any]]:
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
        reasons = "; ".join(dict.fromkeys(_reason(one, options) for one in error.errors()))
        raise UserError(f"{options[SPLIT]}: {reasons}") from None
    assert isinstance(task, Own)
    return task


def _reason(error: Mapping[str, Any], options: Mapping[str, Any]) -> str:
    """What is wrong with a setting, which is named: a head of another form has settings that this one does not know."""
    name = ".".join(map(str, error["loc"]))
    if error["type"] == "extra_forbidden":
        return f"{name} is no setting of the form {options.get('form')}"
    reason = str(error["msg"]).removeprefix("Value error, ")
    return f"{name}: {reason}" if name and not reason.startswith(name) else reason
