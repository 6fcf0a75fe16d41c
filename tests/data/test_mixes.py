"""What every mix must keep, whatever the sizes; and what each one promises. New mixes are found here."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from encodery.config.components import find, names
from encodery.data.mixes import Annealed, Drawn, Explicit, Mix, Mtdnn, Proportional, Size, Temperature, Uniform
from encodery.errors import UserError

MIXES = [name for name in names("mix") if name != "explicit"]


@st.composite
def sizes(draw: st.DrawFn) -> list[Size]:
    rows = draw(st.lists(st.integers(1, 400), min_size=1, max_size=6))
    batch = draw(st.integers(1, 32))
    return [Size(f"t/{i}", n, -(-n // batch)) for i, n in enumerate(rows)]


def shares(mix: Drawn, given: list[Size], epoch: int = 0, epochs: float = 5) -> np.ndarray:
    chances = mix.chances(given, epoch, epochs)
    return np.asarray(chances / chances.sum())


@pytest.mark.slow
@pytest.mark.parametrize("kind", MIXES)
@given(sizes(), st.integers(0, 5), st.integers(0, 99))
def test_an_epoch_is_as_long_as_it_says_and_follows_from_seed_and_epoch(
    kind: str, given: list[Size], epoch: int, seed: int
) -> None:
    mix: Mix = find("mix", kind)()  # type: ignore[assignment]
    order = mix.order(given, epoch, 6, seed)
    assert len(order) == mix.length(given)
    assert order.min() >= 0
    assert order.max() < len(given)
    assert (order == mix.order(given, epoch, 6, seed)).all()


@pytest.mark.slow
@given(sizes(), st.integers(0, 9))
def test_G27_without_replacement_each_batch_comes_once(given: list[Size], epoch: int) -> None:
    for mix in (find("mix", "shuffled")(), Mtdnn(), Mtdnn(main_last=True)):
        counts = np.bincount(mix.order(given, epoch, 10, 1), minlength=len(given))  # type: ignore[attr-defined]
        assert counts.tolist() == [size.batches for size in given]


@given(sizes(), st.floats(0, 5), st.booleans())
def test_G27_mtdnn_yields_as_many_batches_as_it_says_for_every_ratio(
    given: list[Size], ratio: float, main_last: bool
) -> None:
    mix = Mtdnn(ratio=ratio, main_last=main_last)
    order = mix.order(given, 0, 1, 3)
    main, others = given[0].batches, sum(size.batches for size in given[1:])
    wanted = min(int(ratio * main), others) if ratio else others
    assert len(order) == mix.length(given) == main + wanted
    assert int((order == 0).sum()) == main
    counts = np.bincount(order, minlength=len(given))
    assert all(count <= size.batches for count, size in zip(counts, given, strict=True))
    if main_last:
        assert (order[wanted:] == 0).all()
        assert (order[:wanted] > 0).all()


@given(sizes(), st.integers(1, 400))
def test_G28_temperature_1_is_proportional_and_a_large_one_uniform(given: list[Size], cap: int) -> None:
    rows = np.array([size.rows for size in given], float)
    proportional = shares(Proportional(), given)
    assert np.allclose(proportional, rows / rows.sum(), rtol=1e-12)
    assert np.allclose(shares(Temperature(temperature=1), given), proportional, rtol=1e-12)
    assert np.allclose(shares(Temperature(temperature=1e9), given), shares(Uniform(), given), atol=1e-6)
    root = np.sqrt(np.minimum(rows, cap))
    assert np.allclose(shares(Temperature(temperature=2, cap=cap), given), root / root.sum(), rtol=1e-9)
    assert np.isfinite(shares(Temperature(temperature=1e-6), given)).all()


@pytest.mark.slow
@given(sizes())
def test_G28_annealed_begins_proportional_and_ends_at_its_last_exponent(given: list[Size]) -> None:
    mix, rows = Annealed(), np.array([size.rows for size in given], float)
    assert np.allclose(shares(mix, given, 0, 5), shares(Proportional(), given))
    assert np.allclose(shares(mix, given, 4, 5), rows**0.2 / (rows**0.2).sum())
    assert mix.exponent(2, 5) == pytest.approx(1 - 0.8 * 2 / 4)
    assert mix.exponent(0, 1) == 1.0


@pytest.mark.parametrize("mix", [Proportional(), Temperature(temperature=3), Explicit(shares={"t/0": 1, "t/1": 5})])
def test_G28_tasks_come_as_often_as_their_chances_say(mix: Drawn) -> None:
    given = [Size("t/0", 9000, 9000), Size("t/1", 1000, 1000)]
    wanted = shares(mix, given)[1]
    found = float((mix.order(given, 0, 1, 1) == 1).mean())
    assert abs(found - wanted) < 4 * math.sqrt(wanted * (1 - wanted) / 10_000)


def test_explicit_shares_name_every_task() -> None:
    with pytest.raises(UserError, match="glue/rte needs a share"):
        Explicit(shares={"glue/mnli": 1}).check(["glue/mnli", "glue/rte"])
    with pytest.raises(UserError, match="glue/wnli is not a task of this run"):
        Explicit(shares={"glue/mnli": 1, "glue/wnli": 1}).check(["glue/mnli"])
