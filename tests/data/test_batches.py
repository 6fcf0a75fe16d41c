"""Which rows a step sees is a function of seed and step alone."""

import time
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from encodery.data import rng
from encodery.data.batches import Batches, InputForm, MicroBatcher, describe, in_order
from encodery.data.subset import share, training_rows
from encodery.errors import UserError
from tests.toolbox.models import batcher_for, random_table, small_encoder, stream

FORM = InputForm(types=True, pad_id=1)


def rows_of(batches: Batches, step: int) -> list[int]:
    return sorted(row for batch in batches.at(step) for row in batch.ids.tolist())


@pytest.mark.slow
@given(st.integers(1, 70), st.integers(1, 20), st.integers(0, 5), st.integers(0, 3))
def test_every_row_comes_once_an_epoch(n: int, size: int, seed: int, epoch: int) -> None:
    batches = stream(random_table([2] * n), MicroBatcher("packed", FORM, 1000), size, seed)
    per = batches.steps_per_epoch
    seen = [row for step in range(epoch * per, (epoch + 1) * per) for row in batches.rows_at(step).tolist()]
    assert sorted(seen) == list(range(n))
    assert all(len(batches.rows_at(step)) == size for step in range(epoch * per, (epoch + 1) * per - 1))


@pytest.mark.slow
@given(st.integers(0, 200))
def test_R14_the_rows_of_a_step_do_not_depend_on_layout_or_micro_batches(step: int) -> None:
    table = random_table(np.random.default_rng(0).integers(2, 30, 50).tolist())
    cutters = [MicroBatcher(layout, FORM, budget, most) for layout in ("packed", "rows", "padded")  # type: ignore[arg-type]
               for budget, most in ((10**6, None), (60, None), (10**6, 3))]  # fmt: skip
    found = [rows_of(stream(table, batcher, 16), step) for batcher in cutters]
    assert all(rows == found[0] for rows in found)


def test_R10_any_step_is_had_at_once_however_much_came_before() -> None:
    table = random_table([4])
    object.__setattr__(table, "example", np.zeros(1))
    rows = np.zeros(10_000_000, dtype=np.int8)  # as many rows as a corpus, though all are the same one
    batches = Batches("t", table, rows, 32, 1, 1, MicroBatcher("packed", FORM, 10**6))
    begin = time.process_time()
    batches.at(10**9)
    assert time.process_time() - begin < 0.5


def test_batches_are_drawn_at_random_not_by_length() -> None:
    """In every step the mean length must be that of the set, up to chance."""
    lengths = sorted(np.random.default_rng(0).integers(2, 40, 960).tolist())
    batches = stream(random_table(lengths), MicroBatcher("packed", FORM, 10**6), 32)
    means = [np.mean([lengths[row] for row in batches.rows_at(step)]) for step in range(batches.steps_per_epoch)]
    spread = np.std(lengths) / np.sqrt(32)
    assert abs(np.std(means) / spread - 1) < 0.5
    assert np.abs(np.array(means) - np.mean(lengths)).max() < 4 * spread


@pytest.mark.slow
def test_each_row_is_as_likely_at_each_place() -> None:
    counts = Counter()
    for seed in range(400):
        counts.update(stream(random_table([2] * 10), MicroBatcher("packed", FORM, 99), 2, seed).rows_at(0).tolist())
    assert len(counts) == 10
    assert all(abs(count - 80) < 40 for count in counts.values())


def test_F20_another_data_seed_or_epoch_is_another_order() -> None:
    table = random_table([2] * 40)
    batcher = MicroBatcher("packed", FORM, 99)
    orders = [[r for s in range(5) for r in stream(table, batcher, 8, seed).rows_at(s + 5 * epoch)]
              for seed in (1, 2) for epoch in (0, 1)]  # fmt: skip
    assert len({tuple(order) for order in orders}) == 4


def test_the_noise_seed_changes_dropout_and_nothing_else() -> None:
    table = random_table([2] * 40)
    batcher = MicroBatcher("packed", FORM, 99)
    one, other = (Batches("t", table, np.arange(40), 8, 1, noise, batcher) for noise in (1, 2))
    assert rows_of(one, 3) == rows_of(other, 3)
    assert one.at(3)[0].seed != other.at(3)[0].seed


def test_every_pass_has_its_own_dropout() -> None:
    batches = stream(random_table([4] * 40), MicroBatcher("packed", FORM, 8), 8)
    seeds = [batch.seed for step in range(10) for batch in batches.at(step)]
    assert len(seeds) == 40
    assert len(set(seeds)) == 40


def test_a_smaller_budget_is_the_same_stream_in_smaller_parts() -> None:
    batches = stream(random_table([4] * 40), MicroBatcher("packed", FORM, 1000), 16)
    smaller = batches.with_budget(20)
    assert (len(batches.at(0)), len(smaller.at(0))) == (1, 4)
    assert rows_of(batches, 0) == rows_of(smaller, 0)
    assert batches.with_budget(1000) is batches


def test_example_ids_name_the_rows_of_a_step() -> None:
    batches = stream(random_table([4] * 40), MicroBatcher("packed", FORM, 10), 8)
    micro = batches.at(2)
    assert batches.example_ids(micro) == [f"row-{row}" for batch in micro for row in batch.ids.tolist()]


@pytest.mark.parametrize("layout", ["packed", "rows", "padded"])
def test_evaluation_sees_every_row_once(layout: str) -> None:
    encoder = small_encoder("bert", layout)
    table = random_table(np.random.default_rng(0).integers(2, 30, 150).tolist())
    seen = [row for batch in in_order(table, batcher_for(encoder, budget=200), "t") for row in batch.ids.tolist()]
    assert sorted(seen) == list(range(150))


def test_a_step_is_described_by_its_tokens_and_cells() -> None:
    table = random_table([3, 5, 8])
    packed = MicroBatcher("packed", FORM, 99).split(table, np.arange(3), "t", 0)
    padded = MicroBatcher("padded", FORM, 99).split(table, np.arange(3), "t", 0)
    assert describe(packed) == {"sequences": 3, "tokens": 16, "cells": 16}
    assert describe(padded) == {"sequences": 3, "tokens": 16, "cells": 24}


@given(st.integers(1, 300), st.floats(0.01, 1), st.floats(0.01, 1), st.integers(0, 9))
def test_D1_D2_fractions_of_one_seed_are_nested(n: int, a: float, b: float, seed: int) -> None:
    rows = np.arange(n) * 7
    if share(n, min(a, b)) < 1:
        with pytest.raises(UserError, match="less than one row"):
            training_rows(rows, min(a, b), None, seed)
        return
    small, large = (training_rows(rows, f, None, seed) for f in sorted((a, b)))
    assert set(small) <= set(large) <= set(rows)
    assert list(large) == sorted(large)
    assert len(large) == share(n, max(a, b))


def test_a_count_wins_over_a_fraction_and_may_not_exceed_the_set() -> None:
    rows = np.arange(50)
    assert len(training_rows(rows, 0.5, 7, 1)) == 7
    with pytest.raises(UserError, match=r"tasks\.count: 700 rows are requested, but the training set has 50"):
        training_rows(rows, 0.5, 700, 1)
    assert set(training_rows(rows, 1.0, 7, 1)) <= set(training_rows(rows, 0.5, None, 1))
    assert not np.array_equal(training_rows(rows, 0.5, None, 1), training_rows(rows, 0.5, None, 2))
    assert np.array_equal(training_rows(rows, 0.2, None, 3), np.sort(rng.choose(3, "fraction", 50, 10)))
