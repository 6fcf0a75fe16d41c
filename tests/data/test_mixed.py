"""Several tasks as one stream: what a step sees is a function of the step, and each task keeps its own order."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from encodery.config.components import find
from encodery.config.schema import OptimOptions
from encodery.data.batches import Batch, Batches, InputForm, MicroBatcher
from encodery.data.mixes import Mix, Mtdnn, Shuffled
from encodery.data.task_mixing import Mixed
from encodery.training import optim
from encodery.training.loop import steps_in_all
from tests.toolbox.models import random_table

BATCHER = MicroBatcher("packed", InputForm(True, 1), 1 << 30)


def stream(name: str, rows: int, batch_size: int = 4) -> Batches:
    return Batches(name, random_table([3] * rows), np.arange(rows), batch_size, 1, 1, BATCHER)


def mixed(rows: list[int], mix: Mix | None = None, batch_size: int = 4, epochs: float = 3) -> Mixed:
    streams = [stream(f"t/{i}", n, batch_size) for i, n in enumerate(rows)]
    return Mixed.of(streams, mix or Shuffled(), 1, epochs, None)


def rows_of(found: Mixed, step: int) -> list[tuple[int, list[int]]]:
    return [(task, sorted(found.streams[task].rows_at(number).tolist())) for task, number in found.drawn(step)]


@pytest.mark.slow
@given(st.lists(st.integers(1, 23), min_size=1, max_size=4), st.integers(1, 3), st.integers(1, 5))
def test_G27_each_epoch_visits_every_example_once(rows: list[int], per_step: int, batch_size: int) -> None:
    found = mixed(rows, Shuffled(per_step=per_step), batch_size)
    steps = found.steps_per_epoch
    assert steps == math.ceil(sum(-(-n // batch_size) for n in rows) / per_step)
    for epoch in (0, 2):
        seen = [pair for step in range(epoch * steps, (epoch + 1) * steps) for pair in rows_of(found, step)]
        for task, n in enumerate(rows):
            assert sorted(row for t, batch in seen if t == task for row in batch) == list(range(n))


@pytest.mark.slow
@given(st.floats(0, 3), st.booleans())
def test_G27_the_rate_ends_at_0_for_every_ratio(ratio: float, main_last: bool) -> None:
    found = mixed([21, 9, 14], Mtdnn(ratio=ratio, main_last=main_last))
    total = steps_in_all(found, 3, None)  # type: ignore[arg-type]
    assert sum(len(found.drawn(step)) for step in range(total)) == 3 * found.orders.length
    rate = optim.schedule(OptimOptions(warmup=0), total)
    assert rate(total) == 0.0
    assert 0 < rate(total - 1) <= 1 / total + 1e-12


@pytest.mark.parametrize("kind", ["shuffled", "uniform", "annealed", "together", "mtdnn"])
def test_a_step_is_the_same_whatever_was_asked_before(kind: str) -> None:
    steps = [0, 1, 7, 20, 33]
    walked = mixed([21, 9, 14], find("mix", kind)())  # type: ignore[arg-type]
    along = {step: rows_of(walked, step) for step in range(40)}
    for step in reversed(steps):
        assert rows_of(mixed([21, 9, 14], find("mix", kind)()), step) == along[step]  # type: ignore[arg-type]


def test_G26_one_task_is_the_stream_that_it_is_alone() -> None:
    alone = stream("t/0", 21)
    found = Mixed.of([alone], Shuffled(), 1, 3, None)
    for step in range(12):
        (one,), (other,) = found.at(step), alone.at(step)
        assert torch.equal(one.ids, other.ids)
        assert (one.seed, one.noise, one.step) == (other.seed, other.noise, other.step)
        assert list(found.tasks_at(step).values()) == [1.0]


def test_tasks_of_equal_length_have_orders_of_their_own() -> None:
    found = mixed([16, 16], find("mix", "together")())  # type: ignore[arg-type]
    (_, first), (_, second) = rows_of(found, 0)
    assert first != second


def test_G25_a_batch_never_mixes_tasks_and_steps_of_several_have_shares() -> None:
    found = mixed([21, 9, 14], Shuffled(per_step=3))
    for step in range(10):
        batches: list[Batch] = found.at(step)
        shares = found.tasks_at(step)
        assert shares.keys() == {batch.task for batch in batches}
        assert sum(shares.values()) == pytest.approx(1)
        assert {batch.task for batch in batches} == {f"t/{task}" for task, _ in found.drawn(step)}
    seeds = [batch.seed for batch in batches]
    assert len(set(seeds)) == len(seeds), "two batches of a step would drop the same places"


def test_mtdnn_batches_hold_neighbours_and_stay_the_same() -> None:
    found = mixed([12, 9], Mtdnn(), epochs=2)
    epochs = [[pair for step in range(e * 6, e * 6 + 6) for pair in rows_of(found, step)] for e in (0, 1)]
    assert all(batch == list(range(batch[0], batch[0] + len(batch))) for _, batch in epochs[0])
    for task in (0, 1):
        first, second = ([batch for t, batch in epoch if t == task] for epoch in epochs)
        assert first == second
    again = replace(found.streams[0], neighbours=False)
    assert rows_of(found, 0) != [(0, sorted(again.rows_at(0).tolist()))]
