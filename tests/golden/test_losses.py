"""Stored losses of a tiny run: whoever changes them changes everybody's results, and must say so.

Numbers are compared to 1e-5, since machines round differently. If this fails after a change that was meant to change
results (another order, another initialisation), run `python -m tests.golden.test_losses` and explain it in CHANGELOG.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.toolbox.runs import run, settings

STORED = Path(__file__).with_name("losses.json")
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "dropout off, linear head": {"model": {"dropout": 0.0, "attention_dropout": 0.0, "head": "linear"}},
    "rows, micro-batches": {"train": {"layout": "rows", "micro_batch": 5}},
    "electra's recipe": {
        "optim": {"bias_correction": False, "warmup_style": "simultaneous", "layer_decay": 0.8, "weight_decay": 0.0},
        "train": {"loss_reduction": "sum"},
    },
}


def losses(folder: Path, case: dict[str, Any]) -> list[float]:
    """Losses and norms of twelve steps, and the dev scores."""
    done = run(settings(folder, **case), folder / "run")
    lines = [line for line in done.metrics() if "loss" in line]
    scores = done.read_scores()["scores"]["table/train:dev"]
    return [*(x for line in lines for x in (line["loss"], line["norm"])), scores["nll"]]


@pytest.mark.parametrize("name", CASES)
def test_losses_are_those_of_yesterday(tmp_path: Path, name: str) -> None:
    stored = json.loads(STORED.read_text())
    found = losses(tmp_path, CASES[name])
    assert len(found) == 25
    assert found == pytest.approx(stored[name], rel=1e-5)


if __name__ == "__main__":
    found = {name: losses(Path(tempfile.mkdtemp()), case) for name, case in CASES.items()}
    STORED.write_text(json.dumps(found, indent=1) + "\n")
