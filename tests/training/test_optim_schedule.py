"""The schedules against the published numbers and against transformers' own."""

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from transformers import (
    get_constant_schedule_with_warmup,
    get_cosine_schedule_with_warmup,
    get_linear_schedule_with_warmup,
    get_wsd_schedule,
)

from encodery.config.schema import OptimOptions
from encodery.training.optim import schedule

STYLES = st.sampled_from(["sequential", "simultaneous"])
KINDS = st.sampled_from(["linear", "cosine", "constant", "wsd"])
WARMUPS = st.one_of(st.floats(0, 0.99), st.integers(1, 300).map(float))
SHARES = st.floats(0.01, 1)


@pytest.mark.parametrize("total", [10, 97, 1000])
def test_F4_peak_is_nine_tenths_at_a_tenth(total: int) -> None:
    factor = schedule(OptimOptions(warmup=0.1, warmup_style="simultaneous"), total)
    peak = max(range(total), key=factor)
    assert abs(peak - 0.1 * total) < 1
    assert factor(peak) == pytest.approx(0.9, abs=1 / total if total % 10 else 1e-12)


def test_simultaneous_warmup_gives_the_rates_of_electras_pretraining() -> None:
    factor = schedule(OptimOptions(warmup=10000.0, warmup_style="simultaneous"), 1_000_000)
    rates = [5e-4 * factor(step) for step in [0, 5000, 10_000, 500_000, 1_000_000]]
    assert rates == pytest.approx([0, 2.4875e-4, 4.95e-4, 2.5e-4, 0], rel=1e-12)
    assert max(factor(step) for step in range(9_000, 11_000)) == factor(10_000)


def theirs(make: Callable[..., Any], total: int, **options: Any) -> list[float]:
    """The factors of a schedule of transformers, step by step."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = make(optimizer, **options)
    found = []
    for _ in range(total):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return found


@pytest.mark.parametrize(("warmup", "steps"), [(0.0, 0), (0.11, 7), (0.06, 4), (5.0, 5), (1.0, 1), (100.0, 100)])
def test_schedules_equal_those_of_transformers(warmup: float, steps: int) -> None:
    total = 60  # 0.11 of it is 6.6 steps and 0.06 is 3.6: rounded up
    both = {"num_warmup_steps": steps, "num_training_steps": total}
    wanted = {
        "linear": theirs(get_linear_schedule_with_warmup, total, **both),
        "cosine": theirs(get_cosine_schedule_with_warmup, total, **both),
        "constant": theirs(get_constant_schedule_with_warmup, total, num_warmup_steps=steps),
    }
    if steps + 12 <= total:
        wanted["wsd"] = theirs(get_wsd_schedule, total, num_decay_steps=12, decay_type="linear", **both)
    for kind, values in wanted.items():
        factor = schedule(OptimOptions(schedule=kind, warmup=warmup, decay_share=0.2), total)
        assert [factor(step) for step in range(total)] == pytest.approx(values, abs=1e-14), kind


@pytest.mark.slow
@given(KINDS, STYLES, WARMUPS, SHARES, st.integers(1, 400))
def test_factor_stays_within_0_and_1_and_makes_no_jump(
    kind: str, style: str, warmup: float, share: float, total: int
) -> None:
    factor = schedule(OptimOptions(schedule=kind, warmup_style=style, warmup=warmup, decay_share=share), total)
    values = [factor(step) for step in range(total + 3)]
    assert all(0 <= value <= 1 for value in values)
    rise = warmup if warmup >= 1 else math.ceil(warmup * total) if style == "sequential" else warmup * total
    begin = rise if style == "sequential" else 0
    if kind == "wsd":
        begin = max(begin, total - math.ceil(share * total))
    steepest = min(1, 1 / rise if rise else 0) + math.pi / 2 / max(1, total - begin)
    assert all(abs(b - a) <= steepest + 1e-12 for a, b in pairwise(values))


@pytest.mark.slow
@given(KINDS, STYLES, WARMUPS, SHARES, st.integers(1, 400))
def test_factor_rises_once_and_falls_once(kind: str, style: str, warmup: float, share: float, total: int) -> None:
    factor = schedule(OptimOptions(schedule=kind, warmup_style=style, warmup=warmup, decay_share=share), total)
    values = [factor(step) for step in range(total + 1)]
    peak = values.index(max(values))
    assert all(a <= b + 1e-12 for a, b in pairwise(values[: peak + 1]))
    assert all(a >= b - 1e-12 for a, b in pairwise(values[peak:]))
    if kind != "constant" and (style == "simultaneous" or warmup <= 1):
        assert values[total] == pytest.approx(0, abs=1e-12)


def test_a_wsd_fall_may_be_one_minus_a_root_and_end_at_a_floor() -> None:
    options = OptimOptions(schedule="wsd", decay_shape="sqrt", decay_share=0.4, warmup=0.1, floor=0.1)
    factor = schedule(options, 100)
    assert [factor(step) for step in (5, 10, 59, 60)] == pytest.approx([0.5, 1, 1, 1])
    assert [factor(60 + step) for step in range(41)] == pytest.approx(
        [0.1 + 0.9 * (1 - math.sqrt(step / 40)) for step in range(41)]
    )


@pytest.mark.slow
@given(KINDS, st.floats(0, 0.9), st.integers(2, 200))
def test_a_floor_is_where_the_rate_ends(kind: str, floor: float, total: int) -> None:
    with_floor, without = (schedule(OptimOptions(schedule=kind, warmup=0, floor=f), total) for f in (floor, 0.0))
    for step in range(total + 1):
        assert with_floor(step) == pytest.approx(floor + (1 - floor) * without(step))
