"""What the page says of data: maps, clusters, label errors, selections, slices, task pairs, near-duplicates."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from encodery.cli import main
from encodery.report.page import build, near_duplicates, point_map, print_figures, row_marks
from encodery.report.page.chart import Chart, Dots, Heat, Section, Series
from encodery.report.page.data import PageData, gather
from encodery.report.page.html import Html
from encodery.report.page.row_marks import RowMarks
from encodery.report.page.sections import clusters, data_map, label_errors, selections, slices, task_pairs
from encodery.report.records import Record
from encodery.tasks.base import Example
from tests.report import runs
from tests.report.page import folder as made


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made.whole(tmp_path_factory.mktemp("source") / "all")


@pytest.fixture(scope="module")
def found(source: Path) -> PageData:
    return gather([source])


def of(section: Section | None) -> Section:
    assert section is not None
    return section


# Maps


def test_a_map_is_small_and_comes_out_again() -> None:
    columns: dict[str, Any] = {"label": ["yes", "no", None], "chance": [0.25, None, 0.75], "many": [1, 2, 10]}
    one = Dots("m", "Map", ["a", "b", "c"], [-1.0, 0.0, 3.0], [0.0, 0.5, 1.0], columns, texts=["x" * 300, "y", "z"])
    plain = point_map.plain(one)
    assert (plain["x"], plain["y"], plain["xRange"]) == ([0, 2500, 9999], [0, 5000, 9999], [-1.0, 3.0])
    label, chance, many = plain["columns"]
    assert [label["names"][code] for code in label["codes"]] == ["yes", "no", "none"]
    assert (chance["low"], chance["high"], chance["shares"]) == (0.25, 0.75, [0, None, 100])
    assert many["names"] == ["1", "2", "10"], "whole numbers are names, in their order"
    assert len(plain["texts"][0]) == point_map.TEXT


def test_a_column_of_many_values_keeps_the_commonest() -> None:
    values = [f"v{i}" for i in range(100)] + ["v7"] * 5
    names = point_map.names_of(values)
    assert (len(names), names[0], names[-1]) == (point_map.NAMES + 1, "v7", point_map.OTHER)
    assert max(point_map.codes_of(values, names)) == point_map.NAMES


def test_every_one_of_many_clusters_keeps_its_number() -> None:
    """The original's 512 clusters: `other` would say nothing of most points."""
    values = [str(i % 512) for i in range(2000)]
    names = point_map.names_of(values)
    assert names == [str(i) for i in range(512)]
    assert [names[code] for code in point_map.codes_of(values, names)] == values


def test_names_stand_on_the_scale_of_the_points() -> None:
    one = Dots("m", "Map", ["a", "b"], [-1.0, 3.0], [0.0, 2.0], {}, names=[(1.0, 2.0, "#0 <b>heron</b>")])
    assert point_map.plain(one)["names"] == [[5000, 9999, "#0 <b>heron</b>"]]


def test_what_is_left_out_of_a_map_is_said() -> None:
    one = Dots("m", "Map", ["a"] * 15_000, [0.0], [0.0], {}, texts=["t"], of=99_000, note="Note.")
    assert point_map.said(one) == "Note. 15,000 of 99,000 points are drawn. Texts are truncated to 80 characters."
    assert len(point_map.thinned(50_000)) == point_map.POINTS
    assert point_map.thinned(50_000)[-1] == 49_999


@pytest.mark.slow
def test_a_map_is_printed_too(tmp_path: Path) -> None:
    named = Dots("named", "Map", ["a", "b"], [0.0, 1.0], [0.0, 1.0], {"label": ["x", "y"]})
    shaded = Dots("shaded", "Map", ["a", "b"], [0.0, 1.0], [0.0, 1.0], {"c": [0.1, 0.2]}, x_name="x", y_name="y")
    bare = Dots("bare", "Map", ["a"], [0.0], [0.0], {}, names=[(0.0, 0.0, "#0 heron")])
    halves = [Series(name, x, [1, 2], kind="bars") for name in "ab" for x in ([0.5, 1.5],)]
    stacked = Chart("stacked", "Bars", "x", "y", halves, stacked=True)
    named_stack = Chart("names", "Bars", "x", "y", [Series("a", ["p", "q"], [0.5, 0.5], kind="bars")], stacked=True)
    gains = Heat("gains", "Gains", ["a"], ["a", "b"], [[-1.0, None]], [["-1", ""]], low=-1.0, high=1.0, signed=True)
    pictures = [named, shaded, bare, stacked, named_stack, gains]
    assert len(print_figures.write(pictures, tmp_path)) == 18
    assert "#0 heron" in (tmp_path / "bare.svg").read_text()


@pytest.mark.slow
def test_thirty_runs_and_twenty_thousand_points_are_below_four_megabytes(tmp_path: Path) -> None:
    made.many(tmp_path, count=30, rows=200)
    (tmp_path / "runs" / "chosen").mkdir()
    made.clusters(tmp_path / "runs" / "chosen", 20, points=20_000)
    out = tmp_path / "page.html"
    assert main(["report", str(tmp_path / "runs"), "-o", str(out)]) == 0
    assert out.stat().st_size < 4e6
    stored = re.search(r'id="clusters-0-map-data">(.*?)</script>', out.read_text(), re.S)
    assert stored is not None
    assert len(json.loads(stored[1])["ids"]) == 20_000


# Clusters


@pytest.mark.slow(0.5)
def test_clusters_are_shown_beside_chance(found: PageData) -> None:
    section = of(clusters.section(found))
    for words in (
        "300 rows of toy/nli:train in 5 clusters of 40 to 80 rows",
        "better than chance: purity 0.500, of random groups of these sizes 0.400 on average",
        "heron",
        "Chosen: 5.",
        "letters 57%",
        "×",
    ):
        assert words in section.body
    ids = [picture.id for picture in section.pictures]
    assert ids[0] == "clusters-0-map"
    assert {"clusters-0-silhouette", "clusters-0-stability", "clusters-0-inertia"} <= set(ids)
    (drawn,) = [one for one in section.pictures if isinstance(one, Dots)]
    assert next(iter(drawn.columns)) == "cluster"
    assert {"label", "genre", "correctness", "confidence"} <= set(drawn.columns), "runs with dynamics are at hand"
    assert "300 of 600 points are drawn" in section.body
    assert "Mean squared distance of a row to the centre" in section.body, "as clusters.json has it"
    by_id = {one.id: one for one in section.pictures}
    assert by_id["clusters-0-stability"].marks == [(5, pytest.approx(0.8), "chosen")]


@pytest.mark.slow
def test_the_labels_of_clusters_stand_beside_those_of_all_rows(found: PageData) -> None:
    (mix,) = [one for one in of(clusters.section(found)).pictures if one.id == "clusters-0-mix"]
    assert isinstance(mix, Chart)
    assert mix.stacked
    assert [one.x[0] for one in mix.series] == ["all rows"] * 3
    assert sum(one.y[0] or 0 for one in mix.series) == pytest.approx(1)


@pytest.mark.slow
def test_clusters_are_named_on_the_map_and_found_from_the_table(found: PageData) -> None:
    section = of(clusters.section(found))
    (drawn,) = [one for one in section.pictures if isinstance(one, Dots)]
    assert len(drawn.names) == 5
    where = np.array([int(str(value)) for value in drawn.columns["cluster"]])
    for x, y, text in drawn.names:
        number = int(text.split()[0].removeprefix("#"))
        assert (x, y) == (
            pytest.approx(np.median(np.array(drawn.x)[where == number])),
            pytest.approx(np.median(np.array(drawn.y)[where == number])),
        )
        assert f'data-map="clusters-0-map" data-find="cluster:{number}"' in section.body
    assert all(text.startswith("#") and " " in text for _, _, text in drawn.names), "with typical words"
    quiet = of(clusters.section(gather(found.folders, text=False)))
    (drawn,) = [one for one in quiet.pictures if isinstance(one, Dots)]
    assert sorted(text for _, _, text in drawn.names) == ["#0", "#1", "#2", "#3", "#4"], "words are text"


def test_clusters_of_an_older_version_are_shown_as_far_as_they_go(tmp_path: Path) -> None:
    folder = tmp_path / "old"
    folder.mkdir()
    made.clusters(folder, 4)
    stored = json.loads((folder / "clusters.json").read_text())
    for name in ("format", "task", "split", "k", "k_choice"):
        del stored[name]
    for one in stored["clusters"]:
        for name in ("words", "columns", "shared"):
            del one[name]
        one["groups"] = {"fiction": 3}
    (folder / "clusters.json").write_text(json.dumps(stored))
    (folder / "map.json").unlink()
    found = gather([tmp_path])
    section = of(clusters.section(found))
    assert "fiction 100%" in section.body
    assert "typical words" not in section.body
    assert found.remarks == ["old: has no map.json (it is of an older version); run `encodery select --analyse` again"]


def test_a_label_mix_unlike_the_pools_is_marked(tmp_path: Path) -> None:
    folder = tmp_path / "chosen"
    folder.mkdir()
    made.clusters(folder, 2)
    stored = json.loads((folder / "clusters.json").read_text())
    for one, p in zip(stored["clusters"], (0.001, 0.7), strict=True):
        one["p_holm"] = p
    (folder / "clusters.json").write_text(json.dumps(stored))
    body = of(clusters.section(gather([tmp_path]))).body
    assert body.count(" *</p>") == body.count("(as by chance)</p>") == 1
    assert "300 rows of toy/nli:train" in body, "known without the selection's own file"


def test_damaged_clusters_are_named(tmp_path: Path) -> None:
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "clusters.json").write_text('{"rows": 3}')
    found = gather([tmp_path])
    assert clusters.section(found) is None
    assert "bad/clusters.json is damaged and not shown" in found.remarks[0]


# Dynamics


@pytest.mark.parametrize(
    ("looks", "runs", "said"),
    [
        (4, 3, "at each of 4 records and 3 seeds, and 1 (25.0%) at none."),
        (4, 1, "at each of 4 records, and 1 (25.0%) at none."),
        (1, 3, "by each of 3 seeds, and 1 (25.0%) by none."),
        (1, 1, "at the only record, and 1 (25.0%) are not."),
    ],
)
def test_what_the_data_map_says_of_few_records_is_english(looks: int, runs: int, said: str) -> None:
    each = np.array([0.0, 0.5, 1.0, 1.0])
    rows = [Example(str(i), ("text",), "a") for i in range(4)]
    marks = RowMarks("plain", "toy/nli", rows, ("a", "b"), looks, runs, each, each, each, each, each, "eval")
    assert data_map.told(marks)[0] == f"Of 4 rows 2 (50%) are predicted correctly {said}"


def test_the_data_map_has_confidence_variability_and_correctness(found: PageData) -> None:
    (marks,) = row_marks.of_runs(found)
    assert (marks.runs, marks.looks, len(marks.examples)) == (2, 4, 2000)
    turned = np.arange(2000) % 7 == 3
    assert marks.confidence[turned].mean() < 0.3 < 0.6 < marks.confidence[~turned].mean()
    assert marks.margin[turned].mean() < 0 < marks.margin[~turned].mean()
    section = of(data_map.section(found))
    (drawn,) = section.pictures
    assert isinstance(drawn, Dots)
    assert (drawn.x_name, drawn.y_name, list(drawn.columns)[:3]) == (
        "variability", "confidence", ["correctness", "label", "predicted"],
    )  # fmt: skip
    assert marks.variability.max() <= drawn.fixed["x"][1] < marks.variability.max() + 0.05, "no empty half"
    for words in ("Hardest (least confident)", "Most ambiguous (most variable)", "Never learnt ("):
        assert words in section.body


def test_marks_are_those_of_the_paper() -> None:
    """Two looks at one row with p(label) = 0.8 and 0.2."""
    chances = np.array([[[0.8, 0.2]], [[0.2, 0.8]]])
    example = Example("1", ("text",), "yes")
    marks = row_marks._marks("run", "task", [example], {"labels": ["yes", "no"]}, np.log(chances))
    assert marks is not None
    assert (marks.confidence[0], marks.variability[0], marks.correctness[0]) == pytest.approx((0.5, 0.3, 0.5))
    assert marks.margin[0] == pytest.approx(0.0)


def test_a_look_that_did_not_see_a_row_does_not_count() -> None:
    logits = np.log(np.array([[[0.8, 0.2]], [[0.2, 0.8]]]))
    logits[1] = np.nan
    marks = row_marks._marks("r", "t", [Example("1", ("text",), "yes")], {"labels": ["yes", "no"]}, logits)
    assert marks is not None
    assert (marks.confidence[0], marks.variability[0], marks.correctness[0]) == pytest.approx((0.8, 0.0, 1.0))


def test_damaged_dynamics_are_named(tmp_path: Path) -> None:
    path = runs.run(tmp_path / "run", 0.5)
    made.dynamics(path, "toy/nli", 1)
    np.save(path / "dynamics" / "logits.npy", np.zeros((2, 3)), allow_pickle=False)
    found = gather([tmp_path])
    assert data_map.section(found) is None
    assert any("its dynamics are not shown" in line for line in found.remarks)


def test_likely_label_errors_by_margin_and_out_of_fold(found: PageData) -> None:
    (marks,) = row_marks.of_runs(found)
    suspects, count = label_errors.of_margins(marks)
    assert count >= len(suspects) == label_errors.ROWS
    assert all(int(one.id.rpartition("-")[2]) % 7 == 3 for one in suspects)
    section = of(label_errors.section(found))
    chart, matrix = section.pictures
    assert isinstance(chart, Chart)
    own, other = chart.series
    assert (sum(own.y), sum(other.y)) == (2000 - count, count), "negative margins have their own colour"
    assert all(x > 0 for x, y in zip(own.x, own.y, strict=True) if y)
    assert all(x < 0 for x, y in zip(other.x, other.y, strict=True) if y)
    assert isinstance(matrix, Heat)
    assert sum(value or 0 for line in matrix.values for value in line) == 223
    assert all(matrix.values[place][place] == 0 for place in range(3))
    assert "of 2,000 rows have a negative area under the margin" in section.body
    assert "223 of 2,000 labels are likely wrong by confident learning" in section.body, "every ninth was turned"


# Selections


def test_selections_are_shown_beside_their_pool(found: PageData) -> None:
    section = of(selections.section(found))
    assert "Selections of toy/nli:train" in section.body
    assert "clusters (k 5)" in section.body
    assert 'href="#learning"' in section.body
    kinds = {picture.id.rpartition("-")[2]: picture for picture in section.pictures}
    assert isinstance(kinds["labels"], Chart)
    assert [one.name for one in kinds["labels"].series] == ["pool", "clusters", "random"]
    assert isinstance(kinds["lengths"], Chart)
    assert isinstance(kinds["overlap"], Heat)
    assert kinds["overlap"].values == [[1.0, 0.0], [0.0, 1.0]]
    assert "random choices have 33% in common" in kinds["overlap"].note


def test_of_an_order_of_all_rows_the_first_tenth_is_drawn() -> None:
    """All of it is the pool again."""
    words = {"mean": 8.0, "counts": [1, 3]}
    summary = {
        "word_edges": [0, 5, 10], "pool": {"words": {"mean": 6.0, "counts": [5, 5]}},
        "chosen": {"words": {"mean": 6.0, "counts": [5, 5]}}, "first": {"labels": {"yes": 3, "no": 1}, "words": words},
    }  # fmt: skip
    half = {"yes": 0.5, "no": 0.5}
    meta = {"pool": 40, "labels": {"pool": half, "chosen": half}, "selector": {"kind": "aum", "stratify": []}}
    order = selections.Selected(Path("x"), "aum", meta, summary, [{"id": str(i)} for i in range(40)])
    labels, lengths = selections._labels("i", "p", [order]), selections._lengths("i", "p", [order])
    assert labels is not None
    assert lengths is not None
    assert [(one.name, list(one.y)) for one in labels.series] == [
        ("pool", [0.5, 0.5]), ("aum, first 10%", [0.75, 0.25]),
    ]  # fmt: skip
    assert [(one.name, list(one.y)) for one in lengths.series][1] == ("aum, first 10%", [0.25, 0.75])
    assert order.how == "aum"


def chosen(ids: list[int], pool: int = 100) -> selections.Selected:
    return selections.Selected(Path("x"), "x", {"pool": pool}, {}, [{"id": str(i)} for i in ids])


def test_whole_orders_are_compared_by_their_first_tenth() -> None:
    first, shares, chance = selections.overlap([chosen(list(range(100))), chosen([*range(5), *range(99, 4, -1)])])
    assert (first, chance, shares[0][1]) == (10, 0.1, 0.5)
    first, shares, chance = selections.overlap([chosen([1, 2, 3, 4]), chosen([3, 4])])
    assert (first, chance, shares[0]) == (2, 0.02, [1.0, 0.0])


def test_runs_that_were_trained_on_a_selection_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "selections" / "hard"
    made.selection(folder, "el2n", "toy/nli", 0)
    for seed, value in ((1, 0.7), (2, 0.8)):
        subset = {"tasks__0__subset": str(folder), "tasks__0__fraction": 0.1}
        runs.run(tmp_path / "runs" / f"s{seed}", value, seed=seed, **subset)
    page = of(selections.section(gather([tmp_path]))).body
    assert "toy/nli:dev: accuracy 75.00 with 10% (2 runs)" in page
    assert str(tmp_path) not in page


@pytest.mark.parametrize("beside", [False, True], ids=["the curve alone", "beside a selection of the same name"])
def test_the_run_of_each_seed_stands_beside_the_selection_of_its_seed(tmp_path: Path, beside: bool) -> None:
    """Beside it, the paths of a page are longer: two parts of each tell them apart."""
    for seed, value in ((1, 0.7), (2, 0.8)):
        folder = tmp_path / "curve" / "selections" / f"el2n-seed-{seed}"
        made.selection(folder, "el2n", "toy/nli", 0)
        runs.run(tmp_path / "curve" / f"s{seed}", value, seed=seed, tasks__0__subset=str(folder))
    if beside:
        made.selection(tmp_path / "own" / "el2n", "el2n", "toy/nli", 0)
        runs.run(tmp_path / "own" / "run", 0.9, tasks__0__subset=str(tmp_path / "own" / "el2n"))
    found = gather([tmp_path])
    by_name = {one.parent.name: selections._read(found, one) for one in tmp_path.rglob("selection.jsonl")}
    told = {name: selections.trained_on(found, one) for name, one in by_name.items() if one}
    expected = {
        "el2n-seed-1": "toy/nli:dev: accuracy 70.00 with 100% (1 run)",
        "el2n-seed-2": "toy/nli:dev: accuracy 80.00 with 100% (1 run)",
    } | ({"el2n": "toy/nli:dev: accuracy 90.00 with 100% (1 run)"} if beside else {})
    assert told == expected


# Slices, pairs, near-duplicates


def test_slices_have_intervals_and_a_line_for_all_rows(found: PageData) -> None:
    section = of(slices.section(found))
    (chart,) = section.pictures
    assert isinstance(chart, Chart)
    assert list(chart.series[0].x)[:2] == ["speech (42)", "letters (41)"]
    assert chart.rules[0][1].startswith("all rows: ")
    assert "70.00 to 90.00" in section.body


def test_slices_of_seeds_are_means() -> None:
    cell = {"value": "a", "rows": 10, "low": 0.2, "high": 0.8}
    each = [{"metric": "accuracy", "by": {"genre": [{**cell, "scores": {"accuracy": score}}]}} for score in (0.4, 0.6)]
    assert slices.means(each, "genre") == {"a": {"rows": 10.0, "score": 0.5, "low": 0.2, "high": 0.8}}


def record(task: str, seed: int, scores: dict[str, float]) -> Record:
    data = {f"{name}:dev": {"accuracy": value} for name, value in scores.items()}
    main_of = dict.fromkeys(data, "accuracy")
    return Record(Path(task), {"optim.lr": 1, "tasks": task}, seed, task, "done", scores=data, main=main_of)


def test_true_gains_are_those_of_pairs_over_single_tasks_with_equal_seeds() -> None:
    known = [record("a", seed, {"a": 0.5}) for seed in (1, 2)] + [record("b", 1, {"b": 0.7})]
    known += [record("a + b", 1, {"a": 0.6, "b": 0.6}), record("a + b", 2, {"a": 0.7, "b": 0.6})]
    gains = task_pairs.pair_gains(known)
    assert gains["a", "b"].values == pytest.approx((10.0, 20.0))
    assert gains["b", "a"].values == pytest.approx((-10.0,)), "b alone was not run with seed 2"


def test_a_loss_that_falls_is_a_gain(tmp_path: Path) -> None:
    def with_loss(task: str, loss: float) -> Record:
        data = {"a:dev": {"loss": loss}}
        return Record(Path(task), {"optim.lr": 1, "tasks": task}, 1, task, "done", scores=data, main={"a:dev": "loss"})

    gains = task_pairs.pair_gains([with_loss("a", 0.75), with_loss("a + b", 0.5)])
    assert gains["a", "b"].values == pytest.approx((0.25,))
    tried = [{"tasks": [], "scores": {"1": 0.75}}, {"tasks": ["b"], "scores": {"1": 0.5}}]
    stored = {"trials": {"a": tried}, "rows": [{"primary": "a", "metric": "loss"}]}
    assert task_pairs._of_trials(stored)["a", "b"].values == pytest.approx((0.25,))


def study(folder: Path) -> None:
    names = ["a", "b", "c"]
    values = [[1, 0.5, 0.1], [0.5, 1, 0.3], [0.1, 0.3, 1]]
    other = [[1, 0.7, 0.1], [0.7, 1, 0.3], [0.1, 0.3, 1]]
    matrices = {
        str(i): {"names": names, "kind": "kendall", "norm": "l1", "values": v} for i, v in enumerate((values, other))
    }
    tried = {
        primary: [{"tasks": [], "scores": {"1": 0.5}, "counts": True}]
        + [{"tasks": [other], "scores": {"1": 0.5 + gain}, "counts": True} for other, gain in gains.items()]
        for primary, gains in {"a": {"b": 0.1, "c": -0.1}, "b": {"c": 0.0}}.items()
    }
    stored = {"matrices": matrices, "trials": tried, "stability": {"a": 0.81, "b": 0.7, "c": 0.5}}
    folder.mkdir()
    (folder / "gradts.json").write_text(json.dumps(stored))


def test_head_correlation_and_true_gains_are_side_by_side(tmp_path: Path) -> None:
    study(tmp_path / "study")
    section = of(task_pairs.section(gather([tmp_path])))
    alike, gains = section.pictures
    assert isinstance(alike, Heat)
    assert isinstance(gains, Heat)
    assert alike.values[0][1] == pytest.approx(0.6), "mean over seeds"
    assert "a and b: 0.600 ± 0.141" in alike.hints[0][1]
    assert [round(value or 0, 1) for value in gains.values[0]] == [0, 10.0, -10.0]
    assert gains.values[1][0] is None
    assert section.body.count('class="empty"') == 6, "a pair that was not trained is not the worst"
    assert section.body.count('class="below"') == 1
    assert alike.texts[0] == ["1.00", "0.60 ± 0.14", "0.10 ± 0.00"]
    assert "Over the 3 pairs that were trained" in section.body
    assert "correlation of both matrices is 1.00" in section.body
    assert ">0.810<" in section.body
    assert ">0.071<" in section.body, "sd of a's correlations with b (0.141) and c (0); with itself it is none"


def test_the_data_card_names_near_duplicates_and_leakage(found: PageData) -> None:
    sentence = "the quick brown fox jumps over the lazy dog while it rains in the old town today"
    train = [Example("t1", (sentence,), "yes"), Example("t2", ("another thing altogether, of no use",), "no")]
    dev = [Example("d1", (sentence + " again",), "no"), Example("d2", ("some third words that are alone",), "no")]
    card = near_duplicates.card(found, "x", "table/own", [("train", train), ("dev", dev)])
    assert "dev: rows that are nearly in train, so that their scores may be memory: 1 of 2 (50.0%)." in card
    assert "train: rows" not in card
    assert re.search(r"d1.*t1", card)
    assert near_duplicates.card(found, "x", "t", [("train", train[1:]), ("dev", dev[1:])]) == Html("")


@pytest.mark.slow(0.5)
def test_without_text_the_maps_have_none(source: Path) -> None:
    found = gather([source], text=False)
    page = build.page(found, build.sections(found), "No text")
    assert "point 7" not in page
    assert "heron" not in page, "typical words are text"
    assert "The rich" not in page
