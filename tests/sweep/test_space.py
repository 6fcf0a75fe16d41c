"""Values of an axis are read by a pattern; nothing is run."""

import itertools
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from encodery.sweep.search_space import draw, is_list, values


def test_lists_stay_as_they_are() -> None:
    assert values([16, "a", None, [1, 2]]) == [16, "a", None, [1, 2]]


@given(st.integers(-50, 50), st.integers(1, 50), st.integers(1, 9))
def test_range_is_pythons(begin: int, length: int, step: int) -> None:
    assert values(f"range({begin}, {begin + length}, {step})") == list(range(begin, begin + length, step))


def test_range_of_fractions_has_exact_steps() -> None:
    assert values("range(0.1, 1.05, 0.1)") == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]


@given(st.floats(1e-6, 1), st.floats(1.5, 1e4), st.integers(2, 9))
def test_log_has_its_ends_and_equal_ratios(first: float, factor: float, points: int) -> None:
    found = values(f"log({first!r}, {first * factor!r}, {points})")
    assert (found[0], found[-1], len(found)) == (first, first * factor, points)
    ratios = [b / a for a, b in itertools.pairwise(found)]
    assert all(math.isclose(ratio, ratios[0], rel_tol=1e-9) for ratio in ratios)


def test_points_are_short_numbers() -> None:
    assert values("log(1e-5, 1e-3, 3)") == [1e-5, 1e-4, 1e-3]
    assert values("linspace(0, 1, 3)") == [0.0, 0.5, 1.0]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("__import__('os').getcwd()", "there is no __import__(…) here"),
        ("logg(1, 2, 3)", "did you mean log?"),
        ("log(0, 1, 3)", "both above 0"),
        ("log(1, 2)", "log(first, last, points)"),
        ("range(1, x)", "range(begin, end)"),
        ("range(3, 1)", "with 1 to"),
        ("range(0, 1e9)", "with 1 to"),
        ("linspace(1, 2, 1)", "at least 2 points"),
        ("log(1e-5", "inside { } write it in quotes"),
        ("uniform(0, 1)", "there is no uniform(…) here"),
        (3, "expected a list"),
        ([], "at least one value"),
        ([1, 1], "appears twice"),
    ],
)
def test_mistakes_of_an_axis(given: object, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        values(given)


@given(st.floats(0, 1, exclude_max=True))
def test_draws_stay_inside(share: float) -> None:
    assert 1e-6 <= draw("loguniform(1e-6, 1e-4)").at(share) <= 1e-4
    assert 2 <= draw("uniform(2, 3)").at(share) <= 3
    assert draw("int(1, 3)").at(share) in (1, 2, 3)
    assert draw("choice(a, 2)").at(share) in ("a", 2)
    assert draw([0.1, 0.2]).at(share) in (0.1, 0.2)


def test_int_reaches_both_ends() -> None:
    assert {draw("int(1, 3)").at(i / 30) for i in range(30)} == {1, 2, 3}


@pytest.mark.parametrize(
    "given", ["uniform(2, 1)", "loguniform(0, 1)", "int(1.5, 3)", "choice()", "gauss(0, 1)", 7, [2, 2]]
)
def test_mistakes_of_a_draw(given: object) -> None:
    with pytest.raises(ValueError, match=r"expected|there is no"):
        draw(given)


def test_calls_on_the_command_line() -> None:
    assert is_list("log(1e-5, 1e-3, 3)")
    assert not is_list("roberta-base")
    assert not is_list("choice(a, b)")
