"""Likely wrong labels: planted ones are found, on a toy set and on a real one."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from encodery.cli import main
from encodery.config.schema import Entry
from encodery.core.label_errors import area_under_margin, auc
from encodery.data import subset
from encodery.data.out_of_fold import OutOfFold
from encodery.data.provenance import fingerprint
from encodery.data.subset import Subset
from encodery.errors import UserError
from encodery.selectors.aum import Aum
from encodery.selectors.confident import Confident
from encodery.tasks.sources.own_files import WHOLE
from encodery.tasks.table import Table
from tests.contract.test_selectors import examples, pool
from tests.toolbox.runs import settings
from tests.toolbox.tasks import write_csv, write_rows
from tests.toolbox.tokenizers import save_tokenizer

ROWS, SHARE = 480, 0.1


def test_D34_aum_is_the_mean_over_runs_and_the_lowest_come_last():
    where = pool(examples())
    found = Aum()(where, 60)
    expected = np.mean([area_under_margin(z, where.labels) for z in where.logits], 0)
    assert np.allclose(found.scores, expected)
    assert np.all(np.diff(found.scores[found.order]) <= 0)
    assert Aum(pick="suspects")(where, 60).order.tolist() == found.order[::-1].tolist()
    early = Aum(epochs=1)(where, 60)
    assert np.allclose(early.scores, np.mean([area_under_margin(z[:1], where.labels) for z in where.logits], 0))


def test_D34_the_confident_joint_leaves_rows_out_or_takes_them_alone():
    where = pool(examples())
    every, clean = Confident()(where, 60).order, Confident(flagged=True)(where, 60).order
    suspects = Confident(flagged=True, pick="suspects")(where, 60).order
    assert 0 < len(suspects) < 60
    assert sorted([*clean, *suspects]) == list(range(60))
    assert [i for i in every if i in set(clean.tolist())] == clean.tolist()
    assert f"{len(suspects)} of 60 labels are likely wrong" in Confident()(where, 60).notes[0]


def test_predictions_of_other_rows_are_refused():
    rows = examples()
    known = {one.id: {"label": one.label, "probabilities": {}} for one in rows}
    folds = OutOfFold(Path("folds"), known)
    with pytest.raises(UserError, match="not of the pool's labels"):
        Confident()(pool(rows, folds=[folds]), 60)
    with pytest.raises(UserError, match=r"no prediction for 1 of 60 rows \(first: id-7\)"):
        Confident()(pool(rows, folds=[OutOfFold(Path("x"), {k: v for k, v in known.items() if k != "id-7"})]), 60)
    other = {id: row | {"label": "neutral"} for id, row in known.items()}
    with pytest.raises(UserError, match="40 of 60 rows have another label there"):
        Confident()(pool(rows, folds=[OutOfFold(Path("x"), other)]), 60)
    with pytest.raises(UserError, match="needs out-of-fold predictions"):
        Confident()(pool(rows, folds=[]), 60)


def test_a_folder_without_folds_or_with_a_torn_line_is_named(tmp_path):
    with pytest.raises(UserError, match="has no out_of_fold"):
        OutOfFold.open(tmp_path)
    (tmp_path / "out_of_fold.jsonl").write_text('{"id": "0", "probabilities": {"a": 1}}\n{"id": "1"}\n')
    with pytest.raises(UserError, match=r"line 2: is not a prediction"):
        OutOfFold.open(tmp_path)


@pytest.fixture
def doubted(tmp_path, monkeypatch) -> list[str]:
    """rows.csv, of which the folds doubt the first row that training sets aside as dev; the ids of all of those."""
    monkeypatch.chdir(tmp_path)
    rows = [(f"r{i}", f"text {i}", "ab"[i % 2], f"page {i}") for i in range(40)]
    write_csv(tmp_path / "rows.csv", ["id", "text", "label", "source"], rows)
    aside = [e.id for e in Table(train="rows.csv", text="text", label="label", id="id").examples("dev")]
    lines = []
    for id, _, label, _ in rows:
        sure = 0.05 if id == aside[0] else 0.95
        chances = {name: sure if name == label else 1 - sure for name in "ab"}
        lines.append(json.dumps({"id": id, "label": label, "probabilities": chances}))
    (tmp_path / "out_of_fold.jsonl").write_text("\n".join(lines) + "\n")
    return aside


CONFIDENT = [
    "select",
    "--pool",
    "rows.csv",
    "--selector.kind",
    "confident",
    "--selector.pick",
    "suspects",
    "--runs",
    "out_of_fold.jsonl",
]


def test_rows_that_are_set_aside_as_dev_are_searched_for_label_errors_too(doubted, capsys):
    assert main([*CONFIDENT, "--count", "3", "-o", "chosen", "--export", "chosen.csv"]) == 0
    said = capsys.readouterr().err
    assert "pool: all 40 rows of rows.csv, with the 4 that are set aside as dev in training" in said
    assert "1 of 40 labels are likely wrong" in said
    chosen = Subset.read("chosen")
    task = Table(train="rows.csv", text="text", label="label", id="id")
    assert chosen.ids[0] == doubted[0]
    assert [e.id for e in task.examples(WHOLE)] == [f"r{i}" for i in range(40)]
    assert (chosen.meta["split"], chosen.meta["pool"]) == (WHOLE, 40)
    assert chosen.meta["fingerprint"] == fingerprint(task.examples(WHOLE))
    with Path("chosen.csv").open() as stream:
        first = next(csv.DictReader(stream))
    assert (first["id"], first["source"]) == (doubted[0], f"page {doubted[0][1:]}")


def test_the_split_that_is_named_is_the_pool(doubted, capsys):
    assert main([*CONFIDENT, "--split", "train", "-o", "chosen"]) == 0
    said = capsys.readouterr().err
    assert "pool: 36 rows of rows.csv; 4 others are set aside as dev" in said
    assert "0 of 36 labels are likely wrong" in said


def test_chosen_rows_that_are_dev_are_not_trained_on_and_told(doubted):
    assert main([*CONFIDENT, "-o", "chosen", "--quiet"]) == 0
    task = Table(train="rows.csv", text="text", label="label", id="id")
    train = task.examples("train")
    entry = Entry(subset="chosen", count=1)
    assert subset.warnings(task, entry) == [
        "WARNING tasks.subset: 1 of 1 chosen row is set aside as dev here and not trained on"
    ]
    with pytest.raises(UserError, match="none of its rows is left"):
        subset.rows(task, entry, train, 1)
    every = subset.rows(task, Entry(subset="chosen"), train, 1)
    assert [train[i].id for i in every] == [f"r{i}" for i in range(40) if f"r{i}" not in doubted]
    apart = Table(train="rows.csv", dev="rows.csv", text="text", label="label", id="id")
    assert len(subset.rows(apart, Entry(subset="chosen"), apart.examples("train"), 1)) == 40
    assert subset.warnings(apart, Entry(subset="chosen")) == []
    Path("rows.csv").write_text(Path("rows.csv").read_text().replace("text 7,", "text seven,"))
    with pytest.raises(UserError, match="was chosen from other rows: table/rows:whole"):
        subset.rows(Table(train="rows.csv", text="text", label="label", id="id"), entry, train, 1)


def plant(path: Path, share: float, seed: int = 0) -> set[str]:
    """Exchange the labels of some rows of a csv file with two labels; their ids (row numbers)."""
    with path.open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    labels = sorted({row["label"] for row in rows})
    wrong = np.random.default_rng(seed).choice(len(rows), round(share * len(rows)), replace=False)
    for place in wrong:
        rows[place]["label"] = labels[1 - labels.index(rows[place]["label"])]
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return {str(place) for place in wrong}


def found_by(folder: Path, wrong: set[str], *options: str) -> dict[str, float]:
    """Select suspects of train.csv: AUC, and the share of planted rows among as many first ones as were planted."""
    out = folder / options[1]
    common = [
        "--pool.kind",
        "table",
        "--pool.train",
        str(folder / "train.csv"),
        "--pool.dev",
        str(folder / "train.csv"),
    ]
    assert main(["select", *common, *options, "--selector.pick", "suspects", "-o", str(out), "--quiet"]) == 0
    chosen = Subset.read(out)
    bad = np.array([id in wrong for id in chosen.ids])
    return {"auc": auc(-np.arange(len(bad), dtype=float), bad), "precision": float(bad[: len(wrong)].mean())}


@pytest.fixture(scope="module")
def planted(tmp_path_factory) -> tuple[Path, set[str]]:
    folder = tmp_path_factory.mktemp("planted")
    write_rows(folder / "train.csv", ROWS, 1)
    wrong = plant(folder / "train.csv", SHARE)
    save_tokenizer(folder / "tokenizer")
    tree = settings(folder, train={"epochs": 8, "evaluate": "end"}, optim={"lr": 3e-3})
    tree["tasks"] = [{"kind": "table", "train": "train.csv"}]
    (folder / "config.yaml").write_text(json.dumps(tree))
    assert main(["train", str(folder / "config.yaml"), "--folds", "3", "-o", str(folder / "folds"), "--quiet"]) == 0
    whole = json.loads(json.dumps(tree))
    whole["tasks"][0]["dev"] = "train.csv"
    whole["train"]["dynamics"] = True
    (folder / "whole.yaml").write_text(json.dumps(whole))
    assert main(["train", str(folder / "whole.yaml"), "-o", str(folder / "whole"), "--quiet"]) == 0
    return folder, wrong


@pytest.mark.slow(30)
def test_D34_planted_errors_of_a_toy_set_are_found(planted):
    folder, wrong = planted
    found = {
        "aum": found_by(folder, wrong, "--selector.kind", "aum", "--runs", str(folder / "whole")),
        "confident": found_by(folder, wrong, "--selector.kind", "confident", "--runs", str(folder / "folds")),
    }
    print(found)  # for `pytest -s`
    for kind, marks in found.items():
        assert marks["auc"] > 0.95, (kind, marks)
        assert marks["precision"] > 0.8, (kind, marks)


@pytest.mark.real
@pytest.mark.slow(50)
def test_D34_planted_errors_of_sst2_are_found(real_data, tmp_path):
    """546 short rows of SST-2 with MiniLM-L3, a tenth of the labels exchanged; larger sets: docs/data-selection.md."""
    import pyarrow.parquet as pq

    rows = pq.read_table(real_data / "glue" / "sst2_train.parquet").to_pylist()
    rows = [row for row in rows if 6 <= len(row["sentence"].split()) <= 14][:: len(rows) // 1500][:600]
    with (tmp_path / "train.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerows([["text", "label"], *([row["sentence"].strip(), "ny"[row["label"]]] for row in rows)])
    wrong = plant(tmp_path / "train.csv", SHARE)
    model = ["--model", str(real_data / "models" / "paraphrase-MiniLM-L3-v2-fp16"), "--optim.lr", "3e-4"]
    model += ["--train.epochs", "2", "--train.max_length", "32", "--train.evaluate", "end", "--quiet"]
    file = str(tmp_path / "train.csv")
    assert main(["train", "--tasks", file, *model, "--folds", "3", "-o", str(tmp_path / "folds")]) == 0
    whole = ["--tasks.file", file, "--tasks.dev", file, "--train.dynamics", "true"]
    assert main(["train", *whole, *model, "-o", str(tmp_path / "whole")]) == 0
    aum = found_by(tmp_path, wrong, "--selector.kind", "aum", "--runs", str(tmp_path / "whole"))
    confident = found_by(tmp_path, wrong, "--selector.kind", "confident", "--runs", str(tmp_path / "folds"))
    print({"aum": aum, "confident": confident})
    assert min(aum["auc"], confident["auc"]) > 0.75
    assert min(aum["precision"], confident["precision"]) > 3 * SHARE
