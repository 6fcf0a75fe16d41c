"""Each statistic against its definition, written anew here, and the properties that must hold for any input."""

import itertools
import math
import random
import statistics
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from encodery.report import stats

scores = st.floats(0, 1, allow_nan=False).map(lambda x: round(x, 6))
samples = st.lists(scores, min_size=2, max_size=8)
ps = st.lists(st.floats(0, 1, allow_nan=False), min_size=1, max_size=8)


def test_W20_sd_of_one_value_is_not_zero_but_unknown() -> None:
    assert stats.summary([0.5]) == stats.Summary(1, 0.5, None, 0.5, 0.5)
    assert stats.summary([]) == stats.Summary(0, None, None, None, None)


def test_summary_of_known_numbers() -> None:
    found = stats.summary([0.1, 0.2, 0.6])
    assert found.n == 3
    assert found.mean == pytest.approx(0.3)
    assert found.sd == pytest.approx(math.sqrt((0.04 + 0.01 + 0.09) / 2))
    assert (found.median, found.best) == (0.2, 0.6)
    assert stats.summary([0.1, 0.2, 0.6], lower=True).best == 0.1


# Intervals


def covered(n: int, interval: Callable[[list[float]], tuple[float, float] | None], samples: int = 4000) -> float:
    """How often an interval of n normal values holds their true mean."""
    draws = np.random.default_rng(n).normal(0.8, 0.01, (samples, n)).tolist()
    found = [interval(values) or (math.nan, math.nan) for values in draws]
    return statistics.fmean(low <= 0.8 <= high for low, high in found)


def percentile_bootstrap(values: list[float]) -> tuple[float, float]:
    """What means over seeds must not be judged by."""
    draw = np.random.default_rng(0)
    means = np.asarray(values)[draw.integers(0, len(values), (1000, len(values)))].mean(1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


@pytest.mark.slow
@pytest.mark.parametrize("n", [3, 4, 5, 10])
def test_W35_the_interval_of_a_mean_over_seeds_holds_the_truth_in_95_of_100_cases(n: int) -> None:
    assert covered(n, stats.t_interval) == pytest.approx(0.95, abs=0.011)  # three standard errors


@pytest.mark.slow
@pytest.mark.parametrize(("n", "share"), [(3, 0.74), (5, 0.84), (10, 0.90)])
def test_W35_a_bootstrap_of_so_few_values_does_not(n: int, share: float) -> None:
    assert covered(n, percentile_bootstrap, 1000) == pytest.approx(share, abs=0.04)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "other"), [(3, 3), (3, 8), (5, 4)])
def test_W35_nor_do_two_samples_of_other_spreads_mislead_it(n: int, other: int) -> None:
    draw = np.random.default_rng(n)
    pairs = [(draw.normal(0.8, 0.01, n), draw.normal(0.7, 0.03, other)) for _ in range(3000)]
    found = [stats.t_interval(a.tolist(), b.tolist()) or (math.nan, math.nan) for a, b in pairs]
    assert statistics.fmean(low <= 0.1 <= high for low, high in found) >= 0.94  # a little too wide is right


@given(samples, st.floats(-1, 1).map(lambda x: round(x, 3)))
def test_the_interval_moves_with_the_values(values: list[float], shift: float) -> None:
    before, after = stats.t_interval(values), stats.t_interval([value + shift for value in values])
    if len(values) < 3:
        assert before is None
        assert after is None
        return
    assert before is not None
    assert before[0] - 1e-12 <= statistics.fmean(values) <= before[1] + 1e-12
    assert after == pytest.approx((before[0] + shift, before[1] + shift), abs=1e-9)


def test_W35_fewer_than_three_values_have_no_interval() -> None:
    assert stats.t_interval([0.5]) is None
    assert stats.t_interval([0.5, 0.6]) is None
    assert stats.t_interval([0.5, 0.6, 0.7], [0.1, 0.2]) is None
    assert stats.t_interval([0.5] * 3, [0.25] * 3) == (0.25, 0.25)
    low, high = stats.band([[0.5], [0.1, 0.2, 0.3]])
    assert math.isnan(low[0])
    assert low[1] < 0.2 < high[1]
    assert stats.band([[0.5], [0.1, 0.2]]) == ([], [])


# Tests over seeds


def t_tail_by_integration(t: float, df: int) -> float:
    """Twice the area under the density beyond t, by Simpson's rule after the substitution x = tan(u)."""
    scale = math.exp(math.lgamma((df + 1) / 2) - math.lgamma(df / 2)) / math.sqrt(df * math.pi)
    begin, end, n = math.atan(abs(t)), math.pi / 2, 2000
    step = (end - begin) / n

    def height(u: float) -> float:
        cosine = math.cos(u)
        if cosine < 1e-12:
            return scale * df ** ((df + 1) / 2) if df == 1 else 0.0
        return scale * (1 + math.tan(u) ** 2 / df) ** (-(df + 1) / 2) / cosine**2

    total = sum(height(begin + i * step) * (1 if i in (0, n) else 4 if i % 2 else 2) for i in range(n + 1))
    return 2 * total * step / 3


@pytest.mark.slow
@given(st.floats(-8, 8), st.integers(1, 30))
def test_students_tail_is_the_area_under_his_density(t: float, df: int) -> None:
    assert stats.student_two_sided(t, df) == pytest.approx(t_tail_by_integration(t, df), abs=1e-8)


def test_students_tail_has_the_values_of_every_textbook() -> None:
    for t, df in ((12.706, 1), (4.303, 2), (3.182, 3), (2.776, 4), (2.262, 9), (2.045, 29)):
        assert stats.student_two_sided(t, df) == pytest.approx(0.05, abs=2e-4)


def test_W42_paired_t_of_known_differences() -> None:
    differences = [1.0, 2.0, 3.0, 4.0, 5.0]  # mean 3, sd sqrt(2.5), t = 3 / (1.5811 / 2.2361) = 4.2426
    assert stats.paired_t(differences) == pytest.approx(t_tail_by_integration(4.242640687, 4), abs=1e-8)
    assert stats.paired_t([0.1]) is None
    assert stats.paired_t([]) is None
    assert stats.paired_t([0.0, 0.0, 0.0]) == 1.0
    assert stats.paired_t([0.1, 0.1, 0.1]) is None, "without a spread there is no test: two equal seeds prove nothing"
    assert stats.paired_t([0.1, 0.1]) is None


@given(samples)
def test_tests_over_seeds_do_not_care_about_sign_and_order(differences: list[float]) -> None:
    other = [-value for value in reversed(differences)]
    for test in (stats.paired_t, stats.sign_flips):
        p = test(differences)
        if p is None:
            assert test is stats.paired_t
            assert max(differences) - min(differences) <= 1e-9 * abs(max(differences, key=abs))
            continue
        assert 0 <= p <= 1
        assert p == pytest.approx(test(other), abs=1e-9)


@pytest.mark.slow
@given(samples)
def test_sign_flips_counts_all_flips(differences: list[float]) -> None:
    exact = [Fraction(value) for value in differences]
    seen = abs(sum(exact))
    flips = [
        abs(sum(s * d for s, d in zip(signs, exact, strict=True)))
        for signs in itertools.product((1, -1), repeat=len(exact))
    ]
    share = Fraction(sum(flip >= seen for flip in flips), len(flips))
    loose = Fraction(sum(flip >= seen - Fraction(1, 10**9) for flip in flips), len(flips))
    found = stats.sign_flips(differences)
    assert found is not None
    assert float(share) - 1e-12 <= found <= float(loose) + 1e-12


def test_sign_flips_at_its_limits() -> None:
    assert stats.sign_flips([0.1] * 5) == 2 / 32
    assert stats.sign_flips([0.0, 0.0]) == 1.0
    assert stats.sign_flips([0.3]) is None
    many = stats.sign_flips([0.1 + i / 1000 for i in range(20)])  # drawn, not counted
    assert many is not None
    assert 0 < many < 0.01


# Tests over examples


@given(st.integers(0, 30), st.integers(0, 30))
def test_mcnemar_is_the_exact_binomial_test(b: int, c: int) -> None:
    n = b + c
    tail = sum(Fraction(math.comb(n, k), 2**n) for k in range(min(b, c) + 1))
    assert stats.mcnemar(b, c) == pytest.approx(float(min(Fraction(1), 2 * tail)), rel=1e-9)
    assert stats.mcnemar(b, c) == stats.mcnemar(c, b)


def test_mcnemar_of_many_examples_is_finite_and_small() -> None:
    assert stats.mcnemar(20000, 20000) == 1.0
    assert 0 <= stats.mcnemar(18000, 22000) < 1e-80
    assert stats.mcnemar(0, 0) == 1.0


@given(ps)
def test_a_combined_p_is_no_smaller_than_the_median_and_keeps_a_single_one(values: list[float]) -> None:
    found = stats.combined(values)
    assert found is not None
    assert statistics.median_low(values) <= found <= min(1.0, 2 * statistics.median_low(values)) + 1e-12
    assert stats.combined(values[:1]) == values[0]


def test_combined_ps_of_equal_tests_are_below_a_level_no_more_often_than_it() -> None:
    """The hardest case is any dependence; here all are the same p, and then half equal, half fresh."""
    draw = random.Random(0)
    rounds = 4000
    for level in (0.05, 0.2):
        hits = 0
        for _ in range(rounds):
            first = draw.random()
            found = stats.combined([first, first, draw.random(), draw.random(), first])
            hits += found is not None and found <= level
        assert hits / rounds <= level + 0.015
    assert stats.combined([]) is None


# Many comparisons


def holm_by_steps(values: list[float], level: float) -> set[int]:
    """Which hypotheses Holm's procedure rejects, as it is told: step down until one is too large."""
    rejected: set[int] = set()
    for rank, place in enumerate(sorted(range(len(values)), key=lambda i: values[i])):
        if values[place] > level / (len(values) - rank):
            break
        rejected.add(place)
    return rejected


@given(ps, st.floats(0.001, 0.5))
def test_holm_rejects_what_the_procedure_rejects(values: list[float], level: float) -> None:
    adjusted = stats.holm(values)
    by_steps = holm_by_steps(values, level)
    for place, p in enumerate(adjusted):
        if abs(p - level) > 1e-9:
            assert (p <= level) == (place in by_steps)
    assert all(p >= raw - 1e-15 for p, raw in zip(adjusted, values, strict=True))


# Expected maximum


@given(st.lists(scores, min_size=1, max_size=5), st.integers(1, 4))
def test_the_expected_best_is_the_mean_over_all_draws(values: list[float], tries: int) -> None:
    every = list(itertools.product(values, repeat=tries))
    assert stats.expected_best(values, tries) == pytest.approx(statistics.fmean(map(max, every)), abs=1e-9)
    assert stats.expected_best(values, tries, lower=True) == pytest.approx(statistics.fmean(map(min, every)), abs=1e-9)


@given(samples, st.integers(1, 50))
def test_more_tries_never_expect_less(values: list[float], tries: int) -> None:
    one, more = stats.expected_best(values, tries), stats.expected_best(values, tries + 1)
    assert one <= more + 1e-12
    assert more <= max(values) + 1e-12
    assert stats.expected_best(values, 1) == pytest.approx(statistics.fmean(values))


def test_intervals_and_tests_agree_with_scipy() -> None:
    """An independent implementation of each, on one sample of differences."""
    from scipy import stats as theirs

    gaps = [0.012, -0.004, 0.021, 0.009, 0.015, -0.001, 0.018]
    interval = theirs.ttest_1samp(gaps, 0.0).confidence_interval(0.95)
    assert stats.t_interval(gaps) == pytest.approx((interval.low, interval.high), rel=1e-9)
    wider = theirs.ttest_1samp(gaps, 0.0).confidence_interval(1 - 0.05 / 4)
    assert stats.t_interval(gaps, comparisons=4) == pytest.approx((wider.low, wider.high), rel=1e-9)
    other = [value + 0.01 for value in gaps]  # equal spreads: Welch's degrees of freedom are whole
    welch = theirs.ttest_ind(gaps, other, equal_var=False).confidence_interval(0.95)
    assert stats.t_interval(gaps, other) == pytest.approx((welch.low, welch.high), rel=1e-9)
    assert stats.paired_t(gaps) == pytest.approx(theirs.ttest_1samp(gaps, 0.0).pvalue, rel=1e-12)
    flips = theirs.permutation_test((gaps,), np.sum, permutation_type="samples", n_resamples=np.inf)
    assert stats.sign_flips(gaps) == pytest.approx(flips.pvalue, rel=1e-12)
    assert stats.mcnemar(31, 52) == pytest.approx(theirs.binomtest(31, 83).pvalue, rel=1e-9)
    assert stats.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])


def test_the_expected_best_of_a_hand_computed_case() -> None:
    """Two draws of 1, 2, 4: nine pairs with the maxima 1, 2, 2, 2, 4, 4, 4, 4, 4."""
    assert stats.expected_best([2.0, 4.0, 1.0], 2) == pytest.approx(27 / 9)
    assert stats.expected_best([2.0, 4.0, 1.0], 2, lower=True) == pytest.approx((5 * 1 + 3 * 2 + 4) / 9)
