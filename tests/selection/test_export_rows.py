"""Chosen rows as a file that can be trained on, and summaries of what was chosen."""

import json
from importlib.util import find_spec

import pytest

from encodery.cli import main
from encodery.core.files import read_json
from encodery.data.subset import Subset
from encodery.errors import UserError
from encodery.selection.export_rows import export
from encodery.selection.summary import overlap, overlap_table
from encodery.tasks.sources.readers import read
from encodery.tasks.table import Table

TEXT = 'text,label,source,year\n"one, two",x,web,2001\nthree,y,mail,2002\nfour five six,x,web,2003\n'


@pytest.fixture
def task(tmp_path) -> Table:
    (tmp_path / "rows.csv").write_text(TEXT)
    return Table.model_validate({"train": str(tmp_path / "rows.csv"), "dev": str(tmp_path / "rows.csv")})


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "parquet"])
def test_all_columns_of_the_chosen_rows_come_out_in_their_order(task, tmp_path, ending):
    path = export(Subset(["2", "0"], {}, [0.5, 0.25]), task, "train", tmp_path / f"out.{ending}")
    sheet = read(path)
    assert sheet.columns == ("text", "label", "source", "year", "id", "selection_score")
    found = [{name: str(value) for name, value in row.values.items()} for row in sheet.rows]
    assert found[0] == {
        "text": "four five six", "label": "x", "source": "web", "year": "2003", "id": "2", "selection_score": "0.5",
    }  # fmt: skip
    assert found[1]["text"] == "one, two"


def test_an_exported_file_is_trained_on_as_it_is(task, tmp_path):
    path = export(Subset(["2", "1"], {}, [0.5, 0.25]), task, "train", tmp_path / "out.csv")
    options, _ = Table.of_file(str(path), tmp_path, {})
    plain = {key: value for key, value in options.items() if key != "kind"}
    again = Table.model_validate({**plain, "train": str(path), "dev": str(path)})
    assert [(e.id, e.texts, e.label) for e in again.examples("train")] == [
        ("2", ("four five six",), "x"), ("1", ("three",), "y"),
    ]  # fmt: skip


def test_other_endings_and_tabs_are_refused(task, tmp_path):
    with pytest.raises(UserError, match=r"must end in \.csv"):
        export(Subset(["0"], {}), task, "train", tmp_path / "out.xlsx")
    (tmp_path / "rows.csv").write_text('text,label\n"a\tb",x\nc,y\n')
    other = Table.model_validate({"train": str(tmp_path / "rows.csv"), "dev": str(tmp_path / "rows.csv")})
    with pytest.raises(UserError, match="tab or a line end"):
        export(Subset(["0"], {}), other, "train", tmp_path / "out.tsv")


@pytest.fixture
def selections(tmp_path, monkeypatch):
    """Two random selections of ten rows of forty."""
    monkeypatch.chdir(tmp_path)
    lines = [f"word {'more ' * (i % 5)}{i},{'xy'[i % 2]},{'web' if i < 30 else 'mail'}" for i in range(40)]
    (tmp_path / "rows.csv").write_text("text,label,source\n" + "\n".join(lines) + "\n")
    for seed in ("1", "2"):
        more = ["--by", "source", "--export", f"out-{seed}.csv", "--seed", seed, "-o", f"s{seed}", "--quiet"]
        pool = ["--pool.file", "rows.csv", "--pool.dev", "rows.csv", "--count", "10"]
        assert main(["select", *pool, *more]) == 0
    return tmp_path


def test_a_selection_is_summed_up_beside_the_pool(selections):
    found = read_json(selections / "s1" / "selection.summary.json")
    assert found["kind"] == "random"
    assert found["pool"]["rows"] == 40
    assert found["pool"]["labels"] == {"x": 20, "y": 20}
    assert found["pool"]["columns"] == {"source": {"web": 30, "mail": 10}}
    assert found["pool"]["words"]["longest"] == 6
    assert found["chosen"]["rows"] == sum(found["chosen"]["labels"].values()) == 10
    for side in ("pool", "chosen"):
        counts = found[side]["words"]["counts"]
        assert sum(counts) == found[side]["rows"]
        assert len(counts) == len(found["word_edges"]) - 1
    rows = read(selections / "out-1.csv").rows
    ids = [json.loads(line)["id"] for line in (selections / "s1" / "selection.jsonl").read_text().splitlines()]
    assert [row.values["id"] for row in rows] == ids
    taken = sum(row.values["source"] == "web" for row in rows)
    assert found["chosen"]["columns"]["source"].get("web", 0) == taken


def test_of_an_order_of_the_whole_pool_the_first_tenth_is_summed_up(selections):
    by_length = "id,score\n" + "\n".join(f"{i},{i % 5}" for i in range(40)) + "\n"
    (selections / "scores.csv").write_text(by_length)
    pool = ["--pool.file", "rows.csv", "--pool.dev", "rows.csv"]
    own = ["--selector.kind", "scores", "--selector.file", "scores.csv", "-o", "long", "--quiet"]
    assert main(["select", *pool, *own]) == 0
    found = read_json(selections / "long" / "selection.summary.json")
    assert found["chosen"] == found["pool"]
    assert (found["first"]["rows"], found["first"]["words"]["mean"]) == (4, 6.0), "the longest rows"
    assert "first" not in read_json(selections / "s1" / "selection.summary.json")


def test_overlap_counts_shared_rows_beside_chance(selections, capsys):
    assert main(["select", "--overlap", "s1", "s2", "-o", "both"]) == 0
    found = read_json(selections / "both" / "overlap.json")
    ids = [set(Subset.read(selections / name).ids) for name in ("s1", "s2")]
    assert found["shared"][0][1] == found["shared"][1][0] == len(ids[0] & ids[1])
    assert found["jaccard"][0][1] == len(ids[0] & ids[1]) / len(ids[0] | ids[1])
    assert found["by_chance"][0][1] == 2.5
    assert "| s1 | 10 |" in capsys.readouterr().out
    assert overlap_table(found).count("\n") == 3
    (selections / "other.csv").write_text("text,label\na,x\nb,y\nc,x\n")
    pool = ["--pool.file", "other.csv", "--pool.dev", "other.csv"]
    assert main(["select", *pool, "-o", "s3", "--quiet"]) == 0
    with pytest.raises(UserError, match="of different rows"):
        overlap([str(selections / "s1"), str(selections / "s3")])


@pytest.mark.skipif(find_spec("umap") is not None, reason="umap is here")
def test_a_map_without_its_extra_is_refused_before_the_work(selections, capsys):
    pool = ["--pool.file", "rows.csv", "--pool.dev", "rows.csv", "--selector.kind", "clusters"]
    assert main(["select", *pool, "--analyse", "--map", "umap", "-o", "never"]) == 2
    assert "pip install 'encodery[umap]'" in capsys.readouterr().err
    assert not (selections / "never").exists()


def test_a_column_that_is_not_there_is_refused_before_the_work(selections, capsys):
    assert main(["select", "--pool", "rows.csv", "--by", "genre", "-o", "never"]) == 2
    assert "has no column genre" in capsys.readouterr().err
    assert not (selections / "never").exists()
