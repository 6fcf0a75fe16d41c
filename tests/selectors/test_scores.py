"""Scores from outside as a selector."""

import json

import pytest

from encodery.core.files import read_json
from encodery.errors import UserError
from encodery.selection.select import choose, load
from encodery.selectors.base import Pool
from encodery.selectors.scores import Scores
from encodery.tasks.base import Example


def pool_in(folder, n=3) -> Pool:
    return Pool([Example(str(i), ("t",), "x") for i in range(n)], ("x",), folder=folder)


def order(folder, **options) -> list[str]:
    where = pool_in(folder)
    return [where.ids[i] for i in Scores(**options)(where, 3).order]


def test_rows_come_by_their_scores_from_any_file(tmp_path):
    (tmp_path / "s.csv").write_text("id,score\n0,1.5\n1,-2\n2,7e2\n")
    assert order(tmp_path, file="s.csv") == ["2", "0", "1"]
    assert order(tmp_path, file="s.csv", first="low") == ["1", "0", "2"]
    lines = [{"row": i, "m": {"quality": q}} for i, q in enumerate((3, 1, 2))]
    (tmp_path / "s.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert order(tmp_path, file="s.jsonl", id="row", score="m.quality") == ["0", "2", "1"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("id,score\n0,1\n1,2\n", r"no score for 1 of 3 rows \(first: 2\)"),
        ("id,score\n0,1\n1,2\n2,\n", "line 4, column \"score\": '' is not a finite number"),
        ("id,score\n0,1\n1,nan\n2,3\n", "not a finite number"),
        ("id,score\n0,1\n0,2\n2,3\n", "line 3: the id 0 occurs twice"),
        ("id,points\n0,1\n", "score"),
    ],
)
def test_what_is_no_score_is_named(tmp_path, text, why):
    (tmp_path / "s.csv").write_text(text)
    with pytest.raises(UserError, match=why):
        order(tmp_path, file="s.csv")


def test_without_a_file_it_says_what_it_needs(tmp_path):
    with pytest.raises(UserError, match="needs a file with the columns id and score"):
        order(tmp_path)


def test_the_meta_file_tells_which_scores_were_used(tmp_path):
    (tmp_path / "rows.csv").write_text("text,label\na b,x\nc d,y\ne f,x\n")
    (tmp_path / "s.csv").write_text("id,score\n0,1\n1,2\n2,3\n9,9\n")
    plain = {"pool": {"kind": "table", "train": "rows.csv", "dev": "rows.csv"}}
    (tmp_path / "c.json").write_text(json.dumps(plain | {"selector": {"kind": "scores", "file": "s.csv"}}))
    found = choose(load(tmp_path / "c.json"))
    assert list(found.ids) == ["2", "1", "0"]
    found.write(tmp_path / "out")
    meta = read_json(tmp_path / "out" / "selection.meta.json")
    assert meta["scores_file"]["name"] == "s.csv"
    assert len(meta["scores_file"]["sha256"]) == 64
    assert meta["notes"] == ["1 scores in s.csv belong to rows that are not in the pool"]
