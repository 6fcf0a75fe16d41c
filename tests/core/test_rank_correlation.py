"""Correlations of rankings: against scipy, with ties, for any shape."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from encodery.core import rank_correlation
from encodery.core.rank_correlation import constant, correlations, ranks, resampled_means


@st.composite
def tables(draw: st.DrawFn, rows: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """Two tables of equal width, with many ties, few, or none; sometimes a constant row."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    width, levels = draw(st.integers(2, 14)), draw(st.sampled_from([2, 5, 1000, None]))
    shapes = [(int(rng.integers(1, rows)), width) for _ in range(2)]
    a, b = (rng.normal(size=s) if levels is None else rng.integers(-levels, levels, s).astype(float) for s in shapes)
    if draw(st.booleans()):
        a[0] = a[0, 0]
    return a, b


OURS = {"kendall": stats.kendalltau, "spearman": stats.spearmanr, "pearson": stats.pearsonr}


def by_scipy(kind: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = np.array([[OURS[kind](x, y)[0] for y in b] for x in a])
    still = constant(a)[:, None] | constant(b)
    return np.where(still, 0.0, found)


@pytest.mark.slow
@settings(max_examples=25)
@given(tables())
def test_G16_kendall_and_spearman_are_those_of_scipy_with_ties(both: tuple[np.ndarray, np.ndarray]) -> None:
    for kind in ("kendall", "spearman"):
        assert np.abs(correlations(*both, kind) - by_scipy(kind, *both)).max() < 1e-12


@pytest.mark.parametrize("width", [3, 8, 40])
def test_pearson_is_that_of_scipy(width: int) -> None:
    rng = np.random.default_rng(width)
    a, b = rng.normal(size=(3, width)) + 5, rng.normal(size=(2, width)) * 1e-8
    assert np.abs(correlations(a, b, "pearson") - by_scipy("pearson", a, b)).max() < 1e-9


@given(tables())
def test_G16_of_itself_1_symmetric_reversed_minus_1_and_constant_0(both: tuple[np.ndarray, np.ndarray]) -> None:
    a, _ = both
    own = correlations(a, a)
    moving = ~constant(a)
    assert np.allclose(np.diag(own)[moving], 1.0, atol=1e-15)
    assert (np.diag(own)[~moving] == 0).all()
    assert (own == own.T).all()
    assert np.allclose(np.diag(correlations(a, -a))[moving], -1.0, atol=1e-15)
    assert np.allclose(correlations(3 * a + 7, a), own, atol=1e-15)  # only the order counts


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 9, (50, 20)), rng.integers(0, 9, (70, 20))
    whole = correlations(a, b)
    monkeypatch.setattr(rank_correlation, "CELLS", 60)
    monkeypatch.setattr(rank_correlation, "OTHERS", 7)
    assert (correlations(a, b) == whole).all()


def test_what_has_no_correlation_is_refused() -> None:
    with pytest.raises(ValueError, match="rows of equal length"):
        correlations(np.zeros((2, 3)), np.zeros((2, 4)))
    with pytest.raises(ValueError, match="finite"):
        correlations(np.array([[1.0, np.nan]]), np.array([[1.0, 2.0]]))


@given(tables())
def test_ranks_are_those_of_scipy(both: tuple[np.ndarray, np.ndarray]) -> None:
    assert (ranks(both[0]) == stats.rankdata(both[0], axis=1)).all()


def test_resampled_means_lie_around_the_mean() -> None:
    rows = np.random.default_rng(1).normal(size=(400, 3))
    drawn = resampled_means(rows, 500, seed=3)
    assert np.abs(drawn.mean(0) - rows.mean(0)).max() < 4 / np.sqrt(400 * 500)
    assert np.allclose(drawn.std(0) * np.sqrt(400), rows.std(0), rtol=0.15)
