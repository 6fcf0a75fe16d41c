"""The alarm about a model that says the same whatever it reads."""

from pathlib import Path

import pytest

from encodery.inference.outputs import collapsed
from encodery.tasks.base import Task
from encodery.tasks.table import Table


def task(form: str, file: Path) -> Task:
    made = Table.variant({"form": form}).model_validate({"train": str(file), "form": form, "labels": ["a", "b"]})
    assert isinstance(made, Task)
    return made


@pytest.mark.parametrize(
    ("form", "predictions", "alarm"),
    [
        ("single", ["a"] * 9, True),
        ("single", ["a"] * 8 + ["b"], False),
        ("multilabel", [["a", "b"]] * 9, True),
        ("tags", [["O", "O"]] * 9, True),
        ("tags", [["B-PER", "O"], ["O", "B-PER"]] * 5, False),  # the same kinds of tags in every sentence
    ],
)
def test_R15_every_prediction_is_the_same(form: str, predictions: list[object], alarm: bool, tmp_path: Path) -> None:
    answers = {str(i): {"prediction": guess} for i, guess in enumerate(predictions)}
    found = collapsed(task(form, tmp_path / "train.jsonl"), answers)
    assert (found is not None) == alarm
