"""Which seed of each task is sent."""

from pathlib import Path

import pytest

from encodery.errors import UserError
from encodery.report.pick_seed import OPTIMISTIC, pick
from tests.report.runs import run, seeds


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    seeds(tmp_path / "rte", [0.6, 0.9, 0.7, 0.8], task="glue/rte")
    for seed, value in ((3, 0.5), (4, 0.4), (5, 0.6)):
        run(tmp_path / "cola" / f"seed-{seed}", {"mcc": value, "accuracy": 1 - value}, "glue/cola", seed)
    return tmp_path


def names(found: dict) -> dict[str, str]:
    return {task: one.run.name for task, one in found.items()}


def test_best_and_median_are_those_of_the_main_dev_score(sweep: Path) -> None:
    best, remarks = pick([sweep], "best")
    assert names(best) == {"glue/rte": "seed-2", "glue/cola": "seed-5"}
    assert remarks == [OPTIMISTIC]
    assert best["glue/rte"].words == "best of 4 seeds on dev: seed 2, accuracy 0.9000"
    median, remarks = pick([sweep], "median")
    assert names(median) == {"glue/rte": "seed-3", "glue/cola": "seed-3"}  # of four the lower of the middle two
    assert remarks == []


def test_seeds_can_be_named(sweep: Path) -> None:
    found, _ = pick([sweep], "rte=4,glue/cola=3")
    assert names(found) == {"glue/rte": "seed-4", "glue/cola": "seed-3"}
    assert found["glue/cola"].words == "seed 3, as asked, mcc 0.5000 on dev"


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("rte=4", "say which seed of cola too"),
        ("rte=9,cola=3", "--pick rte=9: no finished run has that seed; there are 1, 2, 3, 4"),
        ("sst2=1,rte=1,cola=3", "there is no run of sst2; there are cola, rte"),
        ("worst", "expected best, median, or seeds by task"),
        ("rte=", "expected best, median, or seeds by task"),
    ],
)
def test_mistakes_are_named(sweep: Path, how: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        pick([sweep], how)


def test_several_configurations_are_named_and_refused(sweep: Path) -> None:
    run(sweep / "other", 0.99, "glue/rte", 7, optim__lr=3e-5)
    with pytest.raises(UserError, match=r"glue/rte has several configurations:\n  optim.lr=2e-05\n  optim.lr=3e-05"):
        pick([sweep], "best")


def test_failed_runs_are_not_picked_and_other_tasks_left_out(sweep: Path) -> None:
    run(sweep / "rte" / "seed-5", None, "glue/rte", 5, state="failed")
    run(sweep / "toy", 0.9, "toy/nli")
    found, remarks = pick([sweep], "median")
    assert found["glue/rte"].words.endswith("(1 more not finished)")
    assert any("toy/nli is not a GLUE task" in remark for remark in remarks)
    with pytest.raises(UserError, match="no runs of GLUE tasks"):
        pick([sweep / "toy"], "best")
    run(sweep / "bad" / "mrpc", None, "glue/mrpc", state="failed")
    with pytest.raises(UserError, match="glue/mrpc: its only run is not finished"):
        pick([sweep / "bad"], "best")
