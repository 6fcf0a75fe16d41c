"""Clusters as figures and pictures."""

import json

import numpy as np
import pytest

from encodery.selection.difficulty import Difficulty
from encodery.selection.overview import Options, analyse, purity_by_chance
from encodery.selectors.base import Pool
from encodery.selectors.clusters import ByCluster
from encodery.tasks.base import Example


@pytest.mark.slow
@pytest.mark.parametrize("how", ["pca", "tsne"])
def test_two_clear_clusters_are_pure(tmp_path, how):
    rng = np.random.default_rng(0)
    rows = [Example(f"id-{i}", (f"text {i}",), "ab"[i % 2], extra={"genre": "xy"[i % 2]}) for i in range(40)]
    points = np.array([[10.0 * (i % 2), 0.0] for i in range(40)]) + rng.normal(size=(40, 2))
    pool = Pool(rows, ("a", "b"), vectors=lambda: ([e.id for e in rows], points.astype(np.float32)))
    selector = ByCluster(k=2)
    found = analyse(selector.clusters(pool), selector.points(pool), pool, tmp_path, Options(how))
    assert found["purity"] == 1.0
    assert found["purity_by_chance"] < 0.8
    assert found["silhouette"] > 0.6
    assert found["size"] == {"median": 20.0, "largest": 20, "smallest": 20}
    assert json.loads((tmp_path / "clusters.json").read_text()) == found
    one = found["clusters"][0]
    assert len(one["groups"]) == len(one["labels"]) == 1
    gaps = [example["distance"] for example in one["nearest"] + one["farthest"][::-1]]
    assert gaps == sorted(gaps)
    for name in ("clusters.svg", "map.svg"):
        assert (tmp_path / name).read_text().startswith("<?xml")


def pool_of(labels: str, seed: int) -> Pool:
    rows = [Example(f"id-{i}", (f"text {i}",), label) for i, label in enumerate(labels)]
    return Pool(rows, ("a", "b"), seed=seed)


def test_the_purity_by_chance_is_a_mean_over_random_groups() -> None:
    """Of two pairs out of aabb, a third of the groupings is pure and the others have halves: 2/3 on average."""
    found = [purity_by_chance(pool_of("aabb", seed), [2, 2]) for seed in (1, 2)]
    assert found == pytest.approx([2 / 3] * 2, abs=0.07)
    assert found[0] == purity_by_chance(pool_of("aabb", 1), [2, 2])
    assert purity_by_chance(pool_of("aaaa", 1), [3, 0, 1]) == 1.0
    assert purity_by_chance(pool_of("abab", 1), [1, 1, 1, 1]) == 1.0
    assert purity_by_chance(pool_of("aaab", 1), [4]) == 0.75


@pytest.mark.slow
def test_the_map_has_what_runs_told_of_each_row(tmp_path):
    rows = [Example(f"id-{i}", (f"text {i}",), "ab"[i % 2]) for i in range(12)]
    points = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32)
    pool = Pool(rows, ("a", "b"), vectors=lambda: ([e.id for e in rows], points))
    known = {"id-1": 1.0, "id-2": np.nan, "id-3": 0.5, "id-4": 2 / 3}
    error = np.array([known.get(id, 0.0) for id in pool.ids])
    hard = Difficulty(error, 1 - error, np.zeros(12))
    selector = ByCluster(k=2)
    analyse(selector.clusters(pool), selector.points(pool), pool, tmp_path, Options(difficulty=hard))
    stored = json.loads((tmp_path / "map.json").read_text())
    told = dict(zip(stored["ids"], stored["columns"]["correctness"], strict=True))
    assert [told[f"id-{i}"] for i in range(5)] == ["correct", "wrong", None, "correct", "wrong"]
    assert dict(zip(stored["ids"], stored["columns"]["error"], strict=True))["id-4"] == 0.66667
