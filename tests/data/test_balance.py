"""Class-balanced sampling: all classes equally often, as a function of seed and step alone."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as fewer
from hypothesis import strategies as st

from encodery.data.balance import SLOTS, Balance, RowRange, classes_of, copies, quotas_of
from encodery.data.batches import Batches, InputForm, MicroBatcher
from encodery.data.token_table import memory_table
from encodery.errors import UserError
from encodery.tasks.base import Features
from tests.toolbox.models import random_table, stream
from tests.toolbox.runs import config_for, metrics_of, run, settings, weights_of
from tests.toolbox.tasks import regression_task, single_task

FORM = InputForm(types=True, pad_id=1)
SIZES = (40, 7, 1)


def balanced(
    sizes: tuple[int, ...] = SIZES, batcher: MicroBatcher | None = None, batch: int = 8, seed: int = 1
) -> Batches:
    table = random_table(np.random.default_rng(0).integers(2, 20, sum(sizes)).tolist(), classes=len(sizes))
    table.targets["label"][:] = np.repeat(np.arange(len(sizes)), sizes)
    plain = stream(table, batcher or MicroBatcher("packed", FORM, 10**6), batch, seed)
    return replace(plain, balance=Balance(classes_of(np.asarray(table.targets["label"]))))


@pytest.mark.slow(0.5)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=6), st.integers(1, 200), st.integers(0, 5))
@fewer(max_examples=50)
def test_F32_all_classes_come_equally_often_and_no_row_twice_before_all_of_its_class(
    sizes: list[int], count: int, seed: int
) -> None:
    members = classes_of(np.repeat(np.arange(len(sizes)), sizes))
    found = Balance(members).at(np.arange(count), seed)
    label = np.repeat(np.arange(len(sizes)), sizes)[found]
    often = np.bincount(label, minlength=len(sizes))
    assert often.max() - often.min() <= 1
    for number, size in enumerate(sizes):
        drawn = found[label == number]
        for begin in range(0, len(drawn), size):
            part = drawn[begin : begin + size]
            assert len(set(part.tolist())) == len(part)
    assert Balance(members).at(np.array([count - 1]), seed).tolist() == found[-1:].tolist()  # without what came before


def test_F32_an_epoch_has_as_many_steps_and_goes_on_where_the_last_one_ended() -> None:
    batches = balanced()
    assert batches.steps_per_epoch == 6
    rows = [row for step in range(30) for row in batches.rows_at(step).tolist()]
    assert len(rows) == 5 * sum(SIZES)
    labels = Counter(np.asarray(batches.table.targets["label"])[rows].tolist())
    assert max(labels.values()) - min(labels.values()) <= 1
    assert set(rows) == set(range(sum(SIZES)))  # 240 draws: also each of the forty common ones has come
    assert rows != [row for step in range(30) for row in balanced(seed=2).rows_at(step).tolist()]


@pytest.mark.slow(0.5)
@given(st.integers(0, 100))
@fewer(max_examples=20)
def test_F32_the_rows_of_a_step_do_not_depend_on_layout_or_micro_batches(step: int) -> None:
    cutters = [MicroBatcher(layout, FORM, budget, most) for layout in ("packed", "rows", "padded")  # type: ignore[arg-type]
               for budget, most in ((10**6, None), (40, None), (10**6, 3))]  # fmt: skip
    found = [sorted(r for b in balanced(batcher=c).at(step) for r in b.ids.tolist()) for c in cutters]
    assert all(rows == found[0] for rows in found)


def test_of_several_labels_each_is_a_class_and_so_is_none() -> None:
    targets = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 0], [0, 0, 0]], np.float32)
    assert [one.tolist() for one in classes_of(targets)] == [[0, 1], [1], [2, 3]]  # the third label never occurs


def test_windows_of_a_row_that_comes_twice_stay_two_examples() -> None:
    """One text of the rare class in two windows, drawn four times in a step."""
    features = [Features(0, [2, 3], [0, 0], {"label": 1}, group=0), Features(0, [2, 4], [0, 0], {"label": 1}, group=0)]
    features += [Features(i, [2, 5], [0, 0], {"label": 0}, group=i) for i in range(1, 9)]
    table = memory_table(features, [str(i) for i in range(9)])
    rows = table.rows_of(np.arange(9))
    label = np.asarray(table.targets["label"])[rows]
    plain = Batches("t", table, rows, 8, 1, 1, MicroBatcher("packed", FORM, 10**6), balance=Balance(classes_of(label)))
    micro = plain.at(0)
    assert sum(batch.examples for batch in micro) == 8
    assert sum(len(batch) for batch in micro) == 4 * 2 + 4
    parts = copies(plain.rows_at(0))
    assert [len(np.unique(part)) == len(part) for part in parts] == [True] * 4
    assert sorted(np.concatenate(parts).tolist()) == sorted(plain.rows_at(0).tolist())


# In a run


def tree(folder: Path, **train: Any) -> dict[str, Any]:
    return settings(folder, task={"sampling": "balanced"}, train={"epochs": 2, "batch_size": 8, **train})


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["packed", "rows"])
def test_F32_a_stopped_run_goes_on_to_the_bit(tmp_path: Path, layout: str) -> None:
    whole = run(tree(tmp_path, layout=layout, save="3 steps"), tmp_path / "whole")

    def stop(report: Any) -> None:
        if report.step == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tree(tmp_path, layout=layout, save="3 steps"), tmp_path / "cut", watch=stop)
    again = run(tree(tmp_path, layout=layout, save="3 steps"), tmp_path / "cut")
    assert metrics_of(again) == metrics_of(whole)
    one, two = weights_of(whole), weights_of(again)
    assert all(torch.equal(one[name], two[name]) for name in one)
    plain = run(settings(tmp_path, train={"epochs": 2, "batch_size": 8, "layout": layout}), tmp_path / "plain")
    assert any(not torch.equal(one[name], value) for name, value in weights_of(plain).items())
    assert "balanced sampling over 2 classes" in (whole.path / "log.txt").read_text()


@pytest.mark.slow(0.5)
def test_F32_micro_batches_do_not_change_the_weights(tmp_path: Path) -> None:
    still = {"dropout": 0.0, "attention_dropout": 0.0, "head_dropout": 0.0}
    trees = [tree(tmp_path, max_steps=4, **more) for more in ({}, {"micro_batch": 3})]
    one, two = (
        weights_of(run({**each, "model": each["model"] | still}, tmp_path / f"run-{i}")) for i, each in enumerate(trees)
    )
    assert max(float((one[name] - two[name]).abs().max()) for name in one) < 1e-5


@pytest.mark.parametrize(
    ("task", "more", "why"),
    [
        (regression_task, {}, "needs labels of texts"),
        (single_task, {"train": {"dynamics": True}}, "dynamics: eval"),
        (single_task, {"method": {"kind": "importance"}}, "importance draws rows itself"),
    ],
)
def test_what_does_not_go_with_it_is_refused(tmp_path: Path, task: Any, more: dict[str, Any], why: str) -> None:
    with pytest.raises(UserError, match=why):
        run(config_for(tmp_path, task(tmp_path) | {"sampling": "balanced"}, **more), tmp_path / "run")


@given(st.lists(st.floats(1e-3, 1e3), min_size=2, max_size=9))
def test_quotas_fill_a_block_and_follow_the_shares(shares: list[float]) -> None:
    quotas = quotas_of(shares)
    assert sum(quotas) == SLOTS
    assert min(quotas) >= 1
    exact = np.array(shares) / sum(shares) * SLOTS
    assert np.abs(np.array(quotas) - exact).max() <= 1 + len(shares)


@pytest.mark.slow(0.5)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 9), st.integers(0, 5))
@fewer(max_examples=30)
def test_classes_come_by_quota_and_no_row_twice_before_all_of_its_class(
    few: int, many: int, quota: int, seed: int
) -> None:
    balance = Balance([RowRange(0, few), np.arange(few, few + many)], [quota, 2])
    places = np.arange(50 * (quota + 2))
    rows = balance.at(places, seed)
    assert (rows < few).sum() == 50 * quota
    for block in rows.reshape(50, -1):
        assert (block < few).sum() == quota
    for members in (rows[rows < few], rows[rows >= few]):
        size = few if members[0] < few else many
        for begin in range(0, len(members), size):
            part = members[begin : begin + size]
            assert len(set(part.tolist())) == len(part)
    assert balance.at(places[-3:], seed).tolist() == rows[-3:].tolist()  # without what came before
