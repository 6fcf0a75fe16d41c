"""How alike rankings are: Kendall's tau-b, Spearman and Pearson of every row of one table with every row of another.

Only numpy, and no loop over rows: the sign of every pair of places of a row is one long vector, and the taus of all
rows are one matrix product. Ties count as in scipy. A row whose numbers are all equal has no order: its correlation is
defined as 0 (scipy: NaN), and `constant` says which rows these are.
"""

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Kind = Literal["kendall", "pearson", "spearman"]

CELLS = 1 << 17  # numbers of a block of signs: it should fit into the cache
OTHERS = 64  # rows whose signs are held in memory at once


def correlations(a: np.ndarray, b: np.ndarray, kind: Kind = "kendall") -> Numbers:
    """[n, k] and [m, k] → [n, m]."""
    a, b = np.asarray(a), np.asarray(b)
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1] or a.shape[1] < 2:
        raise ValueError(f"rows of equal length are needed, at least 2 numbers each; not {a.shape} and {b.shape}")
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise ValueError("only finite numbers have a correlation")
    makers: dict[str, Callable[[np.ndarray, np.ndarray], Numbers]] = {
        "kendall": kendall,
        "pearson": pearson,
        "spearman": lambda x, y: pearson(ranks(x), ranks(y)),
    }
    return makers[kind](a, b)


def kendall(a: np.ndarray, b: np.ndarray) -> Numbers:
    """Kendall's tau-b: (concordant - discordant pairs) / √(pairs untied in a · pairs untied in b)."""
    if len(b) > len(a):
        return kendall(b, a).T
    x, y = dense_ranks(a), dense_ranks(b)
    taus = np.empty((len(x), len(y)))
    for begin in range(0, len(y), OTHERS):
        few = slice(begin, begin + OTHERS)
        taus[:, few] = _against(x, y[few])
    return taus


def _against(x: np.ndarray, y: np.ndarray) -> Numbers:
    """The same for ranks and a few rows of the other table, whose signs are all held in memory."""
    rows = max(1, CELLS // x.shape[1])
    agreement, untied = np.zeros((len(x), len(y))), np.zeros(len(x))
    others = [signs(y, column) for column in range(y.shape[1] - 1)]
    for begin in range(0, len(x), rows):
        part = slice(begin, begin + rows)
        for column, other in enumerate(others):
            mine = signs(x[part], column)
            agreement[part] += mine @ other.T  # whole numbers below 2²⁴: exact in float32
            untied[part] += np.einsum("nk,nk->n", mine, mine)
    size = np.sqrt(untied)[:, None] * np.sqrt(sum(np.square(other).sum(1, dtype=np.float64) for other in others))
    return np.asarray(np.clip(np.divide(agreement, size, out=np.zeros_like(agreement), where=size > 0), -1, 1))


def signs(ranked: np.ndarray, place: int) -> NDArray[np.float32]:
    """Whether the numbers behind a place are larger (1), smaller (-1) or equal (0): [n, width - place - 1]."""
    apart = ranked[:, place + 1 :] - ranked[:, place, None]  # of whole numbers: 0, or 1 and more
    return np.asarray(np.clip(apart, -1, 1), np.float32)


def dense_ranks(rows: np.ndarray) -> NDArray[np.float32]:
    """0 for the smallest number of a row, 1 for the next larger one, …; equal numbers have equal ranks."""
    order = np.argsort(rows, 1, kind="stable")
    ordered = np.take_along_axis(rows, order, 1)
    steps = np.zeros(rows.shape, np.float32)
    np.cumsum(ordered[:, 1:] != ordered[:, :-1], 1, out=steps[:, 1:])
    found = np.empty(rows.shape, np.float32)
    np.put_along_axis(found, order, steps, 1)
    return found


def ranks(rows: np.ndarray) -> Numbers:
    """From 1 on; equal numbers share the mean of their places."""
    order = np.argsort(rows, 1, kind="stable")
    ordered = np.take_along_axis(rows, order, 1)
    width = rows.shape[1]
    new = np.ones(rows.shape, bool)
    new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    places = np.arange(width)
    first = np.maximum.accumulate(np.where(new, places, 0), 1)
    ends = np.ones(rows.shape, bool)
    ends[:, :-1] = new[:, 1:]
    last = np.minimum.accumulate(np.where(ends, places, width)[:, ::-1], 1)[:, ::-1]
    found = np.empty(rows.shape)
    np.put_along_axis(found, order, (first + last) / 2 + 1, 1)
    return found


def pearson(a: np.ndarray, b: np.ndarray) -> Numbers:
    """Cosine of the rows with their means taken off."""
    found: Numbers = np.clip(_unit(a) @ _unit(b).T, -1, 1)
    return found


def _unit(rows: np.ndarray) -> Numbers:
    centred = np.asarray(rows, np.float64)
    centred = np.where(constant(centred)[:, None], 0.0, centred - centred.mean(1, keepdims=True))
    largest = np.abs(centred).max(1, keepdims=True)
    centred = centred / np.where(largest > 0, largest, 1.0)  # so that squares of tiny numbers do not vanish
    norm = np.linalg.norm(centred, axis=1, keepdims=True)
    return np.asarray(centred / np.where(norm > 0, norm, 1.0))


def constant(rows: np.ndarray) -> NDArray[np.bool_]:
    """Which rows have no order: all their numbers are equal."""
    return np.asarray((rows == rows[:, :1]).all(1))


def resampled_means(rows: np.ndarray, draws: int, seed: int) -> Numbers:
    """Means of as many rows [n, k], drawn with replacement, again and again: [draws, k]."""
    rng, size = np.random.default_rng(seed), len(rows)
    chances = np.full(size, 1 / size)
    return np.stack([rng.multinomial(size, chances) @ rows / size for _ in range(draws)]).astype(np.float64)
