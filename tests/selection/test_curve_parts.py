"""Curves of selections that stop short, and of choices that differ from seed to seed."""

import json
from pathlib import Path

import pytest

from encodery.core.progress import Progress
from encodery.data.subset import META, Subset
from encodery.report.data_curves import markdown
from encodery.runs.directory import RunDir
from encodery.selection import curve
from encodery.selection.curve_parts import lines_of, parts_of, remarks
from tests.selection.test_curve import ROWS, executed, write

__all__ = ["executed"]

SHORT = {"centroid": {"kind": "clusters", "k": 4, "pick": "centroid"}}


@pytest.mark.slow
def test_D26_a_selection_that_stops_short_stands_at_the_share_it_has(tmp_path, executed):
    plan = curve.load(write(tmp_path, methods=SHORT), [], tmp_path / "out")
    found = curve.run(plan, Progress(quiet=True))
    mine = [p for p in found.points if p.method == "centroid" and p.fraction < 1]
    assert {(p.fraction, p.rows, p.match, p.steps) for p in mine} == {
        (4 / ROWS, 4, "epochs", 2),  # two epochs of one step
        (4 / ROWS, 4, "updates", 12),
    }
    assert len(executed) == 1 + 2 + 2 * 2 + 2  # everything, centroid, random at two fractions, and of four rows
    beside = [p for p in found.points if (p.method, p.fraction) == ("random", 4 / ROWS)]
    assert {(p.rows, p.match, p.steps) for p in beside} == {(4, "epochs", 2), (4, "updates", 12)}
    text = (tmp_path / "out" / "curve.md").read_text()
    assert "| 4.167 % | 25 % | 50 % | 100 % |" in text
    assert "centroid takes no more than 4 of 96 rows: it is drawn at 4.167 %, beside as many random rows" in text
    count = len(executed)
    curve.run(curve.load(write(tmp_path, methods=SHORT), [], tmp_path / "out"), Progress(quiet=True))
    assert len(executed) == count


def chosen_by(plan, tmp_path: Path, **orders: list[str]) -> dict:
    found = {}
    for (name, seed), ids in {(n, s): ids for n, ids in orders.items() for s in plan.curve.seed_list}.items():
        meta = {"pool": ROWS, "short": True}
        found[name, seed] = Subset(ids, meta).write(tmp_path / f"{name}-{seed}").parent
    return found


def test_D26_equal_sets_are_trained_once_and_shares_of_the_file_keep_their_name(tmp_path):
    plan = curve.load(write(tmp_path, methods={"a": "random", "b": "random"}, match="epochs"), [], tmp_path / "out")
    ids = [example.id for example in plan.base.tasks[0][0].examples("train")]
    parts = parts_of(plan, chosen_by(plan, tmp_path, random=ids, a=ids[:24][::-1], b=ids[24:]))
    drawn = [(part.method, part.fraction, part.taken.rows) for part in parts]
    assert drawn == [("random", 0.25, 24), ("random", 0.5, 48), ("a", 0.25, 24), ("b", 0.25, 24), ("b", 0.5, 48)]
    assert [one.method for one in lines_of(parts)] == ["random", "random", "b", "b"]  # a's rows are random's first 24
    assert not [line for line in remarks(plan, parts) if "no more" in line]


def test_D26_shares_that_differ_from_seed_to_seed_stand_at_their_mean(tmp_path):
    plan = curve.load(write(tmp_path, methods={"a": "random"}, seeds=2, match="epochs"), [], tmp_path / "out")
    ids = [example.id for example in plan.base.tasks[0][0].examples("train")]
    chosen = chosen_by(plan, tmp_path, random=ids, a=ids[:10])
    chosen["a", 2] = Subset(ids[:20], {"pool": ROWS, "short": True}).write(tmp_path / "other").parent
    parts = parts_of(plan, chosen)
    mine = [(p.seed, p.fraction, p.taken.rows, p.steps) for p in parts if p.method == "a"]
    assert mine == [(1, 15 / ROWS, 10, 2), (2, 15 / ROWS, 20, 4)]
    beside = [(p.seed, p.taken.rows) for p in parts if (p.method, p.fraction) == ("random", 15 / ROWS)]
    assert beside == [(1, 10), (2, 20)]
    assert any("a takes no more than 10 to 20 of 96 rows" in line for line in remarks(plan, parts))


def test_D26_stream_and_random_say_that_they_share_their_draws(tmp_path):
    plan = curve.load(write(tmp_path), [], tmp_path)
    assert any("stream and random of one seed share their random draws" in line for line in remarks(plan, []))
    near = {"near": {"kind": "clusters", "within": "near"}}
    plan = curve.load(write(tmp_path, methods=near), [], tmp_path)
    assert not list(remarks(plan, []))


@pytest.mark.slow
def test_D27_each_seed_chooses_by_its_own_run(tmp_path, executed):
    keys = {"methods": {"el2n": "el2n", "stream": {"kind": "clusters", "k": 4}}, "seeds": 2, "match": "epochs"}
    plan = curve.load(write(tmp_path, fractions=[0.5], **keys), [], tmp_path / "out")
    found = curve.run(plan, Progress(quiet=True))
    out = tmp_path / "out"
    metas = {seed: json.loads((out / "selections" / f"el2n-seed-{seed}" / META).read_text()) for seed in (1, 2)}
    used = {seed: [RunDir(Path(path)).info()["seed"]["data"] for path in meta["runs"]] for seed, meta in metas.items()}
    assert used == {1: [1], 2: [2]}
    streams = [json.loads((out / "selections" / f"stream-seed-{seed}" / META).read_text()) for seed in (1, 2)]
    assert streams[0]["embed"]["digest"] != streams[1]["embed"]["digest"]
    rows = [set(Subset.read(out / "selections" / f"el2n-seed-{seed}").ids) for seed in (1, 2)]
    assert rows[0] != rows[1]
    record = json.loads((Path(metas[1]["runs"][0]) / "dynamics" / "meta.json").read_text())["record"]
    assert record == "eval"
    assert "labels\n\n| % bad / good |" in markdown(found)


def test_D27_runs_of_scores_are_of_one_seed_each_unless_shared(tmp_path):
    plan = curve.load(write(tmp_path, seeds=[1, 4], scores={"train.epochs": 1}, score_seeds=2), [], tmp_path)
    assert [plan.curve.score_seeds_of(seed) for seed in (1, 4)] == [[1, 6], [4, 9]]
    assert plan.score_runs == [1, 6, 4, 9]
    assert "4 scoring runs, 2 for each selection" in list(plan.lines())
    assert plan.runs == 2 * (1 + 3 * 2 * 2) + 4
    shared = curve.load(write(tmp_path, seeds=[1, 4], scores={"train.epochs": 1}, selections="shared"), [], tmp_path)
    assert shared.score_runs == [1, 4]
    assert shared.curve.score_seeds_of(4) == [1, 4]
    assert any("share one selection" in line for line in remarks(shared, []))
