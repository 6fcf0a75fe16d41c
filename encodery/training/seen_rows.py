"""Rows of an evaluation that the run was trained on: their scores say little about other rows."""

from collections.abc import Sequence

from encodery.config import load
from encodery.errors import UserError
from encodery.inference.task_argument import TaskSplit
from encodery.runs.directory import RunDir
from encodery.tasks.base import Task
from encodery.tasks.sources.own_files import Own
from encodery.training.task_data import trained_on


def seen(runs: Sequence[RunDir], asked: TaskSplit, allow_code: bool = False) -> str | None:
    """`216 of 240 rows have texts that the run was trained on`; None if no row has, or nothing tells."""
    if not _may_be_seen(asked):
        return None
    sentences = (_of_run(run, asked, allow_code) for run in runs)
    return next(filter(None, sentences), None)


def _may_be_seen(asked: TaskSplit) -> bool:
    """Whether it is worth a look: a file by itself, or training rows. What a run set aside it has not trained on."""
    task, split = asked
    return task.labelled and (split == "train" or (isinstance(task, Own) and task.train is None))


def _of_run(run: RunDir, asked: TaskSplit, allow_code: bool) -> str | None:
    rows = asked.task.examples(asked.split)
    texts = _texts(run, asked.task, allow_code)
    most = 0 if texts else _rows_of_the_file(run, asked)
    count = sum(example.texts in texts for example in rows) or min(most, len(rows))
    words = "up to " if most else ""
    return f"{words}{count:,} of {len(rows):,} rows have texts that the run was trained on" if count else None


def _texts(run: RunDir, asked: Task, allow_code: bool) -> set[tuple[str, ...]]:
    """The texts that a run was trained on, where its training rows are at hand and still the same."""
    try:
        resolved = load.load(run.path, allow_code=allow_code)
        return {
            example.texts
            for task, entry in resolved.tasks
            if (isinstance(task, Own) or task.name == asked.name) and _is_here(run, task)
            for example in trained_on(task, entry, resolved.config)
        }
    except (UserError, OSError):  # files that were moved, a selection that is gone, own code
        return set()


def _is_here(run: RunDir, task: Task) -> bool:
    known = run.rows_of(task.name, "train").get("digest")
    return task.labelled and task.has("train") and task.origin("train").digest == known


def _rows_of_the_file(run: RunDir, asked: TaskSplit) -> int:
    """How many rows the run had from this very file, as far as digests of files tell."""
    mine = set(asked.task.origin(asked.split).files.values())
    known = [run.rows_of(name, "train") for name in run.task_names()]
    return max((int(about["rows"]) for about in known if mine & set(about.get("files", {}).values())), default=0)
