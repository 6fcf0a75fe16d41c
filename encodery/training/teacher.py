"""What a teacher (a run, a model, or several) says to the training rows of a task, as a target beside the labels."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from encodery.core import cache, files
from encodery.errors import UserError
from encodery.inference.classifier import Classifier, open_classifier
from encodery.inference.evaluate import with_head_for
from encodery.models import locate
from encodery.objectives.parts.distill import TEACHER
from encodery.tasks.base import Example, Task
from encodery.tasks.forms.classification import Classification, softmax
from encodery.training.task_data import TaskData

VERSION = 2  # raise it when equal inputs give another file


def taught(task_data: TaskData, folder: Path, device: str) -> TaskData:
    """The subject with its teachers' logits among the targets; without teachers as it is."""
    names = task_data.entry.teachers
    if not names:
        return task_data
    task = task_data.task
    if not isinstance(task, Classification):
        raise UserError(f"tasks.teacher: only labels and numbers are learnt from a teacher, not {task.name}")
    found = kept_logits(names, task, task_data.train.examples, folder, device)
    table = task_data.train.table
    table = table.with_target(TEACHER, found[np.asarray(table.example)])
    return replace(task_data, train=replace(task_data.train, table=table))


def kept_logits(
    names: Sequence[str], task: Classification, examples: Sequence[Example], folder: Path, device: str
) -> np.ndarray:
    """From the cache, or asked now: a run that goes on does not ask again."""
    teachers = locate.digest_of_all(names, folder, task.name)
    content = [VERSION, teachers, task.labels, [[e.id, *e.texts] for e in examples]]
    path = files.cache_root() / "teachers" / f"{files.digest(content)}.npy"
    if not cache.has_array(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        models = [open_classifier(teacher_path(name, folder), device, undecided=True) for name in names]
        answered = together([logits_of(model, task, examples) for model in models], task.answer_form)
        cache.save_array(path, answered)
    found: np.ndarray = np.load(path, allow_pickle=False)
    return found


def teacher_path(name: str, folder: Path) -> str:
    """A folder beside the config, or a name as it is."""
    return str(folder / name) if (folder / name).exists() else name


def logits_of(model: Classifier, task: Task, examples: Sequence[Example]) -> np.ndarray:
    """[examples, outputs] in the order of the task's labels."""
    fitting = with_head_for(model, task)
    rows = {row["id"]: row["logits"] for row in fitting.outputs(examples, task)}
    found = np.array([rows[example.id] for example in examples], np.float32)
    if not task.labels:
        return found
    return np.asarray(found[:, [fitting.head.labels.index(label) for label in task.labels]])


def together(logits: Sequence[np.ndarray], form: str) -> np.ndarray:
    """Several teachers as one: the mean of their probabilities, as logits; of numbers the mean."""
    if len(logits) == 1:
        return logits[0]
    stacked = np.stack(logits).astype(np.float64)
    if form == "regression":
        return np.asarray(stacked.mean(0), np.float32)
    if form == "multilabel":
        yes = (1 / (1 + np.exp(-stacked))).mean(0).clip(1e-12, 1 - 1e-12)
        return np.asarray(np.log(yes) - np.log1p(-yes), np.float32)
    return np.asarray(np.log(softmax(stacked).mean(0).clip(1e-30)), np.float32)
