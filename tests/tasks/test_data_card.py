"""`data check` of a file: what repeats, and what train and dev share."""

import json

import pytest

from encodery.cli import main
from encodery.core.files import read_json

TRAIN = """text,label
the doctor saw the lawyer near the court,x
the doctor saw the lawyer near the court today,y
good film,x
Good film!,y
something else here,y
"""
DEV = "text,label\nnew words only,x\nthe doctor saw the lawyer near the court,x\nnothing like it,y\n"


def test_a_card_counts_near_duplicates_within_and_between(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.csv").write_text(TRAIN)
    (tmp_path / "dev.csv").write_text(DEV)
    assert main(["data", "check", "train.csv", "--dev", "dev.csv", "-o", "card.json"]) == 0
    out = capsys.readouterr().out
    assert "train: 5 rows: y 3 (60.0%), x 2 (40.0%)" in out
    assert "2 rows repeat another one (1 with equal words), 2 with another label" in out
    assert "1 row of dev resembles one of train (1 with equal words)" in out
    card = read_json(tmp_path / "card.json")
    near = card["splits"]["train"]["near_duplicates"]
    assert {(one["first"]["id"], one["second"]["id"]) for one in near["examples"]} == {("0", "1"), ("2", "3")}
    assert card["between"]["train and dev"]["rows"] == 1
    assert card["splits"]["dev"]["near_duplicates"]["rows"] == 0


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["none.csv"], "there is no such file"),
        (["toy/sentiment", "--dev", "x.csv"], "has its own dev set"),
        ([".", "-o", "x.json"], "need a single file"),
        (["toy/nothing"], "nothing"),
    ],
)
def test_what_has_no_card_is_named(tmp_path, monkeypatch, capsys, words, why):
    monkeypatch.chdir(tmp_path)
    assert main(["data", "check", *words]) == 2
    assert why in capsys.readouterr().err


@pytest.mark.slow
def test_a_set_by_its_name_has_a_card(capsys):
    assert main(["data", "check", "toy/sentiment"]) == 0
    assert "train and dev" in capsys.readouterr().out


def test_bad_rows_are_refused_or_left_out_and_named(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.csv").write_text(TRAIN + "one field\nthree,of,them\n")
    (tmp_path / "dev.csv").write_text(DEV)
    words = ["data", "check", "train.csv", "--dev", "dev.csv"]
    assert main(words) == 2
    assert "train.csv, line 7" in capsys.readouterr().err
    assert main([*words, "--skip-bad-rows"]) == 0
    told = capsys.readouterr()
    assert "train: 5 rows" in told.out
    assert "skipped: train.csv, line 7" in told.err
    assert "skipped: train.csv, line 8" in told.err


def test_columns_and_forms_of_a_card(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"words here {i},{'ab'[i % 2]},{'cd'[i % 2]}\n" for i in range(30))
    (tmp_path / "train.csv").write_text("text,one,two\n" + rows)
    assert main(["data", "check", "train.csv"]) == 2
    assert "--label-column one" in capsys.readouterr().err
    words = ["data", "check", "train.csv", "--label-column", "two", "--format"]
    assert main([*words, "json"]) == 0
    card = json.loads(capsys.readouterr().out)
    count = card["splits"]["train"]["labels"]["c"]
    assert main([*words, "csv"]) == 0
    assert f"\ntrain,c,{count},{count / 27:.4g}\n" in capsys.readouterr().out
    assert main([*words, "md"]) == 0
    assert "| train | 27 |" in capsys.readouterr().out


def test_a_folder_as_a_table(tmp_path, capsys):
    assert main(["data", "check", str(tmp_path), "--format", "json"]) == 0
    rows = {one["data"]: one for one in json.loads(capsys.readouterr().out)}
    assert (rows["glue/rte:dev"]["state"], rows["glue/rte:dev"]["rows"]) == ("missing", 0)
    assert main(["data", "check", str(tmp_path), "--format", "csv"]) == 0
    assert "glue/rte:dev,missing,0," in capsys.readouterr().out


def test_too_few_rows_are_told_with_the_option_of_this_verb(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "few.csv").write_text("text,label\nfirst words,x\nother words,y\nfirst again,x\n")
    assert main(["data", "check", "few.csv"]) == 2
    assert "name a dev file (--dev FILE)" in capsys.readouterr().err
