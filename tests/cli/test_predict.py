import csv
import io
import json
import sys

import pytest

import encodery as en
from tests import tiny


def stdin(monkeypatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_one_text(trained, encodery):
    said = encodery("predict", trained("single"), "--text", "the good cat")
    row = json.loads(said.out)
    want = en.load(trained("single"))("the good cat")
    assert said.code == 0
    assert (row["text"], row["prediction"]) == ("the good cat", want.label)
    assert row["probabilities"] == pytest.approx(dict(want.probabilities))


def test_a_pair_as_a_table(trained, encodery):
    said = encodery("predict", trained("pair"), "--text", "a cat", "--text2", "a\nlong " * 30, "--format", "table")
    assert said.code == 0
    assert said.out.count("\n") == 1
    assert "a cat | a long a long" in said.out
    assert "…" in said.out
    said = encodery("predict", trained("regression"), "--text", "a cat", "--format", "table")
    assert float(said.out.split()[0]) is not None
    assert encodery("predict", trained("multilabel"), "--text", "a cat", "--format", "table").code == 0


def test_a_file_with_the_columns_of_training(trained, tmp_path, encodery):
    texts = tiny.sentences(5, 40)
    file = tiny.write_csv(tmp_path / "new.csv", ["premise", "hypothesis"], [(t, t) for t in texts])
    said = encodery("predict", trained("pair"), "--file", file)
    rows = [json.loads(line) for line in said.out.splitlines()]
    assert [row["text"] for row in rows] == texts
    assert [row["id"] for row in rows] == list("01234")


def test_a_file_with_other_columns_and_ids(trained, tmp_path, encodery):
    file = tmp_path / "new.jsonl"
    file.write_text('{"id": "x", "review": "good"}\n{"id": "y", "review": ""}\n')
    out = tmp_path / "answers.jsonl"
    said = encodery("predict", trained("single"), "--file", file, "--text-column", "review", "-o", out)
    assert (said.code, said.out) == (0, f"{out}: 2 answers\n")
    assert [json.loads(line)["id"] for line in out.read_text().splitlines()] == ["x", "y"]


def test_answers_as_csv_and_tsv(trained, tmp_path, encodery):
    file = tiny.write_csv(tmp_path / "new.csv", ["text"], [['a, "cat"'], ["b\nc\td"]])
    assert encodery("predict", trained("single"), "--file", file, "-o", tmp_path / "a.csv").code == 0
    rows = list(csv.DictReader((tmp_path / "a.csv").open(newline="")))
    assert [row["text"] for row in rows] == ['a, "cat"', "b\nc\td"]
    assert float(rows[0]["p_neg"]) + float(rows[0]["p_pos"]) == pytest.approx(1)
    assert encodery("predict", trained("single"), "--file", file, "-o", tmp_path / "a.tsv").code == 0
    lines = (tmp_path / "a.tsv").read_text().splitlines()
    assert [len(line.split("\t")) for line in lines] == [5, 5, 5]


def test_stdin_lines_pairs_and_json(trained, encodery, monkeypatch):
    stdin(monkeypatch, b"ein Text\nzwei\n")
    said = encodery("predict", trained("single"), "--file", "-")
    assert [json.loads(line)["text"] for line in said.out.splitlines()] == ["ein Text", "zwei"]
    stdin(monkeypatch, b"a cat\ta dog\n")
    assert json.loads(encodery("predict", trained("pair"), "--file", "-").out)["text2"] == "a dog"
    stdin(monkeypatch, b'{"text": "a cat"}\n')
    assert json.loads(encodery("predict", trained("single"), "--file", "-").out)["text"] == "a cat"


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "nothing to read"),
        (b"good\n\xff\n", "stdin, line 2: is no valid UTF-8"),
        (b'{"text": "a"}\n{"text": 3}\n', "stdin, line 2"),
        (b'{"text": "a"}\n{"text": \n', "stdin, line 2"),
    ],
)
def test_R11_bad_input_is_named(data, sentence, trained, encodery, monkeypatch):
    stdin(monkeypatch, data)
    said = encodery("predict", trained("single"), "--file", "-")
    assert said.code == 2
    assert sentence in said.err
    if data.startswith(b"{"):
        stdin(monkeypatch, data)
        assert encodery("predict", trained("single"), "--file", "-", "--skip-bad-rows").code == 0


def test_refusals(trained, tmp_path, encodery, monkeypatch):
    file = tiny.write_csv(tmp_path / "new.csv", ["body"], [["a"]])

    def refused(form, *words):
        said = encodery("predict", trained(form), *words)
        assert (said.code, said.out) == (2, "")
        return said.err

    assert 'column "text"' in refused("single", "--file", file)
    assert "new.txt" in refused("single", "--file", tmp_path / "new.txt")
    assert "unknown kind of file" in refused("single", "--file", tmp_path / "new.docx")
    assert "reads pairs" in refused("pair", "--text", "a")
    assert "reads single texts" in refused("single", "--text", "a", "--text2", "b")
    assert "reads single texts" in refused("single", "--file", file, "--text-column", "body", "--text2-column", "x")
    assert "goes with --text" in refused("single", "--file", file, "--text2", "b")
    assert "are written to .jsonl" in refused("single", "--text", "a", "-o", tmp_path / "a.xlsx")
    assert "does not exist" in refused("single", "--text", "a", "-o", tmp_path / "no" / "a.csv")
    assert "required" in refused("single")
    stdin(monkeypatch, b"only one text\n")
    assert "stdin, line 1: two texts" in refused("pair", "--file", "-")
