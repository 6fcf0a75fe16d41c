"""Draws are functions of their key, look random, and never change silently."""

import timeit

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from encodery.data.rng import SHORT, STRIDE, Order, bits, choose, key, mix, per_token, uniform

KEYS = st.integers(0, 2**64 - 1)
IDS = st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=20).map(np.array)
SIZES = st.integers(0, 9)
SEEDS = st.integers(0, 2**31)
LENGTHS = st.one_of(st.integers(1, 50), st.integers(SHORT - 2, 3 * SHORT))


def test_golden_values_never_change() -> None:
    """If this fails, every run that was ever started gives other numbers: do not adapt the values, mend the code."""
    mask = key(1, "mask", 7)
    assert (key(0, "order"), mask) == (13354303941561771493, 15717977719308117083)
    assert key(1, "mask", 7, 3) == 15069094157455766975
    assert bits(mask, np.array([0, 1, 10**9]), 2).tolist() == [
        [4521791724528585793, 4424361701079389706],
        [2302137127983366914, 9225649590932704589],
        [870808056214737622, 214326185484384894],
    ]
    assert uniform(mask, np.array([0, 5]), 2).tolist() == [
        [0.24512682056304336, 0.23984512840859673],
        [0.24032277270544067, 0.6420026810862781],
    ]


def test_golden_orders_never_change() -> None:
    """As above."""
    assert Order(1, 0, 10).at(np.arange(10)).tolist() == [9, 5, 8, 7, 6, 3, 1, 2, 0, 4]
    assert Order(1, 1, 10).at(np.arange(10)).tolist() == [2, 0, 1, 5, 7, 3, 8, 4, 6, 9]
    assert Order(2, 0, 392702).at(np.array([0, 1, 392701])).tolist() == [91565, 184199, 124884]
    assert choose(3, "fraction", 67349, 5).tolist() == [45478, 56449, 60071, 52667, 29098]


def test_hash_is_splitmix64() -> None:
    """The first three numbers of the published generator from seed 0."""
    found = mix(STRIDE * np.arange(1, 4, dtype=np.uint64))
    assert [hex(value) for value in found.tolist()] == ["0xe220a8397b1dcdaf", "0x6e789e6aa1b965f4", "0x6c45d188009454f"]


# Keys


def test_keys_differ_in_every_part() -> None:
    parts = [(0, "a"), (1, "a"), (0, "b"), (0, "a", 0), (0, "a", 1), (0, "a", 0, 0), (0, "a", 10), (0, "a", 1, 0)]
    assert len({key(seed, purpose, *numbers) for seed, purpose, *numbers in parts}) == len(parts)


@pytest.mark.slow
@given(st.integers(), st.text('aé/", '), st.lists(st.integers(-(2**62), 2**62)))
def test_keys_have_64_bits_and_take_numpys_numbers(seed: int, purpose: str, numbers: list[int]) -> None:
    found = key(seed, purpose, *numbers)
    assert 0 <= found < 2**64
    assert found == key(seed, purpose, *(np.int64(number) for number in numbers))


# Draws


@pytest.mark.slow
@given(KEYS, IDS, SIZES, st.randoms())
def test_draws_do_not_depend_on_the_batch(key: int, ids: np.ndarray, size: int, random) -> None:  # type: ignore[no-untyped-def]
    some = np.array(random.sample(range(len(ids)), random.randint(1, len(ids))))
    assert np.array_equal(uniform(key, ids, size)[some], uniform(key, ids[some], size))


@pytest.mark.slow
@given(KEYS, IDS, SIZES, SIZES)
def test_fewer_places_are_a_prefix(key: int, ids: np.ndarray, size: int, more: int) -> None:
    assert np.array_equal(uniform(key, ids, size), uniform(key, ids, size + more)[:, :size])


@given(KEYS, IDS, SIZES)
def test_draws_lie_where_they_should(key: int, ids: np.ndarray, size: int) -> None:
    shares = uniform(key, ids, size)
    assert shares.shape == (len(ids), size)
    assert ((shares >= 0) & (shares < 1)).all()


def draws_along(axis: str) -> np.ndarray:
    """100,000 uniform numbers that differ in one part of their key only."""
    if axis == "id":
        return uniform(key(1, "test"), np.arange(100_000), 1)[:, 0]
    if axis == "place":
        return uniform(key(1, "test"), np.array([17]), 100_000)[0]
    near = 12345 if axis == "neighbouring key" else key(1, "test")
    return np.concatenate([uniform(near + step, np.arange(100), 1)[:, 0] for step in range(1000)])


@pytest.mark.parametrize("axis", ["id", "place", "key", "neighbouring key"])
def test_draws_look_uniform_and_independent(axis: str) -> None:
    found = draws_along(axis)
    assert len(np.unique(found)) == len(found)
    assert stats.kstest(found, "uniform").pvalue > 1e-3
    for lag in (1, 2, 100):
        pairs = np.histogram2d(found[:-lag], found[lag:], bins=16, range=[[0, 1], [0, 1]])[0]
        assert stats.chisquare(pairs.ravel()).pvalue > 1e-3


# Orders


@given(SEEDS, st.integers(0, 1000), LENGTHS)
def test_order_is_a_permutation(seed: int, epoch: int, n: int) -> None:
    assert np.array_equal(np.sort(Order(seed, epoch, n).at(np.arange(n))), np.arange(n))


@pytest.mark.slow
@given(SEEDS, LENGTHS, st.data())
def test_any_position_at_once(seed: int, n: int, data: st.DataObject) -> None:
    positions = np.array(data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=20)))
    order = Order(seed, 0, n)
    assert np.array_equal(order.at(positions), order.at(np.arange(n))[positions])


@pytest.mark.parametrize("n", [100, 10_000])
def test_orders_differ_by_seed_epoch_and_purpose(n: int) -> None:
    parts = [(1, 0, n), (2, 0, n), (1, 1, n), (1, 0, n, "order/glue-rte")]
    orders = [Order(*part).at(np.arange(n)) for part in parts]
    for i, one in enumerate(orders):
        for other in orders[:i]:
            assert (one == other).mean() < 0.1


@pytest.mark.parametrize("n", [1, SHORT, SHORT + 1, 10**12])
def test_positions_outside_are_refused(n: int) -> None:
    order = Order(1, 0, n)
    assert 0 <= order.at(np.array([n - 1]))[0] < n
    assert order.at(np.zeros(0, dtype=np.int64)).shape == (0,)
    for position in (-1, n):
        with pytest.raises(IndexError, match=f"order of {n} rows"):
            order.at(np.array([0, position]))


def test_an_order_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="order of 0 rows"):
        Order(1, 0, 0)


@pytest.mark.slow
def test_every_permutation_of_four_is_equally_likely() -> None:
    found = np.array([Order(seed, 0, 4).at(np.arange(4)) for seed in range(2400)]) @ 4 ** np.arange(4)
    assert len(counts := np.unique(found, return_counts=True)[1]) == 24
    assert stats.chisquare(counts).pvalue > 1e-3


@pytest.mark.parametrize("n", [SHORT + 1, 5000, 60_000])
def test_neighbours_land_independently(n: int) -> None:
    """Rows at positions some way apart, in a table of 8 by 8: as independent as the margins allow."""
    found = []
    for seed in range(10):
        order = Order(seed, 0, n)
        rows = order.at(np.arange(n))
        for lag in (1, 2, int(order.b), n // 2):
            joint = np.histogram2d(rows[:-lag], rows[lag:], bins=8, range=[[0, n], [0, n]])[0]
            found.append(stats.chi2_contingency(joint).pvalue)
    assert min(found) > 1e-4
    assert stats.kstest(found, "uniform").pvalue > 1e-3


@pytest.mark.slow
def test_first_places_go_to_all_rows_alike() -> None:
    """What stands first, over many epochs: no row is favoured."""
    n = 2000
    first = np.concatenate([Order(1, epoch, n).at(np.arange(32)) for epoch in range(500)])
    assert stats.chisquare(np.bincount(first * 20 // n, minlength=20)).pvalue > 1e-3


def test_32_positions_take_less_than_a_millisecond() -> None:
    """About 90 µs on an idle machine; the bound leaves room for a busy one."""
    order, positions = Order(1, 0, 392_702), np.arange(5000, 5032)
    assert min(timeit.repeat(lambda: order.at(positions), number=10, repeat=10)) / 10 < 1e-3


# Choices


@pytest.mark.slow
@given(SEEDS, LENGTHS, st.data())
def test_choices_are_nested(seed: int, n: int, data: st.DataObject) -> None:
    few, many = sorted(data.draw(st.tuples(st.integers(0, n), st.integers(0, n))))
    large = choose(seed, "fraction", n, many)
    assert np.array_equal(choose(seed, "fraction", n, few), large[:few])
    assert np.array_equal(choose(seed, "fraction", n, many, ascending=True), np.sort(large))
    assert len(np.unique(large)) == many


@pytest.mark.parametrize("k", [-1, 11])
def test_choosing_more_than_there_is_is_refused(k: int) -> None:
    with pytest.raises(ValueError, match=f"{k} of 10 rows"):
        choose(1, "fraction", 10, k)


def test_draws_per_token_are_those_of_whole_rows():
    ids, lengths = np.array([5, 2, 9]), np.array([3, 1, 4])
    got = per_token(7, ids, lengths, 6)
    whole = uniform(7, ids, 4 * 6).reshape(3, 4, 6)
    assert np.array_equal(got, np.concatenate([whole[i, :n] for i, n in enumerate(lengths)]))
