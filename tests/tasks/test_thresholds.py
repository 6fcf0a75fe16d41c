"""Thresholds: how they are chosen, that the model keeps them, and that everything that answers applies them."""

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as fewer
from hypothesis import strategies as st

import encodery as en
from encodery.cli import main
from encodery.core.files import read_json
from encodery.errors import UserError
from encodery.inference.answer_head import Head
from encodery.inference.ensemble import average
from encodery.runs.directory import RunDir
from encodery.tasks.forms.label_metrics import Tables
from encodery.tasks.forms.metric_names import parse
from encodery.tasks.forms.thresholds import choose, decide
from tests.toolbox.runs import config_for, run, settings
from tests.toolbox.tasks import multilabel_task, single_task

# How they are chosen


def two(gold: list[bool], chances: list[float]) -> Tables:
    there, yes = np.asarray(gold, float), np.asarray(chances)
    table = np.stack([1 - there, there], axis=1)
    return Tables(["no", "yes"], table, table, np.stack([1 - yes, yes], axis=1), "yes")


def with_threshold(tables: Tables, limit: float) -> Tables:
    yes = (tables.chances[:, 1] > limit).astype(float)
    return Tables(tables.labels, tables.gold, np.stack([1 - yes, yes], axis=1), tables.chances, "yes")


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.booleans(), st.sampled_from([i / 16 for i in range(17)])), min_size=1, max_size=25),
    st.sampled_from(["f1", "accuracy", "mcc", "macro_f1", "balanced_accuracy", "f1_no", "weighted_f1"]),
)
@fewer(max_examples=150)
def test_F31_no_other_threshold_of_two_labels_is_better(rows: list[tuple[bool, float]], name: str) -> None:
    tables, metric = two(*map(list, zip(*rows, strict=True))), parse(name, "single")
    found = choose(tables, metric, by_label=False)
    limit = found.thresholds["yes"]
    assert found.score == pytest.approx(with_threshold(tables, limit).value(metric))
    assert found.at_half == pytest.approx(with_threshold(tables, 0.5).value(metric))
    best = max(with_threshold(tables, other / 32).value(metric) or 0.0 for other in range(33))
    assert found.score == pytest.approx(best)


def test_of_equal_thresholds_the_one_nearest_to_a_half_is_taken() -> None:
    perfect = two([True, False], [0.9, 0.1])
    assert choose(perfect, parse("f1", "single"), False).thresholds == {"yes": 0.5}
    low = two([True, True, False], [0.3, 0.2, 0.1])
    assert choose(low, parse("f1", "single"), False).thresholds == {"yes": pytest.approx(0.15)}


@pytest.mark.parametrize("name", ["macro_f1", "micro_f1", "weighted_f1", "subset_accuracy", "f1_b"])
@pytest.mark.parametrize("seed", range(3))
def test_F31_thresholds_of_several_labels(name: str, seed: int) -> None:
    """One for all is the best common one; one for each is never worse, and for macro F1 the best there is."""
    draw = np.random.default_rng(seed)
    gold, chances = draw.integers(0, 2, (12, 3)).astype(float), draw.integers(0, 9, (12, 3)) / 9
    metric, labels = parse(name, "multilabel"), list("abc")

    def score(limits: Any) -> float:
        return Tables(labels, gold, (chances > np.asarray(limits)).astype(float), chances, single=False).value(metric)

    tables = Tables(labels, gold, gold, chances, single=False)
    common, each = (choose(tables, metric, by_label=by_label) for by_label in (False, True))
    grid = [0.0, *(i / 18 for i in range(1, 19, 2)), 1.0]
    assert len(set(common.thresholds.values())) == 1
    assert common.score == pytest.approx(max(score([limit] * 3) for limit in [*grid, 0.5]))
    assert each.score >= common.score >= common.at_half
    assert each.score == pytest.approx(score([each.thresholds[label] for label in labels]))
    if name == "macro_f1":
        assert each.score == pytest.approx(max(map(score, itertools.product(grid, repeat=3))))


def test_an_answer_is_what_lies_above_its_threshold() -> None:
    assert decide({"a": 0.7, "b": 0.3}, {"b": 0.2}, several=False) == "b"
    assert decide({"a": 0.7, "b": 0.3}, {"b": 0.3}, several=False) == "a"
    assert decide({"a": 0.4, "b": 0.3, "c": 0.6}, {"a": 0.3, "b": 0.3}, several=True) == ["a", "c"]


def test_an_ensemble_takes_the_mean_of_the_thresholds() -> None:
    heads = [
        Head(called="x", form="single", names=["n", "y"], max_length=8, label_thresholds=[None, t]) for t in (0.1, 0.3)
    ]
    heads += [Head(called="x", form="single", names=["n", "y"], max_length=8)]  # this one has 0.5
    answers = [{"i": {"prediction": "n", "probabilities": {"n": 1 - p, "y": p}}} for p in (0.3, 0.3, 0.35)]
    assert average(heads[0], heads, answers)["i"]["prediction"] == "y"  # 0.3167 is above 0.3
    assert average(heads[0], heads[::2], answers[::2])["i"]["prediction"] == "y"
    assert average(heads[0], [heads[2]] * 3, answers)["i"]["prediction"] == "n"


# In a run


def rare(folder: Path, **task: Any) -> dict[str, Any]:
    """One row in eight is good, and hardly anything is learnt: at 0.5 no row is called good."""
    tree = settings(folder, task={"metric": "f1", "threshold": "dev", **task}, train={"epochs": 1})
    for name in ("train", "dev"):
        lines = (folder / f"{name}.csv").read_text().splitlines()
        good = [line for line in lines[1:] if line.endswith("good")]
        bad = [line for line in lines[1:] if line.endswith("bad")]
        kept = [lines[0], *good[: max(2, len(bad) // 7)], *bad]
        (folder / f"{name}.csv").write_text("\n".join(kept) + "\n")
    return tree


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunDir]:
    folder = tmp_path_factory.mktemp("rare")
    return folder, run(rare(folder), folder / "run")


@pytest.mark.slow
def test_F31_the_threshold_is_chosen_on_dev_and_kept_beside_the_weights(trained: tuple[Path, RunDir]) -> None:
    _, done = trained
    kept = read_json(done.model / "encodery.json")["tasks"]["table/train"]["thresholds"]
    assert (kept["chosen_on"], kept["metric"]) == ("dev", "f1")
    assert kept["labels"].keys() == {"good"}
    assert kept["score"] > kept["score_at_0.5"] == 0.0
    scores = done.read_scores()
    assert scores["scores"]["table/train:dev"]["f1"] == pytest.approx(kept["score"])
    assert scores["thresholds"]["table/train"] == kept
    page = (done.path / "README.md").read_text()
    assert f"| good | {kept['labels']['good']:.4f} |" in page
    assert "Chosen on the" in page
    assert "optimistic" in page
    assert "(threshold chosen on dev, reported on dev)" in (done.path / "log.txt").read_text()
    assert [line["eval.f1"] for line in done.metrics() if "eval.f1" in line][-1] == pytest.approx(kept["score"])


@pytest.mark.slow
def test_F31_load_evaluate_predict_and_export_apply_it(
    trained: tuple[Path, RunDir], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, done = trained
    written = {
        row["id"]: row["prediction"] for row in map(json.loads, done.predictions_path("table/train", "dev").open())
    }
    assert "good" in written.values()
    assert main(["export", str(done.path), str(tmp_path / "out")]) == 0
    assert "thresholds in encodery.json (good above" in capsys.readouterr().out
    texts = [line.rpartition(",")[0] for line in (folder / "dev.csv").read_text().splitlines()[1:]]
    for source in (done.path, tmp_path / "out"):
        model = en.load(source)
        limit = model.head.thresholds["good"]
        answers = model(texts)
        assert [answer.label for answer in answers] == list(written.values())
        assert [answer.label == "good" for answer in answers] == [a.probabilities["good"] > limit for a in answers]
    assert main(["evaluate", str(done.path), "--on", "table/train:dev", "-o", str(tmp_path / "again")]) == 0
    again = read_json(tmp_path / "again" / "scores.json")["evaluations"]["table/train:dev"]["scores"]
    assert again == pytest.approx(done.read_scores()["scores"]["table/train:dev"])
    capsys.readouterr()
    assert main(["predict", str(done.path), "--file", str(folder / "dev.csv"), "-o", str(tmp_path / "said.jsonl")]) == 0
    said = [json.loads(line)["prediction"] for line in (tmp_path / "said.jsonl").open()]
    assert said == list(written.values())


@pytest.mark.slow
def test_F31_with_a_holdout_dev_is_not_looked_at(tmp_path: Path) -> None:
    tree = rare(tmp_path)
    tree["train"]["holdout"] = 0.2
    done = run(tree, tmp_path / "run")
    kept = read_json(done.model / "encodery.json")["tasks"]["table/train"]["thresholds"]
    assert kept["chosen_on"] == "holdout"
    assert "(threshold chosen on holdout)" in (done.path / "log.txt").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("threshold", ["dev", "dev_each", 0.2, {"cat": 0.1, "dog": 0.9}])
def test_thresholds_of_several_labels_in_a_run(tmp_path: Path, threshold: Any) -> None:
    task = multilabel_task(tmp_path) | {"threshold": threshold, "metric": "macro_f1"}
    done = run(config_for(tmp_path, task), tmp_path / "run")
    kept = read_json(done.model / "encodery.json")["tasks"]["table/several"]["thresholds"]
    assert ("chosen_on" in kept) == isinstance(threshold, str)
    model = en.load(done.path)
    answer = model("the cat and the dog")
    limits = {label: kept["labels"].get(label, 0.5) for label in model.labels}
    assert answer.labels == tuple(label for label, p in answer.probabilities.items() if p > limits[label])
    if isinstance(threshold, dict):
        assert kept["labels"] == threshold
        assert "Set in the config" in (done.path / "README.md").read_text()


@pytest.mark.slow
def test_each_task_of_several_keeps_its_own(tmp_path: Path) -> None:
    first = single_task(tmp_path) | {"threshold": "dev", "metric": "mcc"}
    tree = config_for(tmp_path, first, train={"select": "each", "evaluate": "2 steps"})
    tree["tasks"].append(multilabel_task(tmp_path) | {"threshold": "dev_each"})
    done = run(tree, tmp_path / "run")
    thresholds = done.read_scores()["thresholds"]
    assert set(thresholds) == {"table/moods", "table/several"}
    folders = [read_json(path) for path in sorted(done.best.glob("*/encodery.json"))]
    assert len(folders) == 2
    for name, limits in thresholds.items():
        assert any(card["tasks"][name]["thresholds"] == limits for card in folders)


def test_a_threshold_needs_rows_to_choose_it_on(tmp_path: Path) -> None:
    tree = rare(tmp_path)
    tree["train"]["evaluate"] = "never"
    with pytest.raises(UserError, match=r"tasks\.threshold.*train\.evaluate"):
        run(tree, tmp_path / "run")
