"""What a teacher (a run, a model, or several) says to the training rows of a task, as a target beside the labels."""

import hashlib
import json
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path

import numpy as np

from encodery import cache, files
from encodery.build import teacher_digest
from encodery.classifier import Classifier, open_classifier
from encodery.data.tokens import TokenTable
from encodery.errors import UserError
from encodery.evaluate import with_head_for
from encodery.objectives._distill import TEACHER
from encodery.subject import Subject
from encodery.tasks.base import Example, Task
from encodery.tasks.classify import Classification

VERSION = 2  # raise it when equal inputs give another file


def taught(subject: Subject, folder: Path, device: str) -> Subject:
    """The subject with its teachers' logits among the targets; without teachers as it is."""
    names = subject.entry.teachers
    if not names:
        return subject
    task = subject.task
    if not isinstance(task, Classification):
        raise UserError(f"tasks.teacher: only labels and numbers are learnt from a teacher, not {task.name}")
    found = kept_logits(names, task, subject.train.examples, folder, device)
    table = with_target(subject.train.table, found)
    return replace(subject, train=replace(subject.train, table=table))


def with_target(table: TokenTable, logits: np.ndarray) -> TokenTable:
    """The table with a row of logits for each sequence's example."""
    new = copy(table)
    new.__dict__["targets"] = {**table.targets, TEACHER: logits[np.asarray(table.example)]}
    return new


def kept_logits(
    names: Sequence[str], task: Classification, examples: Sequence[Example], folder: Path, device: str
) -> np.ndarray:
    """From the cache, or asked now: a run that goes on does not ask again."""
    content = [VERSION, teacher_digest(names, folder), task.labels, [[e.id, *e.texts] for e in examples]]
    key = hashlib.sha256(json.dumps(content, ensure_ascii=True).encode()).hexdigest()
    path = files.cache_root() / "teachers" / f"{key}.npy"
    if not cache.has_array(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        models = [open_classifier(place(name, folder), device, undecided=True) for name in names]
        answered = together([logits_of(model, task, examples) for model in models], task.answer_form)
        cache.save_array(path, answered)
    found: np.ndarray = np.load(path, allow_pickle=False)
    return found


def place(name: str, folder: Path) -> str:
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


def together(found: Sequence[np.ndarray], form: str) -> np.ndarray:
    """Several teachers as one: the mean of their probabilities, as logits; of numbers the mean."""
    if len(found) == 1:
        return found[0]
    stacked = np.stack(found).astype(np.float64)
    if form == "regression":
        return np.asarray(stacked.mean(0), np.float32)
    if form == "multilabel":
        yes = (1 / (1 + np.exp(-stacked))).mean(0).clip(1e-12, 1 - 1e-12)
        return np.asarray(np.log(yes) - np.log1p(-yes), np.float32)
    shares = np.exp(stacked - stacked.max(2, keepdims=True))
    shares = (shares / shares.sum(2, keepdims=True)).mean(0)
    return np.asarray(np.log(shares.clip(1e-30)), np.float32)
