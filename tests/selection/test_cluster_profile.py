"""What is said of a cluster: label mix, typical words, shared texts, difficulty, choice of k."""

from pathlib import Path

import numpy as np
import pytest
from scipy import stats as reference

from encodery.core.files import read_json
from encodery.data.out_of_fold import OutOfFold
from encodery.data.provenance import Provenance
from encodery.data.row_dynamics import Dynamics
from encodery.errors import UserError
from encodery.report.stats import chi2_above
from encodery.selection.cluster_count import compared, count_lines, parse_counts, usual_counts
from encodery.selection.cluster_profile import Words, label_mix, shared_texts
from encodery.selection.difficulty import _of_answers, _of_dynamics, difficulty
from encodery.selection.overview import Options, analyse
from encodery.selectors.base import Pool
from encodery.selectors.clusters import ByCluster
from encodery.tasks.base import Example


@pytest.mark.parametrize("df", [1, 2, 3, 4, 7, 10])
def test_chi2_is_that_of_the_book(df):
    for x in (0.0, 0.1, 1.0, 3.84, 10.0, 60.0):
        assert chi2_above(x, df) == pytest.approx(reference.chi2.sf(x, df), rel=1e-9, abs=1e-300)


def test_label_mix_is_tested_as_draws_without_replacement():
    found = label_mix({"a": 8, "b": 2}, {"a": 30, "b": 70})
    assert found["mix"]["a"]["lift"] == pytest.approx(8 / 3)
    expected = reference.hypergeom(100, 30, 10)
    assert found["mix"]["a"]["z"] == pytest.approx((8 - expected.mean()) / expected.std())
    assert found["chi2"] == pytest.approx(found["mix"]["a"]["z"] ** 2)  # two labels: one degree of freedom
    assert found["df"] == 1
    assert found["p"] < 0.001
    assert label_mix({"a": 3, "b": 7}, {"a": 30, "b": 70})["p"] == pytest.approx(1.0)
    assert label_mix({"a": 30, "b": 70}, {"a": 30, "b": 70})["p"] is None


def test_p_of_random_clusters_is_even():
    rng = np.random.default_rng(0)
    labels = np.array(["a"] * 200 + ["b"] * 300 + ["c"] * 500)
    whole = {"a": 200, "b": 300, "c": 500}
    ps = []
    for _ in range(400):
        own = rng.choice(labels, 120, replace=False)
        ps.append(label_mix({k: int((own == k).sum()) for k in whole}, whole)["p"])
    assert reference.kstest(ps, "uniform").pvalue > 0.01


def rows_of(texts, labels=None) -> Pool:
    return Pool([Example(f"id-{i}", t, (labels or "x" * 999)[i]) for i, t in enumerate(texts)], ("x", "y"))


def test_typical_words_are_those_of_the_cluster_and_not_the_frequent_ones():
    legal = [(f"the court and the judge number{i}",) for i in range(30)]
    films = [(f"the film and the actor was the best number{i}",) for i in range(70)]
    where = rows_of(legal + films)
    mine = np.array([i for i, e in enumerate(where.examples) if "court" in e.texts[0]])
    found = Words(where).typical(mine)
    assert [one["word"] for one in found[:2]] == ["court", "judge"]
    assert found[0]["count"] == 30
    assert found[0]["log_odds"] > 0
    assert [one["z"] for one in found] == sorted((one["z"] for one in found), reverse=True)
    assert not {"film", "actor", "number"} & {one["word"] for one in found}
    rest = np.setdiff1d(np.arange(100), mine)
    both = {one["word"]: one for one in Words(where).typical(rest)}
    assert "film" in both


def test_log_odds_by_hand():
    """Monroe et al.'s formula with the pool's counts as prior."""
    where = rows_of([("aa aa bb",), ("bb bb cc",)])
    own = np.array([next(i for i, e in enumerate(where.examples) if e.texts[0].startswith("aa"))])
    words = Words(where)
    gap, z, here = (values[words.names.index("aa")] for values in words.log_odds(own))
    prior = 0.6 * 2 / 6
    odds = np.log((2 + prior) / (3 + 0.6 - 2 - prior)) - np.log((0 + prior) / (3 + 0.6 - 0 - prior))
    assert here == 2
    assert gap == pytest.approx(odds, rel=1e-6)
    assert z == pytest.approx(odds / np.sqrt(1 / (2 + prior) + 1 / prior), rel=1e-6)
    assert words.typical(own) == []  # two words are no evidence


def test_shared_premises():
    where = rows_of([("p", "a"), ("p", "b"), ("q", "c"), ("p", "d"), ("r", "e")])
    at = {example.id: i for i, example in enumerate(where.examples)}
    members = np.array([at["id-0"], at["id-1"], at["id-2"]])
    assert shared_texts(where, members) == {"shared": 2, "shared_in_pool": 2}
    assert shared_texts(where, np.array([at["id-3"], at["id-4"]])) == {"shared": 0, "shared_in_pool": 1}
    assert shared_texts(rows_of([("p",), ("p",)]), np.array([0, 1])) == {}


def test_difficulty_from_dynamics_and_from_answers():
    rows = [Example(f"id-{i}", ("t",), "xy"[i % 2]) for i in range(4)]
    where = Pool(rows, ("x", "y"), made_from=Provenance.of("t", "train", rows))
    logits = np.zeros((2, 3, 2))
    logits[1, 0] = [2.0, 0.0]  # id-0 (x): right in the end
    logits[1, 1] = [2.0, 0.0]  # id-1 (y): wrong in the end
    logits[1, 2] = [2.0, 0.0]
    record = Dynamics(logits, ["id-0", "id-1", "id-2"], ("x", "y"), "eval", Path("r"), where.made_from)
    found = _of_dynamics(where, record)
    by = {where.ids[i]: (found.error[i], found.confidence[i], found.variability[i]) for i in range(4)}
    p = 1 / (1 + np.exp(-2))
    assert by["id-0"] == pytest.approx((0.0, (0.5 + p) / 2, (p - 0.5) / 2))
    assert by["id-1"][0] == 1.0
    assert np.isnan(by["id-3"]).all()
    whole = found.of(np.arange(4))
    assert whole["rows"] == 3
    assert whole["error"] == pytest.approx(1 / 3)
    answers = {"id-3": {"prediction": "x", "probabilities": {"x": 0.7, "y": 0.3}}}
    other = _of_answers(where, OutOfFold(Path("f"), answers).rows)
    assert other.of(np.arange(4)) == {"error": 1.0, "confidence": 0.3, "variability": None, "rows": 1}
    assert difficulty(where, []) is None


def test_a_run_of_less_than_an_epoch_tells_of_the_rows_that_it_has_seen():
    rows = [Example(f"id-{i}", ("t",), "xy"[i % 2]) for i in range(3)]
    where = Pool(rows, ("x", "y"), made_from=Provenance.of("t", "train", rows))
    logits = np.full((1, 3, 2), np.nan)
    logits[0, 0], logits[0, 1] = [2.0, 0.0], [2.0, 0.0]  # id-0 (x) right, id-1 (y) wrong, id-2 not seen
    record = Dynamics(logits, [f"id-{i}" for i in range(3)], ("x", "y"), "train", Path("r"), where.made_from)
    found = _of_dynamics(where, record)
    by = {where.ids[i]: found.error[i] for i in range(3)}
    assert (by["id-0"], by["id-1"]) == (0.0, 1.0)
    assert np.isnan(by["id-2"])


def test_a_run_that_tells_nothing_of_the_rows_is_refused(tmp_path):
    where = rows_of([("t",)])
    with pytest.raises(UserError, match="neither dynamics, nor out-of-fold"):
        difficulty(where, [str(tmp_path)])


@pytest.mark.slow
def test_three_clear_clusters_are_stable_at_three():
    rng = np.random.default_rng(0)
    points = np.concatenate([rng.normal(size=(60, 4)) * 0.1 + 5 * np.eye(4)[i] for i in range(3)]).astype(np.float32)
    found = compared(points, rng.permutation(180), [2, 3, 9], "kmeans", 1)
    by = {one["k"]: one for one in found}
    assert by[3]["stability"] == pytest.approx(1.0)
    assert by[3]["stability"] > by[9]["stability"]
    assert by[3]["silhouette"] == max(one["silhouette"] for one in found)
    assert by[2]["inertia"] > by[3]["inertia"] > by[9]["inertia"]
    first, *others = count_lines(found, 180)
    assert first == "to choose k, 180 rows clustered again with 3 seeds for each k:"
    assert [line.split(", ")[1].startswith("mean silhouette 0.") for line in others] == [True] * 3
    assert list(count_lines([], 180)) == []
    assert usual_counts(8, 1000) == [2, 4, 8, 16]
    assert usual_counts(512, 100) == []
    assert parse_counts("20,5") == [5, 20]
    for bad in ("1,2", "a", ""):
        with pytest.raises(UserError, match="--try-k"):
            parse_counts(bad)


@pytest.mark.slow
def test_everything_is_in_the_files(tmp_path):
    rng = np.random.default_rng(0)
    rows = [
        Example(f"id-{i}", (f"premise {i % 7}", f"good text {'ab'[i % 2]}{'ab'[i % 2]}"), "xy"[i % 2])
        for i in range(40)
    ]
    points = (np.array([[10.0 * (i % 2), 0.0] for i in range(40)]) + rng.normal(size=(40, 2))).astype(np.float32)
    where = Pool(rows, ("x", "y"), vectors=lambda: ([e.id for e in rows], points))
    selector = ByCluster(k=2)
    hard = _of_answers(where, {"id-3": {"prediction": "x", "probabilities": {"x": 0.7, "y": 0.3}}})
    columns = {"half": {e.id: str(int(e.id[3:]) // 20) for e in rows}}
    options = Options("pca", columns, hard, [2, 4], selector.algorithm, 25)
    found = analyse(selector.clusters(where), selector.points(where), where, tmp_path, options)
    assert found["format"] == 2
    assert found["labels"] == {"x": 20, "y": 20}
    assert [one["k"] for one in found["k_choice"]] == [2, 4]
    one = found["clusters"][0]
    assert one["p_holm"] < 0.001
    assert one["words"][0]["word"] in ("aa", "bb")
    assert sum(one["columns"]["half"].values()) == one["size"]
    assert one["shared"] == 20
    assert sum(c["difficulty"]["rows"] for c in found["clusters"]) == 1
    drawn = read_json(tmp_path / "map.json")
    assert drawn["of"] == 40
    assert {len(drawn[key]) for key in ("ids", "x", "y", "cluster", "texts")} == {25}
    assert {len(values) for values in drawn["columns"].values()} == {25}
    assert set(drawn["columns"]) == {"label", "half", "error", "confidence", "correctness"}
    assert 0.5 < drawn["explained"] <= 1.0
    assert drawn["columns"]["error"].count(None) >= 24
