"""Cross-validation: how rows are dealt out, and what a command with --folds leaves behind."""

import csv
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as fewer
from hypothesis import strategies as st

import encodery as en
from encodery.cli import main
from encodery.core.files import read_json
from encodery.errors import UserError
from encodery.report import stats
from encodery.tasks.base import Example
from encodery.tasks.sources.folds import assign, bins, together
from encodery.tasks.table import Table
from tests.toolbox.runs import settings
from tests.toolbox.tasks import write_csv, write_rows
from tests.toolbox.tokenizers import save_tokenizer

# How rows are dealt out


def rows_of(labels: list[str], texts: list[str] | None = None, groups: list[str] | None = None) -> list[Example]:
    texts = texts or [f"t{i}" for i in range(len(labels))]
    some: list[Any] = groups or [None] * len(labels)
    return [Example(str(i), (texts[i],), label, some[i]) for i, label in enumerate(labels)]


@pytest.mark.slow
@given(st.lists(st.sampled_from("aaaab"), min_size=5, max_size=120), st.integers(2, 5), st.integers(0, 3))
@fewer(max_examples=80)
def test_F33_every_fold_has_its_share_of_each_label(labels: list[str], count: int, seed: int) -> None:
    examples = rows_of(labels)
    found = assign(examples, [(label,) for label in labels], count, seed)
    for label in set(labels):
        here = Counter(fold for fold, own in zip(found, labels, strict=True) if own == label)
        assert max(here.values()) - min(here.get(fold, 0) for fold in range(count)) <= 1
    sizes = [found.count(fold) for fold in range(count)]
    assert max(sizes) - min(sizes) <= len(set(labels))
    assert found == assign(examples, [(label,) for label in labels], count, seed)


@pytest.mark.slow
@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 12), st.integers(0, 40)), min_size=30, max_size=80))
@fewer(max_examples=60)
def test_F33_groups_and_equal_texts_are_never_cut(rows: list[tuple[str, int, int]]) -> None:
    labels = [label for label, _, _ in rows]
    examples = rows_of(labels, [f"text {t}" for _, _, t in rows], [f"g{g}" for _, g, _ in rows])
    if len(together(examples)) < 3:
        return
    found = assign(examples, [(label,) for label in labels], 3, 0)
    for key in (lambda e: e.group, lambda e: e.texts):
        folds: dict[Any, set[int]] = {}
        for example, fold in zip(examples, found, strict=True):
            folds.setdefault(key(example), set()).add(fold)
        assert all(len(own) == 1 for own in folds.values())


def test_texts_that_differ_in_case_and_spaces_are_equal() -> None:
    assert together(rows_of(["a", "b", "a"], ["Buy  now", "buy now ", "buy"])) == [[0, 1], [2]]


def test_groups_of_different_sizes_still_give_folds_of_like_size_and_labels() -> None:
    groups = [f"g{i}" for i, size in enumerate([9, 8, 7, 6, 5, 5, 4, 4, 3, 3, 3, 3]) for _ in range(size)]
    labels = ["a" if i % 3 else "b" for i in range(len(groups))]
    found = assign(rows_of(labels, groups=groups), [(label,) for label in labels], 3, 0)
    sizes = [found.count(fold) for fold in range(3)]
    assert max(sizes) - min(sizes) <= 4
    rare = [sum(f == fold and label == "b" for f, label in zip(found, labels, strict=True)) for fold in range(3)]
    assert max(rare) - min(rare) <= 3


def test_numbers_are_spread_over_the_folds() -> None:
    values = [float(i) for i in range(30)]
    strata = bins(values, 3)
    found = assign(rows_of(["x"] * 30), strata, 3, 0)
    means = [stats.mean([v for v, f in zip(values, found, strict=True) if f == fold]) for fold in range(3)]
    assert max(means) - min(means) < 2
    assert Counter(found) == {0: 10, 1: 10, 2: 10}


def table(folder: Path, labels: list[str], **options: Any) -> Table:
    write_csv(folder / "a.csv", ["text", "label"], [(f"t{i}", label) for i, label in enumerate(labels)])
    return Table.model_validate({"root": str(folder), "train": "a.csv", **options})


def test_F33_the_folds_of_a_table_are_its_dev_sets_and_cover_it(tmp_path: Path) -> None:
    tasks = [table(tmp_path, ["x", "y"] * 10, folds=4, fold=fold) for fold in range(1, 5)]
    dev = [[e.id for e in task.examples("dev")] for task in tasks]
    assert sorted(int(id) for ids in dev for id in ids) == list(range(20))
    for task, ids in zip(tasks, dev, strict=True):
        assert sorted(int(e.id) for e in task.examples("train")) == sorted(set(range(20)) - set(map(int, ids)))
        assert task.labels == ("x", "y")
    assert tasks[0].fold_of == tasks[1].fold_of
    assert list(tasks[0].fold_of) == [str(i) for i in range(20)]
    assert "fold 2 of 4 of a.csv" in str(tasks[1].origin("dev").note)
    other = table(tmp_path, ["x", "y"] * 10, folds=4, fold=1, split_seed=1)
    assert [e.id for e in other.examples("dev")] != dev[0]


def test_F33_a_label_with_too_few_rows_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"table/a: 5 folds need each label in 5 groups.*rare \(3 rows, 3 groups\)"):
        table(tmp_path, ["x", "y"] * 10 + ["rare"] * 3, folds=5, fold=1).examples("dev")
    assert len(table(tmp_path, ["x", "y"] * 10 + ["rare"] * 3, folds=3, fold=1).examples("dev")) == 8


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"folds": 3}, "belong together"),
        ({"folds": 3, "fold": 4}, "fold 4 of 3 folds"),
        ({"folds": 3, "fold": 1, "dev": "b.csv"}, "no dev file"),
    ],
)
def test_folds_that_mean_nothing_are_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Table.model_validate({"train": "a.csv", **options})


# The command


def config_of(folder: Path, rows: int = 40, **task: Any) -> Path:
    write_rows(folder / "train.csv", rows, 1)
    save_tokenizer(folder / "tokenizer")
    tree = settings(folder, train={"max_steps": 3})
    tree["tasks"] = [{"kind": "table", "train": "train.csv", **task}]
    (folder / "mails.yaml").write_text(json.dumps(tree))
    return folder / "mails.yaml"


@pytest.fixture(scope="module")
def validated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("folds")
    config = config_of(folder, metric="f1", metrics=["accuracy", "roc_auc"])
    assert main(["train", str(config), "--folds", "3", "-o", str(folder / "out"), "--quiet"]) == 0
    return folder


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.open()]


@pytest.mark.slow
def test_F33_all_rows_are_answered_once_by_a_model_that_has_not_seen_them(validated: Path) -> None:
    rows = lines_of(validated / "out" / "out_of_fold.jsonl")
    assert [row["id"] for row in rows] == [str(i) for i in range(40)]
    with (validated / "train.csv").open() as stream:
        assert [row["label"] for row in rows] == [row["label"] for row in csv.DictReader(stream)]
    for number in (1, 2, 3):
        run = validated / "out" / f"fold-{number}"
        own = {row["id"]: row for row in lines_of(run / "predictions" / "table-train-dev.jsonl")}
        assert own.keys() == {row["id"] for row in rows if row["fold"] == number}
        assert all(row["probabilities"] == own[row["id"]]["probabilities"] for row in rows if row["fold"] == number)
    model = en.load(validated / "out" / "fold-2")
    with (validated / "train.csv").open() as stream:
        texts = [row["text"] for row in csv.DictReader(stream)]
    asked = next(row for row in rows if row["fold"] == 2)
    assert model(texts[int(asked["id"])]).probabilities == pytest.approx(asked["probabilities"], abs=1e-5)


@pytest.mark.slow
def test_F33_one_table_has_mean_sd_interval_and_all_rows_at_once(validated: Path) -> None:
    found = read_json(validated / "out" / "folds.json")
    each = [read_json(validated / "out" / f"fold-{n}" / "scores.json")["scores"]["table/train:dev"] for n in (1, 2, 3)]
    f1 = found["metrics"]["f1"]
    assert f1["folds"] == [scores["f1"] for scores in each]
    assert f1["mean"] == pytest.approx(sum(f1["folds"]) / 3)
    assert f1["interval"] == pytest.approx(list(stats.t_interval(f1["folds"]) or ()))
    rows = lines_of(validated / "out" / "out_of_fold.jsonl")
    right = [row["label"] == row["prediction"] for row in rows]
    assert found["metrics"]["accuracy"]["all_rows"] == pytest.approx(sum(right) / 40)
    page = (validated / "out" / "folds.md").read_text()
    assert page.startswith("| fold | rows | f1 | accuracy | roc_auc |")
    assert f"| mean |  | {f1['mean']:.4f} |" in page
    assert "95 % interval" in page
    assert "optimistic" not in page


@pytest.mark.slow
def test_F33_run_again_resumes_and_trains_only_what_is_missing(
    validated: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = validated / "out"
    before = (out / "out_of_fold.jsonl").read_bytes()
    (out / "fold-2" / "DONE").unlink()
    (out / "out_of_fold.jsonl").unlink()
    times = {n: (out / f"fold-{n}" / "model" / "model.safetensors").stat().st_mtime_ns for n in (1, 2, 3)}
    assert main(["train", str(validated / "mails.yaml"), "--folds", "3", "-o", str(out)]) == 0
    said = capsys.readouterr()
    assert (out / "out_of_fold.jsonl").read_bytes() == before
    now = {n: (out / f"fold-{n}" / "model" / "model.safetensors").stat().st_mtime_ns for n in (1, 2, 3)}
    assert [n for n in now if now[n] != times[n]] == [2]
    assert "| all rows at once | 40 |" in said.out
    assert main(["train", str(validated / "mails.yaml"), "--folds", "4", "-o", str(out)]) == 2


@pytest.mark.slow
def test_scores_on_rows_that_chose_something_are_marked(tmp_path: Path) -> None:
    tree = json.loads(config_of(tmp_path, metric="f1", threshold="dev").read_text())
    tree["tasks"][0]["root"] = str(tmp_path)
    done = en.cross_validate(tree, tmp_path / "out", folds=2, train={"select": "best", "evaluate": "1 step"})
    assert "The checkpoint and the threshold of each fold was chosen on the rows it is scored on" in done.markdown()
    assert len(done.scores) == 2
    assert done.to_dict()["metrics"]["f1"]["interval"] is None  # two folds say nothing of their spread
    held = en.cross_validate(tree, tmp_path / "held", folds=2, train={"holdout": 0.2})
    assert held.notes == []


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--folds", "1"], "at least 2"),
        (["--folds", "2", "--seeds", "2"], "give one of them"),
        (["--folds", "2", "tasks.dev=train.csv"], "has a dev file"),
        (["--folds", "2", "tasks.evaluate_on=[train]"], "leaves out dev"),
        (["--folds", "39"], "39 folds need each label in 39 groups"),
    ],
)
def test_F33_what_cannot_be_folded_is_refused_before_anything_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: list[str], why: str
) -> None:
    config = config_of(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main(["train", str(config), "-o", str(tmp_path / "out"), *words]) == 2
    assert why in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_other_tasks_have_no_folds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "recipe:toy/nli", "--folds", "3", "-o", str(tmp_path / "out")]) == 2
    assert "one task on own files" in capsys.readouterr().err
