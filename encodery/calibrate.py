"""Is a model asked in the way it was trained? The order of unnamed labels, and answers that must come out again."""

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass

from encodery import config
from encodery.classifier import Classifier, with_labels
from encodery.errors import UserError
from encodery.on import Asked
from encodery.rundir import RunDir
from encodery.tasks.base import Task

CLEAR = 0.15  # by so much the best order must beat the next one
ROWS = 256  # answers of a run that are asked for again
DIFFERENT = 0.01  # share of them that rounding may change


@dataclass(frozen=True)
class Found:
    """The order of labels that fits best, with its accuracy and the next best one's."""

    labels: tuple[str, ...]
    accuracy: float
    next_best: float

    def __str__(self) -> str:
        order = ", ".join(f"{i} = {label}" for i, label in enumerate(self.labels))
        return f"labels by calibration: {order} (accuracy {self.accuracy:.3f}, the next order {self.next_best:.3f})"


def calibrated(model: Classifier, asked: Asked) -> tuple[Classifier, Found]:
    """The model with names for its outputs: the order that answers a labelled split best, if it is unmistakable."""
    task, examples = asked.task, asked.task.examples(asked.split)
    if len(task.labels) != len(model.labels):
        raise UserError(
            f"--calibrate: {model.source} has {len(model.labels)} outputs, {task.name} has {len(task.labels)} labels"
        )
    if any(example.label is None for example in examples):
        raise UserError(f"--calibrate: the labels of {asked.key} are hidden")
    rows = model.outputs(examples, task)
    guesses = [max(range(len(row["logits"])), key=row["logits"].__getitem__) for row in rows]
    found = best_order(guesses, [str(example.label) for example in examples], task.labels)
    if found.accuracy - found.next_best < CLEAR:
        raise UserError(
            f"--calibrate: on {asked.key} the best order of labels has accuracy {found.accuracy:.3f} and the next one "
            f"{found.next_best:.3f}: nobody can tell which is right; give --labels"
        )
    return with_labels(model, found.labels), found


def best_order(guesses: Sequence[int], gold: Sequence[str], labels: Sequence[str]) -> Found:
    """Of all orders the one with the highest accuracy."""
    right = {
        order: sum(order[guess] == label for guess, label in zip(guesses, gold, strict=True)) / len(gold)
        for order in itertools.permutations(labels)
    }
    first, second = sorted(right, key=right.__getitem__, reverse=True)[:2]
    return Found(first, right[first], right[second])


def path_alarm(model: Classifier, run: RunDir, task: Task, allow_code: bool = False) -> str | None:
    """A sentence if the run's own dev answers do not come out again when its rows go the way of this task's."""
    own = config.load(run.path, allow_code=allow_code).tasks[0][0]
    for split in ("dev", "dev_mismatched"):
        path = run.predictions_path(own.name, split)
        if path.is_file() and own.has(split):
            return _compare(model, task, own, split, path.read_text(encoding="utf-8"))
    return None


def _compare(model: Classifier, task: Task, own: Task, split: str, text: str) -> str | None:
    known = {row["id"]: row["prediction"] for row in map(json.loads, text.splitlines()[:ROWS])}
    examples = [example for example in own.examples(split) if example.id in known]
    if not examples:
        return None
    answers = model.answers(examples, task)
    other = [id for id in (e.id for e in examples) if answers[id]["prediction"] != known[id]]
    if len(other) <= DIFFERENT * len(examples):
        return None
    return (
        f"{len(other)} of {len(examples)} rows of {own.name}:{split} are answered otherwise than the run itself did "
        f"(first: {other[0]}): the model is not asked as it was trained"
    )
