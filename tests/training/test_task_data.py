"""What training says of its rows before the first step, and that equal texts are never on both sides of a split."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import encodery as en
from encodery.config import load
from encodery.inference import outputs
from encodery.tasks.base import plain_texts
from encodery.training.run import train_run
from encodery.training.task_data import trained_on
from tests.toolbox.runs import config_for
from tests.toolbox.tasks import (
    mood,
    multilabel_task,
    pair_task,
    regression_task,
    sentences,
    single_task,
    write_csv,
)


def doubled(path: Path, count: int = 80) -> Path:
    """Every text twice, once spelled otherwise."""
    texts = [f"{text} {i}" for i, text in enumerate(sentences(count // 2))]
    rows = [(text, mood(text)) for text in texts] + [(f" {text.upper()}", mood(text)) for text in texts]
    return write_csv(path, ["text", "label"], rows)


def log_of(tmp_path: Path, task: dict[str, Any], **more: Any) -> str:
    return en.train(config_for(tmp_path, task, **more), tmp_path / "run").directory.log_file.read_text()


def summary(log: str) -> list[str]:
    """The lines from the rows to the first evaluation."""
    lines = log.splitlines()
    first = next(i for i, line in enumerate(lines) if "rows to train on" in line)
    last = next(i for i, line in enumerate(lines) if "step 4" in line)
    return lines[first:last]


def texts_of(task: Any, split: str) -> set[tuple[str, ...]]:
    return {plain_texts(example) for example in task.examples(split)}


def test_equal_texts_are_on_one_side(tmp_path: Path) -> None:
    task = load.load({"model": "x", "tasks": str(doubled(tmp_path / "a.csv"))}).tasks[0][0]
    assert not texts_of(task, "train") & texts_of(task, "dev")
    assert 6 <= len(task.examples("dev")) <= 10
    assert "set aside by label, equal texts together" in (task.origin("dev").note or "")


def test_without_equal_texts_the_split_is_what_it_was(tmp_path: Path) -> None:
    write_csv(tmp_path / "a.csv", ["text", "label"], [(f"text number {i}", "ab"[i % 2]) for i in range(70)])
    parts = []
    for how in ("together", "apart"):
        tree = {"model": "x", "tasks": {"kind": "table", "train": str(tmp_path / "a.csv"), "equal_texts": how}}
        parts.append([e.id for e in load.load(tree).tasks[0][0].examples("dev")])
    assert parts[0] == parts[1]


@pytest.mark.slow
def test_a_holdout_keeps_equal_texts_together(tmp_path: Path) -> None:
    task = {"kind": "table", "train": str(doubled(tmp_path / "a.csv"))}
    log = log_of(tmp_path, task, train={"holdout": 0.25})
    assert "for holdout (held out of train)" in log
    assert "is in train too" not in log


def as_an_earlier_version(run: Path) -> None:
    """A run without the key, stopped after two of its steps."""
    text = (run / "config.yaml").read_text()
    assert "equal_texts: apart" in text
    (run / "config.yaml").write_text(re.sub(r" *equal_texts: apart\n", "", text))


@pytest.mark.slow
@pytest.mark.parametrize("named", [True, False])
def test_R17_a_run_that_was_begun_with_equal_texts_apart_keeps_its_split(
    named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    task = {"kind": "table", "train": str(doubled(tmp_path / "a.csv"))}
    out = tmp_path / "run" if named else None
    tree = config_for(tmp_path, task, train={"keep_checkpoints": True})
    begun = train_run(load.load({**tree, "tasks": [{**task, "equal_texts": "apart"}]}), out)
    before = begun.info()["inputs"]
    as_an_earlier_version(begun.path)
    (begun.path / "DONE").unlink()
    again = train_run(load.load(tree), out)
    assert again.path == begun.path
    assert again.info()["inputs"] == before
    assert "equal_texts: apart" in again.config_text()
    own = load.load(again.path).tasks[0][0]
    assert texts_of(own, "train") & texts_of(own, "dev")
    as_an_earlier_version(again.path)
    assert getattr(load.load(again.path).tasks[0][0], "equal_texts", None) == "apart"  # also for evaluate
    new = train_run(load.load(tree), tmp_path / "new")
    assert new.info()["inputs"] != before


@pytest.mark.slow
def test_six_lines_say_what_the_rows_are(tmp_path: Path) -> None:
    texts = [f"{text} {i}" for i, text in enumerate(sentences(60))]
    rows = [(text + " cat dog" * (30 if i % 4 == 0 else 0), ("x", "X", "y")[i % 3]) for i, text in enumerate(texts)]
    write_csv(tmp_path / "train.csv", ["text", "label"], rows)
    write_csv(tmp_path / "dev.csv", ["text", "label"], [*rows[:5], ("another one", "y")])
    task = {"kind": "table", "train": str(tmp_path / "train.csv"), "dev": str(tmp_path / "dev.csv")}
    found = summary(log_of(tmp_path, task))
    assert len(found) <= 6
    whole = "\n".join(found)
    assert "table/train: 60 rows to train on, 6 for dev" in whole
    assert "labels: x 33.3%, X 33.3%, y 33.3%" in whole
    assert re.search(
        r"25\.0% are cut at max_length 32: set train\.max_length higher, or tasks\.window_stride to read long", whole
    )
    assert "5 of 6 rows of dev (83.3%) have a text that is in train too" in whole
    assert "differ in case or blanks only" in whole


@pytest.mark.slow
def test_more_positions_than_the_encoder_has_are_not_advised(tmp_path: Path) -> None:
    rows = [(f"{text} {i}" + " cat dog" * 40, "xy"[i % 2]) for i, text in enumerate(sentences(24))]
    task = {"kind": "table", "train": str(write_csv(tmp_path / "a.csv", ["text", "label"], rows))}
    tree = config_for(tmp_path, task, train={"max_length": 512, "max_steps": 1})
    tree["model"]["new"]["config"]["max_position_embeddings"] = 64
    log = en.train(tree, tmp_path / "run").directory.log_file.read_text()
    assert "max_length 512 is more than the positions of this encoder; using 64" in log
    assert (
        "100.0% are cut at max_length 64, and this encoder has no more positions: give tasks.window_stride to read "
        "long texts in windows, or take one that reads longer texts (--model)" in log
    )
    assert "train.max_length higher" not in log


@pytest.mark.slow
def test_bad_rows_and_empty_texts_of_one_file_are_told_once(tmp_path: Path) -> None:
    texts = [f"{text} {i}" if i % 10 else "" for i, text in enumerate(sentences(60))]
    rows = [(text, "" if i in (7, 19, 33) else "ab"[i % 2]) for i, text in enumerate(texts)]
    path = write_csv(tmp_path / "a.csv", ["text", "label"], rows)
    task = {"kind": "table", "train": str(path), "skip_bad_rows": True, "equal_texts": "apart"}
    log = log_of(tmp_path, task)
    found = "\n".join(summary(log))
    assert log.count("3 bad rows skipped") == 1
    assert "bad rows" not in found
    counts = re.search(r"; rows with an empty text: (\d) to train on(?: and (\d) for dev)?$", found, re.MULTILINE)
    assert counts is not None
    assert sum(int(count or 0) for count in counts.groups()) == 6
    card = (tmp_path / "run" / "README.md").read_text()
    assert re.search(r"^- train: 5\d rows from a\.csv; 3 bad rows skipped$", card, re.MULTILINE)
    assert re.search(
        r"^- dev: \d rows from a\.csv; 0\.1 of a\.csv set aside by label, split_seed 0$", card, re.MULTILINE
    )


@pytest.mark.slow
def test_labels_that_are_one_number_are_named_with_what_merges_them(tmp_path: Path) -> None:
    rows = [(f"{text} {i}", ("1", "01", "2")[i % 3]) for i, text in enumerate(sentences(48))]
    task = {"kind": "table", "train": str(write_csv(tmp_path / "a.csv", ["text", "label"], rows))}
    log = log_of(tmp_path, task)
    assert """labels 1, 01 are one number, each a class of its own; tasks.labels '{"01": "1"}' merges them""" in log
    assert "labels are the numbers" not in log
    (merged,) = load.load(config_for(tmp_path, task), ["--tasks.labels", '{"01": "1"}']).tasks
    assert merged[0].labels == ("1", "2")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("labels", "line"),
    [(("1", "2", "3"), "tasks.form regression reads them as a quantity"), (("0", "1"), "tasks.labels gives names")],
)
def test_labels_that_are_numbers_are_named(labels: tuple[str, ...], line: str, tmp_path: Path) -> None:
    rows = [(f"{text} {i}", labels[i % len(labels)]) for i, text in enumerate(sentences(48))]
    path = write_csv(tmp_path / "a.csv", ["text", "label"], rows)
    found = summary(log_of(tmp_path, {"kind": "table", "train": str(path)}))
    assert any(line in one for one in found)
    assert any("none is cut at max_length 32" in one for one in found)
    assert any("0.1 of a.csv set aside by label, equal texts together, split_seed 0" in one for one in found)


@pytest.mark.slow
def test_numbers_and_several_tasks_have_a_line_each(tmp_path: Path) -> None:
    tree = config_for(tmp_path, regression_task(tmp_path))
    tree["tasks"] = [regression_task(tmp_path), pair_task(tmp_path)]
    found = summary(en.train(tree, tmp_path / "run").directory.log_file.read_text())
    assert len(found) == 2
    assert "table/numbers: 36 rows to train on" in found[0]
    assert "labels: numbers from 0.75 to 2.75" in found[0]
    assert "labels: " in found[1]


@pytest.mark.slow
def test_a_label_that_is_renamed_and_never_seen_is_named(tmp_path: Path) -> None:
    rows = [(f"{text} {i}", "01"[i % 2]) for i, text in enumerate(sentences(48))]
    path = write_csv(tmp_path / "a.csv", ["text", "label"], rows)
    names = {"0": "no", "1": "yes", "11": "maybe"}
    found = summary(log_of(tmp_path, {"kind": "table", "train": str(path), "labels": names}))
    assert any("tasks.labels renames 11, which no row has" in line for line in found)
    assert not any("renames 0" in line for line in found)


def tags_task(folder: Path) -> dict[str, Any]:
    """Every word occurs in one sentence only, and dev has the sentences of train: then all words are known."""
    rows = [{"tokens": [f"w{i}a", f"w{i}b", f"w{i}c"], "tags": ["A", "B", "C"]} for i in range(40)]
    for name in ("train", "dev"):
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return {"kind": "table", "form": "tags", "train": str(folder / "train.jsonl"), "dev": str(folder / "dev.jsonl")}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("made", "entry", "train"),
    [
        (tags_task, {"count": 7}, {}),
        (single_task, {"fraction": 0.2}, {}),
        (multilabel_task, {"count": 3}, {}),
        (regression_task, {}, {"holdout": 0.5}),
    ],
)
def test_F75_the_baseline_counts_the_rows_that_were_trained_on(
    made: Any, entry: dict[str, Any], train: dict[str, Any], tmp_path: Path
) -> None:
    tree = config_for(tmp_path, made(tmp_path) | entry, train=train)
    run = train_run(load.load(tree), tmp_path / "run")
    resolved = load.load(run.path)
    ((task, options),) = resolved.tasks
    rows = trained_on(task, options, resolved.config)
    assert len(rows) < len(task.examples("train"))
    ((key, found),) = run.read_scores()["majority"].items()
    dev = task.examples(key.partition(":")[2])
    assert found == pytest.approx(outputs.majority(task, rows, dev), abs=1e-5)
    assert found != pytest.approx(outputs.majority(task, task.examples("train"), dev), abs=1e-5)


@pytest.mark.slow
def test_the_lines_before_the_first_step_speak_of_the_rows_that_are_trained_on(tmp_path: Path) -> None:
    texts = [f"{text} {i}" for i, text in enumerate(sentences(60))]
    write_csv(tmp_path / "train.csv", ["text", "label"], [(text, "ab"[i % 2]) for i, text in enumerate(texts)])
    write_csv(tmp_path / "dev.csv", ["text", "label"], [(text, "ab"[i % 2]) for i, text in enumerate(texts)])
    task = {"kind": "table", "train": str(tmp_path / "train.csv"), "dev": str(tmp_path / "dev.csv"), "count": 5}
    whole = "\n".join(summary(log_of(tmp_path, task)))
    assert "table/train: 5 rows to train on (of 60), 60 for dev" in whole
    assert "5 of 60 rows of dev (8.3%) have a text that is in train too" in whole
    assert re.search(r"labels: [ab] (60|80|100)\.0%", whole)


@pytest.mark.slow
def test_a_selection_of_one_label_is_warned_of(tmp_path: Path) -> None:
    write_csv(tmp_path / "train.csv", ["text", "label"], [(text, "ab"[i % 2]) for i, text in enumerate(sentences(60))])
    task = {"kind": "table", "train": str(tmp_path / "train.csv"), "count": 1}
    told = log_of(tmp_path, task)
    assert re.search("WARNING table/train: every row to train on has the label [ab]: nothing else can be learnt", told)


@pytest.mark.slow
@pytest.mark.parametrize(("texts", "told"), [("这个电影非常好看 {}", True), ("a very good film {}", False)])
def test_texts_that_the_vocabulary_does_not_cover_are_named(texts: str, told: bool, tmp_path: Path) -> None:
    rows = [(texts.format(i), "ab"[i % 2]) for i in range(40)]
    task = {"kind": "table", "train": str(write_csv(tmp_path / "a.csv", ["text", "label"], rows))}
    tree = config_for(tmp_path, task, train={"max_steps": 1}) | {"model": "petit"}
    log = en.train(tree, tmp_path / "run").directory.log_file.read_text()
    assert ("of the tokens are [UNK]" in log) == told
    assert not told or re.search(r"WARNING table/a: [5-9]\d\.\d% of the tokens .* multilingual", log)
