"""Tables: aligned and as wide as the terminal there, Markdown in a pipe, CSV and JSON on request."""

import csv
import io
import json
import sys

import pytest

from encodery.cli import fit_table, print_table
from tests.report import runs
from tests.toolbox.tasks import mood, sentences, write_csv

MARKDOWN = """| data | metric | mean ± sd (n) |
|---|---|---|
| glue/rte:dev | accuracy | **61.75 ± 2.47 (2)** |
| a\\|b | f1 | 7.00 ± 0.10 (2) |

- a remark below"""


def test_markdown_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    print_table.show(MARKDOWN)
    assert capsys.readouterr().out == MARKDOWN + "\n"


@pytest.mark.parametrize("width", [40, 80, 200])
def test_rich_fits_the_terminal(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    long = print_table.of_rows(("name", "text", "score"), [("x" * 30, "many words " * 20, "0.5"), ("y", "z", "12.25")])
    print_table.show(f"{long}\n\n{MARKDOWN}", "rich")
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines())) <= width
    assert "a remark below" in said
    assert "|---" not in said
    assert "**" not in said
    assert "a|b" in said
    assert said.count("x") >= 30  # folded, not cut


def test_at_a_terminal_it_is_rich(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    print_table.show(MARKDOWN)
    assert "|---" not in capsys.readouterr().out
    print_table.show(MARKDOWN, "md")
    assert "|---" in capsys.readouterr().out


def test_csv_and_json_hold_the_cells_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    print_table.show(MARKDOWN, "csv")
    said = capsys.readouterr()
    assert list(csv.reader(io.StringIO(said.out)))[1:] == [
        ["glue/rte:dev", "accuracy", "61.75 ± 2.47 (2)"],
        ["a|b", "f1", "7.00 ± 0.10 (2)"],
    ]
    assert "a remark below" in said.err
    print_table.show(MARKDOWN, "json")
    ((first, _),) = json.loads(capsys.readouterr().out)
    assert first["metric"] == "accuracy"


def test_verbs_take_the_format(tmp_path, encodery) -> None:
    runs.run(tmp_path / "a", 0.75)
    assert "|---|" in encodery("table", tmp_path).out
    assert "|---|" not in encodery("table", tmp_path, "--format", "rich").out
    assert json.loads(encodery("tasks", "glue", "--format", "json").out)[0][0]["task"].startswith("glue/")
    assert encodery("recipes", "rte", "--format", "csv").out.startswith("recipe,what to expect\n")


def test_long_cells_become_notes_where_the_table_is_too_wide(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    remark = "0.1 of tickets.csv set aside by label, equal texts together, split_seed 0"
    rows = [(f"table/{name}:dev", "accuracy", "70.00 (1)", remark) for name in ("long", "tickets")]
    print_table.show(print_table.of_rows(("data", "metric", "mean", "notes"), rows), "rich")
    said = capsys.readouterr().out
    assert said.count("set aside by label") == 1
    assert "[1] 0.1 of tickets.csv" in said
    assert max(map(len, said.splitlines())) <= 80
    assert any("table/tickets:dev" in line and "70.00 (1)" in line and "[1]" in line for line in said.splitlines())
    monkeypatch.setenv("COLUMNS", "200")
    print_table.show(print_table.of_rows(("data", "metric", "mean", "notes"), rows), "rich")
    assert "[1]" not in capsys.readouterr().out


def wide(settings: int) -> str:
    """Two configurations that differ in so many settings, with their scores and tests."""
    keys = [f"tasks.0.objective.key_{number}" for number in range(settings)]
    header = (*keys, "data", "metric", "mean ± sd (n)", "difference", "95 %", "p (t)", "p (Holm)", "p (McNemar)")
    scores = [("68.67 ± 1.25 (3)", "", "", "", "", ""), ("70.00 ± 0.75 (3)", "+1.33", "-0.5 to 3.16", *["<0.001"] * 3)]
    rows = [
        (*(f"{letter}{number}" for number in range(settings)), f"table/{letter}:dev", "accuracy", *numbers)
        for letter, numbers in zip("xy", scores, strict=True)
    ]
    return print_table.of_rows(header, rows)


@pytest.mark.parametrize("settings", [0, 3, 30])
@pytest.mark.parametrize("width", [60, 80, 200])
def test_a_narrow_terminal_shows_every_score_and_setting(
    width: int, settings: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    print_table.show(wide(settings), "rich", [f"tasks.0.objective.key_{number}" for number in range(settings)])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    for data, score in (("table/x:dev", "68.67 ± 1.25 (3)"), ("table/y:dev", "70.00 ± 0.75 (3)")):
        assert any(data in line and score in line for line in lines)
    assert sum(line.count("<0.001") for line in lines) == 3
    assert any("-0.5 to 3.16" in line for line in lines)
    text = " ".join(lines)
    for number in range(settings):
        assert f"tasks.0.objective.key_{number}" in text
        assert f"x{number}" in text
        assert f"y{number}" in text


def test_rows_of_the_same_settings_share_a_line_of_the_legend(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    path = "a/long/path/to/a/model"
    rows = [
        (path, "0.1", "rte:dev", "70.00 (1)"),
        (path, "0.1", "qnli:dev", "80.00 (1)"),
        ("", "0.2", "rte:dev", "1.00"),
    ]
    print_table.show(print_table.of_rows(("model.name", "optim.lr", "data", "mean"), rows), "rich", ["model.name"])
    assert [line.split() for line in capsys.readouterr().out.splitlines() if line[:1] in "ab"] == [
        ["a/long/path/to/a/model", "0.1", "rte:dev", "70.00", "(1)"],
        ["a/long/path/to/a/model", "0.1", "qnli:dev", "80.00", "(1)"],
    ]
    monkeypatch.setenv("COLUMNS", "44")
    print_table.show(print_table.of_rows(("model.name", "optim.lr", "data", "mean"), rows), "rich", ["model.name"])
    assert [line.split() for line in capsys.readouterr().out.splitlines() if line[:1] in "ab"] == [
        ["a", "0.1", "rte:dev", "70.00", "(1)"],
        ["a", "0.1", "qnli:dev", "80.00", "(1)"],
        ["b", "0.2", "rte:dev", "1.00"],
        ["a:", f"model.name={path}"],
        ["b:", "none", "of", "these", "settings"],
    ]


@pytest.mark.slow
def test_scores_as_a_table(trained, tmp_path, encodery):
    gold = write_csv(tmp_path / "gold.csv", ["text", "label"], [(text, mood(text)) for text in sentences(12, 300)])
    said = encodery("evaluate", trained("single"), "--on", gold, "--format", "csv", "--quiet")
    rows = list(csv.DictReader(io.StringIO(said.out)))
    assert {(row["data"], row["part"], row["rows"]) for row in rows} == {("table/gold:test", "all rows", "12")}
    by_metric = {row["metric"]: row["score"] for row in rows}
    assert encodery("predict", trained("single"), "--file", gold, "-o", tmp_path / "answers.csv").code == 0
    said = encodery("score", tmp_path / "answers.csv", "--on", gold, "--format", "csv")
    scored = {row["metric"]: row["score"] for row in csv.DictReader(io.StringIO(said.out))}
    assert scored["accuracy"] == by_metric["accuracy"]
    for verb in (("evaluate", trained("single"), "--quiet"), ("score", tmp_path / "answers.csv")):
        plain = encodery(*verb, "--on", gold, "--json").out
        assert encodery(*verb, "--on", gold, "--format", "json").out == plain
        assert encodery(*verb, "--on", gold, "--format", "md").out.startswith("| data |")
    said = encodery("predict", trained("single"), "--file", gold, "--format", "csv")
    assert said.out == (tmp_path / "answers.csv").read_text()


def test_sweeps_as_tables(tmp_path, encodery):
    words = ("recipe:toy/nli", "--optim.lr", "1e-4,5e-4", "--seeds", "2", "-o", tmp_path / "sweep")
    said = encodery("sweep", "plan", *words, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(said.out)))
    assert sorted((float(row["optim.lr"]), row["done"]) for row in rows) == [
        (lr, "no") for lr in (1e-4, 1e-4, 5e-4, 5e-4)
    ]
    assert encodery("sweep", "plan", *words, "--format", "json").out == encodery("sweep", "plan", *words, "--json").out


def test_short_settings_stay_columns_of_every_part() -> None:
    header = ["method.kind", "data", "metric", *(f"number {i} (p)" for i in range(8))]
    rows = [[kind, "toy/sentiment:dev", "accuracy", *["51.20 ± 1.79 (5)"] * 8] for kind in ("fgm", "freelb")]
    parts, below = fit_table.fitted([header, *rows], 80, ["method.kind"])
    assert len(parts) > 1
    assert {part[0][0] for part in parts} == {"method.kind"}
    assert below == []
