"""Tables: aligned and as wide as the terminal there, Markdown in a pipe, CSV and JSON on request."""

import csv
import io
import json
import sys

import pytest

from encodery.cli import print_table
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
