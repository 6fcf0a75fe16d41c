"""Statistics over a handful of seeds: what they are and what they cannot say is on the page docs/statistics.md.

Everything is exact or seeded, so that the same runs always give the same table. Only numpy: tables must answer at once.
"""

import math
import statistics
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

RESAMPLES = 10_000  # of sign flips, where there are too many to count
FOLDS = "The interval is Student's over the folds. They share training rows, so it is narrower than it should be."
FEW = 3  # below so many seeds there is no interval, and nothing should be concluded
EXACT = 14  # up to so many pairs all sign flips are counted; above they are drawn


class Summary(NamedTuple):
    """A sample in five numbers; None where there is nothing to say."""

    n: int
    mean: float | None
    sd: float | None
    median: float | None
    best: float | None


def summary(values: Sequence[float], *, lower: bool = False) -> Summary:
    """n, mean, sd (with n - 1; none for one value), median and best."""
    if not values:
        return Summary(0, None, None, None, None)
    best = min(values) if lower else max(values)
    return Summary(len(values), mean(values), sd(values), statistics.median(values), best)


def mean(values: Sequence[float]) -> float:
    """The mean, exactly rounded."""
    return math.fsum(values) / len(values)


def sd(values: Sequence[float]) -> float | None:
    """The standard deviation with n - 1; None for one value, whose spread nobody knows."""
    return statistics.stdev(values) if len(values) > 1 else None


def t_interval(
    values: Sequence[float], other: Sequence[float] | None = None, *, comparisons: int = 1
) -> tuple[float, float] | None:
    """Student's 95 % interval of the mean over seeds; given another sample, Welch's of the difference of the two means.

    None below three values: with two the factor is 12.7, and what it spans says nothing. Where the sample was picked
    as the best of several `comparisons`, the interval is so much wider that it still holds (Bonferroni).
    """
    if len(values) < FEW or (other is not None and len(other) < FEW):
        return None
    if other is None:
        centre, error, df = mean(values), _standard_error(values), len(values) - 1
    else:
        centre = mean(values) - mean(other)
        error, df = _welch(values, other)
    half = t_quantile(df, 0.05 / comparisons) * error
    return centre - half, centre + half


def _standard_error(values: Sequence[float]) -> float:
    return statistics.stdev(values) / math.sqrt(len(values))


def _welch(values: Sequence[float], other: Sequence[float]) -> tuple[float, int]:
    """The standard error of a difference of means, and Satterthwaite's degrees of freedom, rounded down."""
    parts = [(_standard_error(one) ** 2, len(one) - 1) for one in (values, other)]
    variance = math.fsum(square for square, _ in parts)
    if variance == 0:
        return 0.0, 1
    df = variance**2 / math.fsum(square**2 / below for square, below in parts)
    return math.sqrt(variance), math.floor(df + 1e-9)  # equal spreads give a whole number that may miss it by a bit


@cache
def t_quantile(df: int, outside: float = 0.05) -> float:
    """The t with P(|T| > t) = outside; for 5 %: 4.30 for 2 degrees of freedom, 2.78 for 4, 2.26 for 9."""
    low, high = 0.0, 1.0
    while student_two_sided(high, df) > outside:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if student_two_sided(middle, df) > outside else (low, middle)
    return (low + high) / 2


def band(samples: Sequence[Sequence[float]]) -> tuple[list[float], list[float]]:
    """The lower and the upper ends of the intervals of several samples, for a chart: nan where there is none, and
    nothing at all where no sample has one."""
    intervals = [t_interval(values) for values in samples]
    if not any(intervals):
        return [], []
    gap = (math.nan, math.nan)
    return [(one or gap)[0] for one in intervals], [(one or gap)[1] for one in intervals]


def paired_t(differences: Sequence[float]) -> float | None:
    """Two-sided p of Student's paired test: are differences of this size usual if the true mean is zero? None where
    all differences are equal and not zero, as after two seeds with equal scores: without a spread there is no test."""
    spread = sd(differences) if differences else None
    if spread is None:
        return None
    centre = mean(differences)
    if spread <= 1e-12 * abs(centre) or spread == 0:  # all differences are equal: t is infinite, or 0 / 0
        return 1.0 if centre == 0 else None
    return student_two_sided(centre / (spread / math.sqrt(len(differences))), len(differences) - 1)


def student_two_sided(t: float, df: int) -> float:
    """P(|T| > |t|) for whole degrees of freedom: the finite sums of Abramowitz and Stegun 26.7.3 and 26.7.4."""
    angle = math.atan2(abs(t), math.sqrt(df))
    cosine, sine = math.cos(angle), math.sin(angle)
    first = 2 if df % 2 else 1  # the powers of the cosine are odd for odd df, even for even df
    term, total = (cosine if df % 2 else 1.0), 0.0
    for k in range(first, df, 2):
        total += term
        term *= k / (k + 1) * cosine**2
    inside = 2 / math.pi * (angle + sine * total) if df % 2 else sine * total
    return min(1.0, max(0.0, 1.0 - inside))


def chi2_above(x: float, df: int) -> float:
    """P(X > x) of a χ² with whole degrees of freedom: the finite sums of Abramowitz and Stegun 26.4.4 and 26.4.5."""
    if x <= 0:
        return 1.0
    half = x / 2
    if df % 2:
        total = math.erfc(math.sqrt(half))
        term = math.exp(-half) * math.sqrt(x / (math.pi / 2)) if df > 1 else 0.0
        for k in range(3, df + 1, 2):
            total += term
            term *= x / k
        return min(1.0, total)
    term, total = math.exp(-half), 0.0
    for k in range(1, df // 2 + 1):
        total += term
        term *= half / k
    return min(1.0, total)


def wilson(share: float, n: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share of n: how far chance in the choice of examples reaches."""
    z = 1.959963984540054
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return middle - half, middle + half


def sign_flips(differences: Sequence[float]) -> float | None:
    """Two-sided p of the exact permutation test: each pair's sign could as well have been the other one."""
    n = len(differences)
    if n < 2:
        return None
    array = np.asarray(differences, dtype=np.float64)
    seen = abs(array.sum())
    if n <= EXACT:
        signs = 1 - 2 * (np.arange(2**n)[:, None] >> np.arange(n) & 1)
    else:
        signs = 1 - 2 * np.random.default_rng(0).integers(0, 2, (RESAMPLES, n))
        signs[0] = 1  # what was seen is one of the draws, so that p is never 0
    slack = 1e-12 * np.abs(array).sum()  # equal sums may differ in the last bit
    return float(np.mean(np.abs(signs @ array) >= seen - slack))


def mcnemar(only_a: int, only_b: int) -> float:
    """Exact two-sided p: of the examples that one model alone answers rightly, is half a usual share?"""
    n, few = only_a + only_b, min(only_a, only_b)
    if n == 0:
        return 1.0
    log_half = -n * math.log(2)
    logs = (math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) + log_half for k in range(few + 1))
    return min(1.0, 2 * math.fsum(math.exp(log) for log in logs))


def combined(ps: Sequence[float]) -> float | None:
    """One p from several that may depend on each other in any way: n/k times the k-th smallest, k = half (Rüger)."""
    if not ps:
        return None
    k = math.ceil(len(ps) / 2)
    return min(1.0, sorted(ps)[k - 1] * len(ps) / k)


def holm(ps: Sequence[float]) -> list[float]:
    """Holm's adjusted p values: below 0.05 in at most one of twenty tables where nothing differs."""
    adjusted = [1.0] * len(ps)
    highest = 0.0
    for rank, place in enumerate(sorted(range(len(ps)), key=lambda i: ps[i])):
        highest = max(highest, min(1.0, ps[place] * (len(ps) - rank)))
        adjusted[place] = highest
    return adjusted


def expected_best(values: Sequence[float], tries: int, *, lower: bool = False) -> float:
    """Expected best of `tries` draws with replacement from the values (Dodge et al. 2019)."""
    ordered = sorted(values, reverse=lower)
    n = len(ordered)
    return math.fsum(v * ((i / n) ** tries - ((i - 1) / n) ** tries) for i, v in enumerate(ordered, 1))


def percent(values: Sequence[float]) -> str:
    """`81.2 ± 0.4 (3)`: mean and standard deviation × 100, and how many."""
    spread = sd(values)
    return f"{100 * mean(values):.1f}" + (f" ± {100 * spread:.1f} ({len(values)})" if spread is not None else "")
