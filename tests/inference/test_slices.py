"""Scores by the values of a column, with intervals, from `evaluate --by` to `table --by`."""

import json
from pathlib import Path

import pytest

from encodery.cli import main
from encodery.core.files import read_json
from encodery.inference.evaluate import Evaluation
from encodery.inference.slices import interval, slices_of
from encodery.inference.task_argument import TaskSplit
from encodery.report.stats import wilson
from encodery.tasks.table import Table
from tests.toolbox.runs import run, settings
from tests.toolbox.tasks import write_rows


def evaluation(folder: Path, **options) -> Evaluation:
    """Forty rows: of the twenty of source a all are answered rightly, of b half."""
    lines = [f"text {i},{'xy'[i % 2]},{'ab'[i // 20]}" for i in range(40)]
    (folder / "gold.csv").write_text("text,label,source\n" + "\n".join(lines) + "\n")
    task = Table.model_validate({"dev": str(folder / "gold.csv"), **options})
    answers = {
        str(i): {"prediction": "xy"[i % 2] if i < 30 else "yx"[i % 2], "probabilities": {"x": 0.5, "y": 0.5}}
        for i in range(40)
    }
    asked = TaskSplit(task, "dev")
    return Evaluation(asked, answers, task.score(answers, task.examples("dev")), ("h",))


def test_each_value_has_its_score_and_wilsons_interval(tmp_path):
    found = {one["value"]: one for one in slices_of(evaluation(tmp_path), "source")}
    assert {value: one["rows"] for value, one in found.items()} == {"a": 20, "b": 20}
    assert found["a"]["scores"]["accuracy"] == 1.0
    assert found["b"]["scores"]["accuracy"] == 0.5
    assert (found["b"]["low"], found["b"]["high"]) == wilson(0.5, 20)
    assert found["a"]["low"] > found["b"]["high"]


@pytest.mark.slow
def test_other_metrics_have_a_bootstrap_over_rows_and_few_rows_none(tmp_path):
    found = evaluation(tmp_path, metric="macro_f1")
    rows = found.asked.task.examples("dev")
    score = found.asked.task.score(found.answers, rows)["macro_f1"]
    low, high = interval(found, rows, score)
    assert 0.5 < low < score < high < 1.0
    assert interval(found, rows, score) == (low, high)
    assert interval(found, rows[:9], 0.5) == (None, None)


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory) -> Path:
    """Two seeds of a tiny run, both evaluated by two columns of a file."""
    home = tmp_path_factory.mktemp("slices")
    tree = settings(home, train={"max_steps": 2})
    write_rows(home / "plain.csv", 24, 3)
    header, *lines = (home / "plain.csv").read_text().splitlines()
    rows = [f"{line},{'web' if i % 3 else 'mail'},{i % 2}" for i, line in enumerate(lines)]
    (home / "gold.csv").write_text("\n".join([f"{header},source,hard", *rows]) + "\n")
    for seed in (1, 2):
        run({**tree, "seed": seed}, home / "runs" / f"s{seed}")
        for by in ("source", "hard"):
            words = ["evaluate", str(home / "runs" / f"s{seed}"), "--on", str(home / "gold.csv"), "--by", by]
            assert main([*words, "--quiet"]) == 0
    return home


@pytest.mark.slow
def test_slices_are_kept_beside_the_predictions_and_columns_add_up(evaluated):
    (path,) = (evaluated / "runs" / "s1" / "predictions").glob("*.slices.json")
    found = read_json(path)
    assert set(found["by"]) == {"source", "hard"}
    assert found["metric"] == "accuracy"
    assert found["task"] == "table/gold"
    assert {one["value"]: one["rows"] for one in found["by"]["source"]} == {"web": 16, "mail": 8}
    for entries in found["by"].values():
        right = sum(one["scores"]["accuracy"] * one["rows"] for one in entries)
        scores = read_json(evaluated / "runs" / "s1" / "scores.json")["evaluations"]
        (whole,) = [about["scores"]["accuracy"] for key, about in scores.items() if key.startswith("table/gold")]
        assert right / 24 == pytest.approx(whole)


@pytest.mark.slow
def test_a_table_has_a_row_for_each_value(evaluated, capsys):
    assert main(["table", str(evaluated / "runs"), "--by", "source"]) == 0
    out = capsys.readouterr().out
    assert out.count("source=web") == 1
    assert "source=mail" in out
    assert "16 rows: 95 % over rows" in out
    assert "(2)" in out
    assert "hard=" not in out
    assert main(["table", str(evaluated / "runs"), "--by", "source", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert len(rows) == 2
    assert all(row["n"] == 2 for row in rows)
    assert main(["table", str(evaluated / "runs"), "--by", "genre"]) == 2
    assert "no run has scores by it" in capsys.readouterr().err


def test_what_has_no_such_column_is_refused_before_the_work(evaluated, capsys):
    words = ["evaluate", str(evaluated / "runs" / "s1"), "--on", str(evaluated / "gold.csv")]
    assert main([*words, "--by", "genre"]) == 2
    assert "has no column genre; it has label, text, source, hard" in capsys.readouterr().err
    assert main([*words, "--by", "source", "--attack", "pgd"]) == 2
    assert "cannot be combined with --attack" in capsys.readouterr().err
