"""The numbered statements about choosing data."""

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from encodery.data.row_dynamics import Dynamics
from encodery.data.subset import share
from encodery.errors import UserError
from encodery.selectors._clustering import Clusters, remarks
from encodery.selectors._dynamics import error_norm, forgotten
from encodery.selectors.base import Pool, apportioned, interleaved
from encodery.selectors.cartography import Cartography, both_ends
from encodery.selectors.clusters import ByCluster, round_robin, whole_groups
from encodery.selectors.el2n import El2n
from encodery.selectors.entropy import Entropy
from encodery.selectors.facility import Facility, lazy_greedy, nearest, similar
from encodery.selectors.forgetting import Forgetting
from encodery.selectors.hans import AgainstHans
from encodery.selectors.hypothesis import HypothesisOnly
from encodery.selectors.kcenter import farthest_first
from encodery.selectors.loss import Loss
from encodery.selectors.margin import Margin
from encodery.selectors.random import Random
from encodery.tasks.base import Example
from tests.contract.test_selectors import LABELS, examples, pool


def test_D1_a_fraction_is_an_exact_number_of_rows():
    assert share(392702, 0.1) == 39270
    assert share(392702, 0.9) == 353431
    assert share(392702, 1.0) == 392702
    assert [share(100, p) for p in (0.29, 0.57, 0.58)] == [29, 57, 58]
    assert share(3, 1 / 3) == 1


@given(st.integers(1, 10**7), st.integers(0, 10**4))
def test_D1_it_is_the_floor_of_the_decimal_number(rows, parts):
    assert share(rows, parts / 10**4) == rows * parts // 10**4


@pytest.mark.slow
def test_D2_seeds_differ_and_subsets_are_nested():
    rows = examples(200)
    orders = [[pool(rows, seed).ids[i] for i in Random()(pool(rows, seed), 200).order] for seed in (1, 2)]
    assert orders[0] != orders[1]
    assert sorted(orders[0]) == sorted(orders[1])
    assert set(orders[0][:20]) < set(orders[0][:40])


@pytest.mark.slow
@given(st.lists(st.integers(1, 40), min_size=1, max_size=6))
def test_D3_every_prefix_has_each_stratums_share_within_one(sizes):
    turns = apportioned(sizes)
    total = sum(sizes)
    assert np.bincount(turns, minlength=len(sizes)).tolist() == sizes
    for n in range(total + 1):
        got = np.bincount(turns[:n], minlength=len(sizes))
        assert all(abs(g - n * size / total) < 1 for g, size in zip(got, sizes, strict=True))


def test_D3_stratified_subsets_have_each_labels_share():
    rows = [Example(str(i), ("t",), "a" if i % 10 else "b", group="xy"[i % 2]) for i in range(200)]
    where = Pool(rows, ("a", "b"))
    order = Random(stratify=["label", "group"])(where, 200).order
    for n in range(1, 201):
        labels = [where.examples[i].label for i in order[:n]]
        assert abs(labels.count("b") - n * 20 / 200) <= 1
    with pytest.raises(UserError, match="has no genre"):
        Random(stratify=["genre"])(where, 10)


def test_D7_round_robin():
    groups = [np.array([1, 2, 3]), np.array([4]), np.array([5, 6])]
    assert round_robin(groups).tolist() == [1, 4, 5, 2, 6, 3]


@given(st.lists(st.integers(0, 7), min_size=1, max_size=8))
def test_D7_it_is_a_permutation(sizes):
    ends = np.cumsum(sizes)
    groups = np.split(np.arange(ends[-1]), ends[:-1])
    assert sorted(round_robin(groups).tolist()) == list(range(ends[-1]))


def test_D8_centroid_picks_are_distinct_and_one_for_each_cluster():
    where = pool(examples(), 3)
    selector = ByCluster(k=7, pick="centroid")
    order = selector(where, 60).order
    assert len(set(order.tolist())) == len(order) == 7
    clusters = selector.clusters(where)
    labels = np.where(clusters.labels == 2, 1, clusters.labels)  # cluster 2 is empty now
    hollow = Clusters(labels, clusters.centres, clusters.distances, remarks(np.bincount(labels, minlength=7)))
    found = selector.order(hollow, where, 60)
    assert len(set(found.tolist())) == 7
    assert "1 of 7 clusters are empty" in hollow.notes


def test_D9_whole_clusters_fit_the_budget_and_all_of_it_is_everything():
    groups = [np.arange(0, 4), np.arange(4, 5), np.arange(5, 12)]
    assert whole_groups(groups, 12).tolist() == list(range(12))
    assert whole_groups(groups, 11).tolist() == list(range(5))
    assert whole_groups(groups, 3).tolist() == []
    where = pool(examples())
    order = ByCluster(k=5, pick="whole")(where, 60).order
    assert sorted(order.tolist()) == list(range(60))


def test_clusters_warn_and_take_shares():
    assert remarks(np.array([1] * 9 + [90]))[0].startswith("clusters are uneven")
    assert remarks(np.array([5, 6, 7])) == ()
    where = pool(examples())
    found = ByCluster(k=4, pick="proportional")(where, 60)
    sizes = np.bincount(found.clusters, minlength=4)
    for n in (10, 30):
        got = np.bincount(found.clusters[found.order[:n]], minlength=4)
        assert np.abs(got - n * sizes / 60).max() < 1
    cluster = int(sizes.argmax())
    inside = [i for i in found.order if found.clusters[i] == cluster]
    assert np.all(np.diff(found.scores[inside]) >= 0)  # near first
    far = ByCluster(k=4, pick="proportional", within="far")(where, 60)
    inside = [i for i in far.order if far.clusters[i] == cluster]
    assert np.all(np.diff(far.scores[inside]) <= 0)
    with pytest.raises(UserError, match=r"ask for fewer, such as --selector\.k 6$"):
        ByCluster(k=61)(where, 60)


def test_a_small_pool_has_fewer_clusters_and_says_so():
    found = ByCluster()(pool(examples()), 60)
    assert found.about == {"k": 6}
    assert found.clusters.max() < 6
    assert found.notes[0].startswith("6 clusters, since there are 60 rows (--selector.k N")
    assert ByCluster(k=6)(pool(examples()), 60).order.tolist() == found.order.tolist()


def test_dbscan_keeps_rows_of_no_cluster():
    found = ByCluster(algorithm="dbscan", eps=1e-3, min_samples=2)(pool(examples()), 60)
    assert sorted(found.order.tolist()) == list(range(60))
    assert any("belong to no cluster" in note for note in found.notes)


def radius(points, chosen):
    gaps = np.linalg.norm(points[:, None] - points[list(chosen)][None], axis=2)
    return gaps.min(1).max()


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.integers(1, 4))
def test_D10_k_center_is_within_twice_the_best(seed, k):
    points = np.random.default_rng(seed).normal(size=(8, 2)).astype(np.float32)
    order, gaps = farthest_first(points, 8)
    assert sorted(order.tolist()) == list(range(8))
    assert np.all(np.diff(gaps[1:]) <= 1e-5)
    best = min(radius(points, chosen) for chosen in itertools.combinations(range(8), k))
    # Any start gives 2-approximation.
    assert radius(points, order[:k]) <= 2 * best + 1e-5
    radii = [radius(points, order[:n]) for n in range(1, 9)]
    assert np.all(np.diff(radii) <= 1e-6)


def test_k_center_survives_equal_points():
    order, _ = farthest_first(np.ones((5, 3), np.float32), 5)
    assert sorted(order.tolist()) == list(range(5))


def value(sims, chosen):
    return sims[:, list(chosen)].max(1).sum()


def plain_greedy(sims, count):
    chosen: list[int] = []
    for _ in range(count):
        gains = [-np.inf if j in chosen else value(sims, [*chosen, j]) for j in range(len(sims))]
        chosen.append(int(np.argmax(gains)))
    return chosen


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.integers(1, 4))
def test_D10_facility_location_is_lazy_greedy_and_good(seed, k):
    points = np.random.default_rng(seed).normal(size=(8, 3))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    sims = similar(points, points)
    order, gains = lazy_greedy(Facility().columns(points), 8, k)
    assert value(sims, order) == pytest.approx(value(sims, plain_greedy(sims, k)))
    assert np.all(np.diff(gains) <= 1e-9)
    best = max(value(sims, chosen) for chosen in itertools.combinations(range(8), k))
    assert value(sims, order) >= (1 - 1 / np.e) * best - 1e-9


def test_D10_with_all_neighbours_the_sparse_way_is_the_dense_one():
    points = np.random.default_rng(1).normal(size=(30, 4))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    starts, rows, values = nearest(points, 30)
    sparse, _ = lazy_greedy(lambda j: (rows[starts[j] : starts[j + 1]], values[starts[j] : starts[j + 1]]), 30, 10)
    dense, _ = lazy_greedy(Facility().columns(points), 30, 10)
    assert sparse.tolist() == dense.tolist()
    few = nearest(points, 3)
    assert len(few[1]) == 90


@given(st.lists(st.lists(st.floats(-8, 8), min_size=3, max_size=3), min_size=1, max_size=6), st.integers(0, 2))
def test_D11_el2n_is_the_gradient_at_the_logits(rows, label):
    logits = torch.tensor(rows, dtype=torch.float64, requires_grad=True)
    labels = torch.full((len(rows),), label)
    torch.nn.functional.cross_entropy(logits, labels, reduction="sum").backward()
    found = error_norm(logits.detach().numpy(), labels.numpy())
    assert np.allclose(found, logits.grad.norm(dim=1).numpy(), atol=1e-12)
    assert np.all((found >= 0) & (found <= 2**0.5 + 1e-12))


def test_el2n_orders_by_the_mean_over_runs_and_moves_noise_to_the_end():
    where = pool(examples())
    plain, dropped = El2n()(where, 60), El2n(drop_top=0.1)(where, 60)
    expected = np.mean([error_norm(z[0], where.labels) for z in where.logits], 0)
    assert np.allclose(plain.scores, expected)
    assert np.all(np.diff(plain.scores[plain.order]) <= 0)
    assert dropped.order.tolist() == [*plain.order[6:], *plain.order[:6]]
    low = El2n(keep="low", drop_top=0.1)(where, 60).order
    assert np.all(np.diff(plain.scores[low[:54]]) >= 0)
    with pytest.raises(UserError, match="the runs have 4 whole epochs"):
        El2n(epoch=5)(where, 60)


def test_D12_forgetting_counts_falls():
    cases = {(1, 0, 1, 0): 2, (0, 0, 0): np.inf, (0, 1, 1): 0, (1, 1): 0}
    for correct, falls in cases.items():
        assert forgotten(np.array(correct, bool)[:, None])[0] == falls
    assert "fewer than 5" in Forgetting()(pool(examples()), 60).notes[0]


def test_D12_variability_is_the_populations_and_one_epoch_says_nothing():
    where = pool(examples())
    confidence, variability, epochs = Cartography().marks(where)
    chance = [torch.tensor(z).softmax(-1)[:, range(60), where.labels].numpy() for z in where.logits]
    assert np.allclose(variability, np.mean([np.sqrt(((p - p.mean(0)) ** 2).mean(0)) for p in chance], 0))
    assert np.allclose(confidence, np.mean([p.mean(0) for p in chance], 0))
    assert epochs == 4
    one = Cartography(epochs=1)(where, 60)
    assert np.all(one.scores == 0)
    assert "one epoch only" in one.notes[0]
    hard, easy = Cartography(pick="hard")(where, 60).order, Cartography(pick="easy")(where, 60).order
    assert np.argmin(confidence) == hard[0]
    assert np.argmax(confidence) == easy[0]
    ends = both_ends(hard)
    assert sorted(ends.tolist()) == list(range(60))
    assert set(ends[:10]) == {*hard[:7], *hard[-3:]}


@pytest.mark.slow
def test_hypothesis_only_never_judges_what_it_has_seen():
    marks = {"entailment": "yes", "neutral": "maybe", "contradiction": "no"}
    rows = []
    for i in range(300):
        label = LABELS[i % 3]
        word = marks[label] if i % 10 else marks[LABELS[(i + 1) % 3]]  # a tenth points to the wrong label
        rows.append(Example(str(i), ("premise", word), label))
    where = Pool(rows, LABELS)
    order = HypothesisOnly()(where, 300).order
    odd = {i for i, id in enumerate(where.ids) if int(id) % 10 == 0}
    assert set(order[:30].tolist()) == odd
    assert set(HypothesisOnly(drop_right=True)(where, 300).order.tolist()) == odd


def test_hypothesis_only_refuses_single_texts():
    rows = [Example(str(i), ("text",), LABELS[i % 3]) for i in range(12)]
    with pytest.raises(UserError, match=r"selector\.kind: hypothesis needs pairs of texts; example \d+ has one"):
        HypothesisOnly()(Pool(rows, LABELS), 12)


def test_rows_against_hans_come_first_and_may_weigh_more():
    rows = [
        Example("a", ("The doctor saw the lawyer .", "The lawyer saw the doctor ."), "neutral"),
        Example("b", ("The doctor saw the lawyer .", "The doctor saw the lawyer ."), "entailment"),
        Example("c", ("The doctor saw the lawyer .", "A judge slept ."), "contradiction"),
    ]
    where = Pool(rows, LABELS)
    found = AgainstHans(weight=3.0)(where, 3)
    assert where.ids[found.order[0]] == "a"
    assert found.weights[found.order].tolist() == [3.0, 1.0, 1.0]
    assert AgainstHans()(where, 3).weights is None


def test_interleaving_takes_each_group_in_its_own_order():
    assert interleaved([np.array([5, 3]), np.array([9])], np.array([0, 1, 0])).tolist() == [5, 9, 3]


def test_D28_el2n_and_others_look_after_an_epoch_without_dropout():
    rows = examples()
    where = pool(rows)
    during = Pool(rows, LABELS, 1, None, [replace(one, record="train") for one in where.dynamics])
    for kind in (El2n, Loss, Entropy, Margin):
        assert len(kind()(where, 5).order) == len(rows)
        with pytest.raises(UserError, match=r"during each epoch, with dropout; .* train\.dynamics: eval"):
            kind()(during, 5)
        assert kind(during=True)(during, 5).order.tolist() == kind()(where, 5).order.tolist()


def test_D28_rows_that_were_never_learnt_leave_means_finite_and_come_first():
    rows = [Example(f"id-{i}", ("t",), "a") for i in range(4)]
    ids = [example.id for example in rows]

    def run_of(*right: tuple[int, ...]) -> Dynamics:
        first = np.array(right, float).T  # [epochs, rows]
        return Dynamics(np.stack([first, 1 - first], -1), ids, ("a", "b"), "eval", Path("run"))

    one = run_of((0, 0, 0, 0), (1, 0, 1, 0), (1, 1, 1, 1), (0, 0, 0, 0))
    other = run_of((1, 1, 1, 1), (1, 0, 1, 0), (1, 1, 1, 1), (0, 0, 0, 0))
    where = Pool(rows, ("a", "b"), dynamics=[one, other])
    found = Forgetting()(where, 4)
    scores = {where.ids[i]: float(found.scores[i]) for i in range(4)}
    assert scores == {"id-0": 2.0, "id-1": 2.0, "id-2": 0.0, "id-3": 4.0}
    assert where.ids[found.order[0]] == "id-3"
    assert where.ids[found.order[-1]] == "id-2"
