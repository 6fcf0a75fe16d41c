"""What a reader needs beside a score: the majority, a second metric, names that differ, tables by task."""

import dataclasses
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from encodery.cli import main
from encodery.errors import UserError
from encodery.report.examples import task_of
from encodery.report.page import build
from encodery.report.page.chart import Heat
from encodery.report.page.configurations import Configurations, trimmed
from encodery.report.page.data import Rows, gather
from encodery.report.page.html import heat
from encodery.report.page.sections.answers import Answered, confused, matrix
from encodery.report.records import read
from encodery.runs.directory import RunDir
from encodery.tasks.base import Example
from tests.report import runs
from tests.toolbox.tasks import write_csv


def with_majority(folder: Path, scores: dict[str, float], easy: float, **more: Any) -> None:
    """A run whose scores.json knows what the commonest label gets."""
    run = RunDir(runs.run(folder, scores, **more))
    known = run.read_scores()
    run.write_scores({**known, "majority": {key: {"accuracy": easy} for key in known["scores"]}})


def page_of(*folders: Path, **options: Any) -> str:
    found = gather(folders, **options)
    return build.page(found, build.sections(found), "Page")


@pytest.mark.slow
def test_majority_and_second_metric_are_beside_the_score(tmp_path: Path) -> None:
    with_majority(tmp_path / "a", {"accuracy": 0.7, "ece": 0.1, "macro_f1": 0.61}, 0.55)
    page = page_of(tmp_path)
    tiles = dict(re.findall(r"<dt>([^<]+)</dt><dd>([^<]+)</dd>", page))
    assert tiles["majority baseline, accuracy"] == "55.00"
    assert tiles["its macro_f1"] == "61.00"
    assert "; majority baseline: 55.00; macro_f1 61.00." in page
    assert ">macro_f1 61.00</td>" in page
    assert "no better than the majority" not in page


def test_a_file_that_is_called_as_the_training_file_is_shown(tmp_path: Path) -> None:
    for place, text in (("here", "a film to remember"), ("elsewhere", "a heron in the reeds")):
        (tmp_path / place).mkdir()
        write_csv(tmp_path / place / "reviews.csv", ["text", "label"], [(text, "good"), ("dull", "bad")])
    own = {"kind": "table", **{split: str(tmp_path / "here" / "reviews.csv") for split in ("train", "dev")}}
    config = {**runs.tree(), "tasks": [own]}
    rows = {"dev": {"digest": task_of(config).origin("dev").digest, "rows": 2}}
    made = RunDir(runs.run(tmp_path / "run", 0.9, task="table/reviews", config=config, origins=rows))
    task = {"kind": "table", "test": str(tmp_path / "elsewhere" / "reviews.csv")}
    digest = task_of({"tasks": [task]}).origin("test").digest
    about = {"scores": {"accuracy": 0.5}, "main": "accuracy", "task": task, "digest": digest}
    made.write_scores(made.read_scores() | {"evaluations": {"table/reviews:test": about}})
    data = gather([made.path])
    for split, text in (("test", "a heron in the reeds"), ("dev", "a film to remember")):
        found = data.rows(data.records[0], f"table/reviews:{split}")
        assert found, data.remarks
        assert found.examples[0].texts == (text,)
    assert not data.remarks


def test_own_code_is_said_to_be_left_alone(tmp_path: Path) -> None:
    config = {**runs.tree(), "tasks": [{"kind": "larger.py:Larger", "data": None}]}
    runs.run(tmp_path / "a", 0.9, task="own/larger", config=config)
    data = gather([tmp_path])
    assert data.rows(data.records[0], "own/larger:dev") is None
    assert data.task(data.records[0], "own/larger") is None
    assert len(data.remarks) >= 2
    assert all("its task is own code, which tables and reports do not run" in line for line in data.remarks[-2:])


def test_the_tile_shows_the_data_of_most_runs(tmp_path: Path) -> None:
    runs.run(tmp_path / "one", 0.9, task="toy/a")
    for seed in (1, 2):
        runs.run(tmp_path / f"two-{seed}", 0.6, task="toy/b", seed=seed)
    tiles = dict(re.findall(r"<dt>([^<]+)</dt><dd>([^<]+)</dd>", page_of(tmp_path)))
    assert tiles["best accuracy, toy/b:dev"] == "60.00"
    assert "best accuracy, toy/a:dev" not in tiles


def test_the_score_is_the_first_column_after_the_data(tmp_path: Path) -> None:
    for seed, rate in ((1, 1e-5), (2, 1e-4)):
        runs.run(tmp_path / f"{seed}", 0.6, seed=seed, optim__lr=rate)
    page = page_of(tmp_path)
    heads = re.findall(r'<button type="button">([^<]+)</button></th>', page.partition('<table id="every"')[2])
    assert heads[:4] == ["lr", "data", "mean ± sd", "metric"]
    assert re.search(r"<td>toy/nli:dev</td><td [^>]*>60.00</td><td>accuracy</td>", page)


def test_a_score_below_the_majority_is_among_what_went_wrong(tmp_path: Path) -> None:
    with_majority(tmp_path / "a", {"accuracy": 0.5}, 0.55)
    page = page_of(tmp_path)
    assert "toy/nli:dev: the model is no better than the majority baseline, which has accuracy 55.00" in page
    assert "second metric" not in page, "there is none"


def test_another_metric_can_be_asked_for(tmp_path: Path) -> None:
    for seed, (one, other) in enumerate([(0.7, 0.4), (0.6, 0.5)]):
        runs.run(tmp_path / f"{seed}", {"accuracy": one, "macro_f1": other}, optim__lr=seed + 1e-5)
    out = tmp_path / "page.html"
    assert main(["report", str(tmp_path), "-o", str(out), "--metric", "f1_macro"]) == 0
    assert "best of 2: lr 1.00001, macro_f1 50.00" in out.read_text()
    assert "best of 2: lr 1e-05, accuracy 70.00" in page_of(tmp_path)
    with pytest.raises(UserError, match="--metric bleu: no run has it; they have accuracy, macro_f1"):
        gather([tmp_path], metric="bleu")


def many_labels(count: int) -> Answered:
    labels = [f"label number {i}" for i in range(count)]
    examples = [Example(str(i), (f"text {i}",), labels[i % count]) for i in range(5 * count)]
    said = {e.id: {"prediction": labels[(int(e.id) + (int(e.id) < 3)) % count]} for e in examples}
    task: Any = SimpleNamespace(labels=labels)
    row: Any = SimpleNamespace(data="table/many:dev")
    return Answered(row, Rows(task, examples), [said])


def test_a_confusion_matrix_of_twenty_labels_can_be_read() -> None:
    found: Any = SimpleNamespace(name=lambda row: "")
    made = matrix(found, "m", many_labels(20))
    assert made.dense
    assert (made.y, made.x) == ("actual", "predicted")
    text = heat(made)
    assert 'class="heat dense"' in text
    assert ">actual / predicted</td>" in text
    assert made.texts[0][:3] == ["80", "20", ""]
    assert 'title="actual label number 0, predicted label number 1: 1 (20.0%)"' in text
    worst = confused("c", many_labels(20))
    assert worst.count("<tr>") == 1 + 3, "three rows were predicted as their neighbour"
    few = matrix(found, "m", many_labels(3))
    assert not few.dense
    assert few.texts[0][0] == "4 (80%)"


def test_heat_maps_without_axes_have_a_blank_corner() -> None:
    assert '<td class="corner"></td>' in heat(Heat("h", "Heat", ["r"], ["c"], [[0.1]], [["0.1"]]))


def long_settings(place: int) -> dict[str, Any]:
    usual = {f"method__option_{name}": 1.25 for name in ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta")}
    names = list(usual)
    return usual if place < 0 else {**usual, names[place]: 2.5}


def test_long_configurations_are_told_apart_by_what_differs(tmp_path: Path) -> None:
    for place in range(-1, 7):
        runs.run(tmp_path / f"run-{place + 1}", 0.5 + place / 100, **long_settings(place))
    records, _ = read([tmp_path])
    made = Configurations(records)
    by_path = {one.path.name: made.label(one.settings, "toy/nli", 60) for one in records}
    assert by_path["run-1"] == "option_alpha 2.5"
    assert by_path["run-7"] == "option_eta 2.5"
    assert by_path["run-0"] == "the usual settings"
    assert made.label(records[0].settings, "toy/nli", 500).count("option_") == 7
    assert len({made.label(one.settings, "toy/nli", 12) for one in records}) == 8, "cut short, and still different"


def test_the_variants_of_a_sweep_keep_the_names_that_a_person_gave_them(tmp_path: Path) -> None:
    for number, rate in enumerate((1e-5, 1e-5, 2e-5)):
        runs.run(tmp_path / f"run-{number}", 0.5, seed=number, optim__lr=rate)
    records, _ = read([tmp_path])
    own = [dataclasses.replace(one, variant=name) for one, name in zip(records, ("calm", "calm", "brisk"), strict=True)]
    made = Configurations(own)
    assert [made.label(one.settings, "toy/nli", 60) for one in own] == ["calm", "calm", "brisk"]
    torn = [own[0], dataclasses.replace(own[1], variant="other"), own[2]]
    assert Configurations(torn).label(own[0].settings, "toy/nli", 60) == "lr 1e-05", "two names for one configuration"


def test_long_values_lose_what_all_of_them_share() -> None:
    values = {f"a/very/long/path/to/some/encoder-that-is-{size}-discriminator" for size in ("small", "large")}
    assert sorted(trimmed(values).values()) == ["…large…", "…small…"]
    assert trimmed({"short", "values"}) == {}


@pytest.mark.slow
def test_many_kinds_of_runs_are_grouped_by_task(tmp_path: Path) -> None:
    for rate in (1e-5, 2e-5):
        runs.run(tmp_path / f"nli-{rate}", 0.7, task="toy/nli", optim__lr=rate)
        runs.run(tmp_path / f"topic-{rate}", 0.6, task="toy/topic", train__batch_size=int(rate * 1e6))
    page = page_of(tmp_path)
    tables = re.findall(r'<table id="(every[^"]*)".*?<thead>(.*?)</thead>', page, re.S)
    heads = {id: re.findall(r">([^<>]+)</button>", head) for id, head in tables}
    assert heads["every"][0] == "lr"
    assert "batch_size" not in heads["every"]
    assert heads["every-1"][0] == "batch_size"
    assert 'id="by-task"' not in page, "each configuration has one task only: a table of tasks would be blank"
    assert re.search(r"<option[^>]*>toy/nli</option><option[^>]*>toy/topic</option>", page), "curves by task"
    assert 'id="curve-loss-1"' in page


PARTS = {f"part{i}": {"accuracy": 0.5 + i / 100} for i in range(7)}


def rows_of(page: str, id: str) -> list[list[str]]:
    """The cells of a table, header first."""
    (body,) = re.findall(rf'<table id="{id}".*?</table>', page, re.S)
    lines = re.findall(r"<tr.*?</tr>", body, re.S)
    cells = [re.findall(r"<t[hd].*?</t[hd]>", line, re.S) for line in lines]
    return [[re.sub(r"<[^>]+>", "", cell).strip() for cell in line] for line in cells]


def test_data_sets_of_one_configuration_are_rows(tmp_path: Path) -> None:
    runs.run(tmp_path / "a", 0.4, more=PARTS)
    page = page_of(tmp_path)
    assert 'id="by-task"' not in page, "one wide row"
    assert {row[0] for row in rows_of(page, "every")[1:]} == {"toy/nli:dev", *(f"toy/nli:{part}" for part in PARTS)}


def test_many_data_sets_of_a_few_configurations_are_rows(tmp_path: Path) -> None:
    for rate in (1e-5, 2e-5):
        runs.run(tmp_path / f"{rate}", 0.4, optim__lr=rate, more=PARTS)
    header, *rows = rows_of(page_of(tmp_path), "by-task")
    assert header == ["data", "lr 1e-05", "lr 2e-05"]
    assert ["toy/nli:part6 accuracy", "56.00 (1)", "56.00 (1)"] in rows
    assert len(rows) == 8


def test_configurations_with_several_data_sets_keep_the_table_by_task(tmp_path: Path) -> None:
    for rate in (1e-5, 2e-5):
        runs.run(tmp_path / f"{rate}", 0.7, more={"test": {"accuracy": 0.6}}, optim__lr=rate)
    page = page_of(tmp_path)
    assert 'id="by-task"' in page
    assert 'id="every-1"' not in page
