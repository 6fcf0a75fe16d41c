"""A prediction file, written and scored."""

import json
from collections.abc import Mapping
from pathlib import Path

from encodery.scoring.prediction_files import answers_of
from encodery.tasks.base import Answer, Task


def score_file(path: str | Path, task: Task, split: str) -> dict[str, float]:
    answers, examples = answers_of(path, task, split)
    return task.score(answers, examples)


def write_predictions(path: Path, answers: Mapping[str, Answer]) -> None:
    lines = [json.dumps({"id": id, **answer}, ensure_ascii=False) + "\n" for id, answer in answers.items()]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(lines), encoding="utf-8")
