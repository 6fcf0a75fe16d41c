"""A new two-layer encoder learns every toy task well beyond the answer that needs no model, as its recipe says."""

from pathlib import Path

import pytest

from encodery import config
from encodery.run import train_run
from encodery.tasks.toy import Toy

# How far above the commonest answer (or no correlation) a run must end; they end well above these.
MARGINS = {
    "acceptability": 0.1, "sentiment": 0.2, "topic": 0.2, "paraphrase": 0.08, "nli": 0.12, "similarity": 0.3,
    "pos": 0.06, "ner": 0.5, "qa": 0.5,
}  # fmt: skip


def test_every_toy_task_has_a_margin() -> None:
    assert set(MARGINS) == set(Toy.parts) - {"hans"}  # which is only asked, of a model of toy/nli


@pytest.mark.slow
@pytest.mark.parametrize("part", MARGINS)
def test_a_new_two_layer_encoder_learns_it(part: str, tmp_path: Path) -> None:
    resolved = config.load(f"recipe:toy/{part}", ["threads=1", "train.evaluate=end"])
    result = train_run(resolved, tmp_path / "run").read_scores()
    key = f"toy/{part}:dev"
    metric = result["main"][key]
    assert result["scores"][key][metric] > result["majority"][key][metric] + MARGINS[part]
    assert result["alarms"] == []
