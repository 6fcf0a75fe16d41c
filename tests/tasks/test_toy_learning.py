"""A new two-layer encoder learns every toy task well beyond the answer that needs no model, as its recipe says."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from encodery.config import load
from encodery.errors import RunFailed
from encodery.inference import outputs
from encodery.runs.directory import RunDir
from encodery.tasks.toy import Toy
from encodery.training.loop import StepReport
from encodery.training.run import train_run

# How far above the commonest answer (or no correlation) a run must end; they end well above these.
MARGINS = {
    "acceptability": 0.1, "sentiment": 0.2, "topic": 0.2, "paraphrase": 0.08, "nli": 0.12, "similarity": 0.3,
    "pos": 0.06, "ner": 0.5, "qa": 0.5,
}  # fmt: skip


def test_every_toy_task_has_a_margin() -> None:
    assert set(MARGINS) == set(Toy.parts) - {"hans"}  # which is only asked, of a model of toy/nli


@pytest.mark.slow
def test_a_new_two_layer_encoder_learns_it_to_the_end(tmp_path: Path) -> None:
    resolved = load.load("recipe:toy/nli", ["threads=1", "train.evaluate=end"])
    result = train_run(resolved, tmp_path / "run").read_scores()
    key = "toy/nli:dev"
    metric = result["main"][key]
    assert result["scores"][key][metric] > result["majority"][key][metric] + MARGINS["nli"]
    assert result["alarms"] == []


class Learned(RunFailed):
    """Enough was seen."""


@pytest.mark.slow
@pytest.mark.parametrize("part", [part for part in MARGINS if part != "nli"])
def test_a_new_two_layer_encoder_learns_it(part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the way of its recipe; what comes after is not waited for."""
    resolved = load.load(f"recipe:toy/{part}", ["threads=1", "train.evaluate=1/2 epoch"])
    task, _ = resolved.tasks[0]
    simplest = outputs.majority(task, task.examples("train"), task.examples("dev"))[task.main_metric]
    found: list[float] = []
    record = RunDir.record

    def heard(self: RunDir, step: int, **values: Any) -> None:
        record(self, step, **values)
        found.extend(value for name, value in values.items() if name == f"eval.{task.main_metric}")

    def watch(_: StepReport) -> None:
        if found and max(found) > simplest + MARGINS[part]:
            raise Learned

    monkeypatch.setattr(RunDir, "record", heard)
    with suppress(Learned):
        train_run(resolved, tmp_path / "run", watch=watch)
    assert max(found) > simplest + MARGINS[part]
