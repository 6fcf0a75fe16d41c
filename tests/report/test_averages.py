"""The three GLUE averages, against published rows, and statistics over pretrained models."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from encodery.errors import UserError
from encodery.report import table
from tests.report.runs import run

EPOCHS = {"cola": 3, "rte": 10}  # recipes differ from task to task

# GLUE dev rows as published with their own averages, 80.36 and 89.4: electra_pytorch's README and AMOS's.
TASKS = ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte")
ELECTRA_SMALL = dict(zip(TASKS, (58.72, 88.03, 86.04, 86.16, 88.63, 80.4, 87.45, 67.46), strict=True))
AMOS = dict(zip(TASKS, (71.8, 95.5, 91.7, 92.0, 92.4, 90.5, 94.4, 86.6), strict=True))


def glue(
    folder: Path, scores: Mapping[str, float], seed: int = 1, mismatched: float | None = None, **settings: Any
) -> None:
    """One run of each task; F1 and Pearson are ten points below the headline."""
    for task, percent in scores.items():
        value = percent / 100
        metrics = {
            "cola": {"mcc": value, "accuracy": 0.0},
            "stsb": {"spearman": value, "pearson": value - 0.1},
        }.get(task, {"accuracy": value, "f1": value - 0.1})
        more = {"dev_mismatched": {"accuracy": mismatched / 100}} if task == "mnli" and mismatched else {}
        place = folder / f"{task}-{seed}"
        run(place, metrics, f"glue/{task}", seed, more=more, **{"train__epochs": EPOCHS.get(task, 5), **settings})


def averages(found: table.Table) -> dict[str, float]:
    return {row.data: round(100 * row.summary.mean, 2) for row in found.rows if row.metric == "average"}


def test_electra_s_average_is_that_of_eight_tasks(tmp_path: Path) -> None:
    glue(tmp_path, ELECTRA_SMALL)
    found = table.table([tmp_path])
    assert averages(found) == {"GLUE average (ELECTRA)": 80.36}
    assert any("no GLUE average (AMOS): mnli" in remark for remark in found.remarks)


def test_amos_counts_both_parts_of_mnli_once(tmp_path: Path) -> None:
    glue(tmp_path, AMOS, mismatched=90.4)
    assert averages(table.table([tmp_path]))["GLUE average (AMOS)"] == pytest.approx(89.4, abs=0.05)


def test_the_leaderboard_s_has_wnli_and_means_of_two_metrics(tmp_path: Path) -> None:
    glue(tmp_path, AMOS | {"wnli": 65.1}, mismatched=90.4)
    halves = {task: AMOS[task] - 5 for task in ("mrpc", "qqp", "stsb")}
    expected = sum((AMOS | halves | {"wnli": 65.1, "mnli": 90.45}).values()) / 9
    assert averages(table.table([tmp_path]))["GLUE average (leaderboard)"] == pytest.approx(expected, abs=0.005)


@pytest.mark.slow
def test_averages_have_a_spread_over_seeds_that_all_tasks_share(tmp_path: Path) -> None:
    for seed, shift in ((1, 0.0), (2, 1.0), (3, 2.0)):
        glue(tmp_path, {task: value + shift for task, value in ELECTRA_SMALL.items()}, seed)
    row = table.table([tmp_path]).rows[-1]
    assert row.summary.sd == pytest.approx(0.01)
    assert row.summary.best == pytest.approx(0.8236, abs=1e-4)
    glue(tmp_path, {"rte": 70.0}, seed=9)
    row = table.table([tmp_path]).rows[-1]
    assert row.summary.sd is None
    assert row.notes == ["tasks have different seeds: no sd"]


@pytest.mark.slow
def test_systems_have_averages_of_their_own_and_differences(tmp_path: Path) -> None:
    for seed in (1, 2, 3):
        glue(tmp_path / "plain", ELECTRA_SMALL, seed)
        better = {task: value + 1 + seed / 10 for task, value in ELECTRA_SMALL.items()}
        glue(tmp_path / "freelb", better, seed, method={"kind": "freelb"})
    found = table.table([tmp_path], "plain")
    both = {row.settings["method.kind"]: row for row in found.rows if row.metric == "average"}
    assert both["freelb"].more["difference"] == pytest.approx(0.012)
    assert both["plain"].more["is_baseline"]


# Two levels


@pytest.mark.slow
def test_scores_of_seeds_then_of_models(tmp_path: Path) -> None:
    """As in electra_pytorch's table of stability: the score of a model is the average of the best of its seeds."""
    shifts = {"one": (0.0, 1.0), "two": (2.0, 0.5), "three": (-1.0, 0.0)}
    for name, each in shifts.items():
        for seed, shift in enumerate(each, 1):
            moved = {task: value + shift for task, value in ELECTRA_SMALL.items()}
            glue(tmp_path / name, moved, seed, model__name=f"pretrained/{name}")
    found = table.table([tmp_path], models="best")
    row = next(one for one in found.models if one["data"] == "GLUE average (ELECTRA)")
    assert row["of_models"] == pytest.approx(
        {"pretrained/one": 0.81361, "pretrained/two": 0.82361, "pretrained/three": 0.80361}, abs=1e-4
    )
    assert (row["models"], row["score"]) == (3, "best of seeds")
    assert (row["mean"], row["sd"], row["max"], row["min"]) == pytest.approx(
        (0.81361, 0.01, 0.82361, 0.80361), abs=1e-4
    )
    lines = table.markdown(found).splitlines()
    assert any(
        line.endswith("| GLUE average (ELECTRA) | average | best of seeds | 81.36 | 1.00 | 82.36 | 80.36 | 3 |")
        for line in lines
    )
    assert "sd,max,min,models" in table.csv_text(found).splitlines()[0]


def test_models_that_were_pretrained_otherwise_are_not_put_together(tmp_path: Path) -> None:
    for seed in (1, 2, 3):
        made = run(tmp_path / f"pretrain-{seed}", 0.1, "toy/corpus", seed, optim__lr=1e-4 if seed < 3 else 5e-4)
        for tuned in (1, 2):
            run(tmp_path / "tuned" / f"{seed}-{tuned}", 0.5 + seed / 10, "toy/nli", tuned, model__init_from=str(made))
    found = table.table([tmp_path / "tuned"], models="mean").models
    assert {one["pretraining optim.lr"]: one["models"] for one in found} == {"0.0001": 2, "0.0005": 1}
    assert found[0]["sd"] is not None
    assert found[1]["sd"] is None


def test_a_second_level_needs_scores(tmp_path: Path) -> None:
    run(tmp_path / "a", None, state="failed")
    with pytest.raises(UserError, match="no run has a score yet"):
        table.table([tmp_path], models="mean")
