"""A run that learns from other runs' answers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from encodery.config import load
from encodery.errors import UserError
from encodery.inference.classifier import open_classifier
from encodery.training import build, teacher
from tests.toolbox.runs import config_for, metrics_of, run
from tests.toolbox.tasks import single_task


@pytest.fixture
def student(trained: Callable[..., Path], tmp_path: Path) -> dict[str, Any]:
    task = {**single_task(tmp_path), "teacher": str(trained("single"))}
    return config_for(tmp_path, task, device="cpu")


@pytest.mark.slow
def test_a_teachers_logits_are_targets_in_the_order_of_the_rows(
    student: dict[str, Any], trained: Callable[..., Path], tmp_path: Path
) -> None:
    resolved = load.load(student)
    inputs = build.find_inputs(resolved)
    assert "tasks.0.teacher" in inputs.digests
    (subject,) = build.build(resolved, inputs).tasks_data
    task, table = subject.task, subject.train.table
    model = open_classifier(trained("single"), "cpu")
    wanted = [row["logits"] for row in model.outputs(task.examples("train"), task)]
    assert np.allclose(table.targets["teacher"], np.array(wanted)[np.asarray(table.example)], atol=1e-6)
    done = run(student, tmp_path / "run")
    assert any("loss.table/moods/distill" in record for record in metrics_of(done))


def test_several_teachers_are_the_mean_of_their_probabilities() -> None:
    a, b = np.array([[2.0, 0.0]], np.float32), np.array([[0.0, 1.0]], np.float32)

    def shares(x: np.ndarray) -> np.ndarray:
        return np.asarray(np.exp(x) / np.exp(x).sum(1, keepdims=True))

    assert np.allclose(shares(teacher.together([a, b], "single")), (shares(a) + shares(b)) / 2, atol=1e-6)
    assert np.allclose(teacher.together([a, b], "regression"), (a + b) / 2)
    coins = 1 / (1 + np.exp(-teacher.together([a, b], "multilabel")))
    assert np.allclose(coins, (1 / (1 + np.exp(-a)) + 1 / (1 + np.exp(-b))) / 2, atol=1e-6)


def test_a_teacher_of_other_labels_is_refused(trained: Callable[..., Path], tmp_path: Path) -> None:
    tree = config_for(tmp_path, {**single_task(tmp_path), "teacher": str(trained("pair"))}, device="cpu")
    resolved = load.load(tree)
    with pytest.raises(UserError, match="no head fits"):
        build.build(resolved, build.find_inputs(resolved))
