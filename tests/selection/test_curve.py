"""Retraining curves: what is trained, what is shared, what the tables say."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml

from encodery.cli import main
from encodery.config import load
from encodery.core.lock import RunLock
from encodery.core.progress import Progress
from encodery.data.subset import Subset
from encodery.errors import RunFailed, UserError
from encodery.report import stats
from encodery.report.data_curves import Curves, Point, area, flat, gaps_to_random, markdown, needed, needed_text, plain
from encodery.runs.directory import RunDir
from encodery.runs.sweep_spec import Outcome
from encodery.selection import curve
from encodery.selection.curve_parts import lines_of, parts_of
from encodery.training.run import train_run
from tests.toolbox.runs import settings

ROWS = 96


def write(folder: Path, **keys) -> Path:
    tree = settings(folder, train={"epochs": 2, "batch_size": 16})
    given = {
        "methods": {"stream": {"kind": "clusters", "k": 4}, "el2n": "el2n"},
        "fractions": [0.25, "50%"],
        "seeds": 1,
    }
    path = folder / "curve.yaml"
    path.write_text(yaml.safe_dump({**tree, **given, **keys}))
    return path


@pytest.fixture
def executed(monkeypatch):
    """Runs in this process, in order; the names of those that were trained."""
    trained: list[str] = []

    def execute(folder, source, resources, limits, executor, progress):
        ended: dict[str, Outcome] = {}
        while not source.exhausted(ended, []):
            for spec in source.ready(ended, [], 99):
                if not (folder / spec.name / "DONE").is_file():
                    trained.append(f"{folder.name}/{spec.name}")
                    train_run(load.load(json.loads(json.dumps(spec.config))), folder / spec.name)
                ended[spec.id] = Outcome(spec.id, "done")
        return list(ended.values())

    monkeypatch.setattr(curve, "execute", execute)
    return trained


@pytest.mark.slow
def test_D14_steps_are_said_and_everything_is_trained_once(tmp_path, executed, capsys):
    path = write(tmp_path)
    assert main(["curve", str(path), "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "96 rows, batches of 16; 100 %: 12 steps, once" in said
    assert "25 % = 24 rows: epochs-matched 4 steps, updates-matched 12 steps" in said
    plan = curve.load(path, ["--fractions=[0.25]"], tmp_path / "out")
    found = curve.run(plan, Progress(quiet=True))
    full = [name for name in executed if name.startswith("full/")]
    assert len(full) == 1
    assert len(executed) == 1 + 3 * 2  # methods × matches
    keys = {(p.method, p.match, p.fraction, p.seed) for p in found.points}
    assert len(keys) == len(found.points) == 3 * 2 * 2
    whole = [p.scores for p in found.points if p.fraction == 1.0]
    assert all(one == whole[0] for one in whole)
    assert {(p.match, p.steps) for p in found.points if p.fraction == 0.25} == {("epochs", 4), ("updates", 12)}
    count = len(executed)
    text = (tmp_path / "out" / "curve.md").read_text()
    assert "| steps | 12 | 12 |" in text
    assert "| steps | 4 | 12 |" in text
    assert (tmp_path / "out" / "curve-table-train-dev.svg").read_text().startswith("<?xml")
    again = curve.run(curve.load(path, ["--fractions=[0.25]"], tmp_path / "out"), Progress(quiet=True))
    assert len(executed) == count  # nothing was trained or chosen again
    assert again == found
    data = json.loads((tmp_path / "out" / "curve.json").read_text())
    assert {one["method"] for one in data["curves"]} == {"random", "stream", "el2n"}


def test_failed_runs_and_wrong_files_are_said(tmp_path, monkeypatch):
    path = write(tmp_path)
    plan = curve.load(path, [], tmp_path / "out")

    def execute(folder, source, *_):
        return [Outcome(spec.id, "failed", error="no luck") for spec in source.ready({}, [], 99)]

    monkeypatch.setattr(curve, "execute", execute)
    with pytest.raises(RunFailed, match="no luck"):
        curve.run(plan, Progress(quiet=True))
    with pytest.raises(UserError, match="did you mean pick"):
        curve.load(write(tmp_path, methods={"a": {"kind": "clusters", "pik": "whole"}}), [], tmp_path)
    with pytest.raises(UserError, match="30 is not above 0 and at most 1"):
        curve.load(write(tmp_path, fractions=[30.0]), [], tmp_path)
    with pytest.raises(UserError, match="remove them"):
        curve.load(write(tmp_path), ["--tasks.fraction=0.5"], tmp_path)
    with pytest.raises(UserError, match="first:last:step"):
        curve.spelled("0.1-1.0")
    assert curve.spelled("0.1:1.0:0.1") == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]


def test_parts_without_a_row_and_more_clusters_than_rows_are_refused_at_once(tmp_path):
    with pytest.raises(UserError, match=r"^fractions: 0\.01 of 96 rows is less than one row"):
        curve.load(write(tmp_path, fractions=[0.01, 0.5]), [], tmp_path)
    many = {"stream": {"kind": "clusters", "k": ROWS + 1}}
    with pytest.raises(UserError, match=r"^methods\.stream\.k: 97 clusters of 96 rows; ask for fewer, such as 9$"):
        curve.load(write(tmp_path, methods=many), [], tmp_path)
    curve.load(write(tmp_path, methods={"stream": {"kind": "clusters", "k": ROWS}}), [], tmp_path)
    curve.load(write(tmp_path, methods={"stream": "clusters"}), [], tmp_path)  # its own number is for larger pools


def test_R8_a_second_curve_on_the_folder_is_refused(tmp_path, monkeypatch):
    out = tmp_path / "out"
    plan = curve.load(write(tmp_path), [], out)
    out.mkdir()
    with RunLock(out), pytest.raises(UserError, match=r"out is in use by process .* another folder with -o"):
        curve.run(plan, Progress(quiet=True))
    assert {file.name for file in out.iterdir()} <= {".lock"}  # nothing of the first was overwritten

    def execute(folder, source, *_):
        assert (out / ".lock").is_file()
        raise RunFailed("no luck")

    monkeypatch.setattr(curve, "execute", execute)
    for _ in range(2):  # a curve that failed has given its lock back
        with pytest.raises(RunFailed, match="no luck"):
            curve.run(plan, Progress(quiet=True))


def line(*points):
    return [(x, [y - 0.01, y + 0.01]) for x, y in points]


def test_area_and_data_needed():
    straight = line((0.2, 0.5), (1.0, 0.9))
    assert area(straight) == pytest.approx(0.7)
    assert needed(straight) == pytest.approx(0.2 + 0.8 * (0.99 * 0.9 - 0.5) / 0.4)
    assert needed(line((0.2, 0.9), (1.0, 0.9))) == 0.2
    assert needed(line((0.2, 0.9))) is None
    falling = line((0.2, 2.0), (1.0, 1.0))  # a loss
    assert needed(falling, lower=True) == pytest.approx(0.2 + 0.8 * (2.0 - 1 / 0.99))
    assert needed(falling) == 0.2  # as an accuracy it would be better with less
    assert area(line((1.0, 0.5))) is None


def test_every_method_stands_beside_random():
    scores = {"random": (0.5, 0.6), "mine": (0.55, 0.67)}
    points = [
        Point(method, "epochs", fraction, seed, 4, 10, {"t:dev": {"accuracy": 0.9 if fraction == 1 else values[seed]}})
        for method, values in scores.items()
        for seed in (0, 1)
        for fraction in (0.5, 1.0)
    ]
    curves = Curves(points, "t:dev", {"t:dev": "accuracy"})
    gaps = gaps_to_random(curves, "epochs", "t:dev", "accuracy")
    assert list(gaps) == [("mine", 0.5)]
    assert str(gaps["mine", 0.5]).startswith("+6.0 (p ")
    text = markdown(curves)
    assert text.index("| random |") < text.index("| mine |")
    assert "55.0 ± 7.1 (2)" in text


def test_W37_several_comparisons_with_random_are_adjusted_together():
    draw = np.random.default_rng(1)
    points = [
        Point(method, "epochs", fraction, seed, 4, 10, {"t:dev": {"accuracy": 0.8 + 0.05 * draw.random()}})
        for method in ("random", "a", "b", "c")
        for seed in range(4)
        for fraction in (0.25, 0.5, 1.0)
    ]
    curves = Curves(points, "t:dev", {"t:dev": "accuracy"})
    gaps = gaps_to_random(curves, "epochs", "t:dev", "accuracy")
    raw, adjusted = [gap.p for gap in gaps.values()], [gap.p_holm for gap in gaps.values()]
    assert len(raw) == 6
    assert adjusted == pytest.approx(stats.holm(raw))
    assert min(adjusted) == pytest.approx(min(1.0, 6 * min(raw)))
    assert f"(p {min(adjusted):.2f})" in markdown(curves)
    assert [one["p_holm"] for one in plain(curves)["against_random"]] == pytest.approx(adjusted)


def test_W37_a_curve_that_is_flat_within_its_intervals_names_no_share_of_the_data():
    def curve_of(*means):
        return [(x, [y - 0.01, y, y + 0.012]) for x, y in zip((0.1, 0.5, 1.0), means, strict=True)]

    level, steep = curve_of(0.80, 0.79, 0.80), curve_of(0.50, 0.70, 0.80)
    assert needed(level) == 0.1  # by means alone a tenth would do
    assert flat(level)
    assert needed_text(level, "accuracy") == "flat"
    assert not flat(steep)
    assert needed_text(steep, "accuracy") == f"{100 * needed(steep):.1f}"
    few = [(x, ys[:2]) for x, ys in steep]
    assert flat(few) is None
    assert needed_text(few, "accuracy").endswith(" ?")


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"on": ["hanz"]}, "on: there is no 'hanz' in tasks. Did you mean 'hans'"),
        ({"on": "toy/nli:tst"}, 'on: toy/nli has no split "tst"'),
        ({"on": "table/train:test"}, "on: table/train:test is not here; it has train, dev"),
        ({"on": "toy/similarity"}, "do not answer toy/similarity"),
        ({"embed": {"model": "./nowhere"}}, "embed.model: model ./nowhere: no such folder"),
        ({"fractions": []}, "fractions: there is none below 1"),
        ({"fractions": "0.5:0.1:0.1"}, "fractions: there is none below 1"),
        (
            {
                "methods": {"a": {"kind": "cartography", "pick": "hard"}},
                "scores": {"train.max_steps": 3},
                "dynamics": "train",
            },
            "methods.a: needs 1 record .* give 0",
        ),
        ({"methods": {"a": "cartography"}, "scores": {"train.epochs": 1}}, "methods.a: needs 2 records .* give 1"),
        ({"dynamics": "train"}, "methods.el2n: reads the logits after an epoch, but dynamics: train"),
        ({"methods": {"a": {"kind": "el2n", "epoch": 3}}}, "methods.a: needs 3 records .* on the full set give 2"),
        ({"scores": {"train.maxsteps": 3}}, "train.maxsteps: unknown key; did you mean max_steps"),
        ({"fewer": {"stream": [0.3]}}, "fewer.stream: 0.3: give some of the fractions 0.25, 0.5, 1"),
        ({"fewer": {"streams": [0.5]}}, "there is no method streams"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_trained(tmp_path, keys, sentence):
    with pytest.raises(UserError, match=sentence):
        curve.load(write(tmp_path, **keys), [], tmp_path)


def test_what_selections_say_of_themselves_stands_under_the_curve(tmp_path):
    chosen = {}
    for seed in (1, 2):
        folder = Subset(["a", "b"], {"pool": 2, "notes": ["few rows"]}).write(tmp_path / f"el2n-{seed}").parent
        chosen["el2n", seed] = folder
    assert curve.notes_of(chosen) == ["el2n: few rows"]


def test_one_word_is_a_list_and_fewer_points_are_fewer_runs(tmp_path):
    plan = curve.load(write(tmp_path, match="epochs", fewer={"el2n": ["50%"]}), [], tmp_path)
    assert plan.curve.match == ["epochs"]
    assert plan.curve.parts_of("el2n") == [0.5, 1.0]
    assert plan.runs == 1 + 2 + 2 + 1
    ids = [example.id for example in plan.base.tasks[0][0].examples("train")]
    chosen = {}
    for place, name in enumerate(plan.selectors):
        rows = [*ids[place:], *ids[:place]]
        chosen[name, 1] = Subset(rows, {"pool": ROWS}).write(tmp_path / name).parent
    lines = [(one.taken.folder.name, one.taken.asked) for one in lines_of(parts_of(plan, chosen))]
    assert sorted(lines) == [("el2n", 0.5), ("random", 0.25), ("random", 0.5), ("stream", 0.25), ("stream", 0.5)]


def test_a_later_evaluation_does_not_make_a_selection_anew(trained, tmp_path):
    run = RunDir(shutil.copytree(trained("pair"), tmp_path / "run"))
    asked = {"runs": [str(run.path)], "embed": {"model": "petit"}}
    before = curve.made_of(asked)
    assert len(before) == 1
    run.write_scores(run.read_scores() | {"evaluations": {"hans:dev": {"scores": {"accuracy": 0.5}}}})
    assert curve.made_of(asked) == before
    run.write_scores(run.read_scores() | {"scores": {}})
    assert curve.made_of(asked) != before
