"""Facility location: examples that together are similar to everything.

maximise Σ_x max_{s in S} sim(x, s), sim = (1 + cosine) / 2

Greedy reaches 1 − 1/e of the best. Lazily: a gain can only fall while the choice grows, so the example whose old gain
is highest is looked at again, and taken if it stays on top. Above 20,000 rows each row knows its nearest ones only.
"""

import heapq
from collections.abc import Callable

import numpy as np
from pydantic import Field

from encodery.selectors.base import Numbers, Pool, Ranked, Selector, apportioned, interleaved, prepared

DENSE = 20_000  # rows up to which all similarities are held
CELLS = 1 << 24  # similarities that are looked at at once where there are more: 200 MB with their order
Column = Callable[[int], tuple[Numbers, Numbers]]  # the rows that an example can stand for, and how similar they are


class Facility(Selector):
    """Rows that best represent all others, by the similarity of their embeddings (facility location)."""

    needs = ("embeddings",)

    by_label: bool = True
    """Select within each label, in proportion to its frequency."""
    neighbours: int = Field(default=100, ge=1)
    """Nearest neighbours to consider per row in pools of more than 20,000 rows."""
    pca: int | None = Field(default=None, ge=1)
    """Reduce embeddings to this many principal components. null: no reduction."""

    def __call__(self, pool: Pool, count: int) -> Ranked:
        """The first `count` positions, each with what it gained."""
        points = prepared(prepared(pool.vectors, False, self.pca, pool.seed), True, None, pool.seed)
        labels = pool.labels if self.by_label else np.zeros(len(pool), np.int64)
        groups = [np.flatnonzero(labels == label) for label in np.unique(labels)]
        turns = apportioned([len(group) for group in groups])[:count]
        scores, orders = np.zeros(len(pool)), []
        for number, group in enumerate(groups):
            chosen, gains = lazy_greedy(self.columns(points[group]), len(group), int((turns == number).sum()))
            scores[group[chosen]] = gains
            orders.append(group[chosen])
        return Ranked(interleaved(orders, turns), scores)

    def columns(self, points: Numbers) -> Column:
        """Similarities by column: all of them, or those of the nearest rows."""
        everything = np.arange(len(points))
        if len(points) <= DENSE:
            return lambda j: (everything, similar(points, points[j : j + 1])[:, 0])
        starts, rows, values = nearest(points, min(self.neighbours, len(points)))
        return lambda j: (rows[starts[j] : starts[j + 1]], values[starts[j] : starts[j + 1]])


def similar(a: Numbers, b: Numbers) -> Numbers:
    """(1 + cosine) / 2 of vectors of length 1."""
    return np.asarray((1.0 + a @ b.T) / 2.0)


def nearest(points: Numbers, k: int) -> tuple[Numbers, Numbers, Numbers]:
    """For each example the rows that have it among their k nearest (with their similarity), as sparse columns."""
    rows = len(points)
    neighbours, values = np.empty((rows, k), np.int32), np.empty((rows, k), np.float32)
    step = max(1, CELLS // rows)
    for i in range(0, rows, step):
        block = similar(points[i : i + step], points)
        top = np.argpartition(block, rows - k, axis=1)[:, rows - k :]
        neighbours[i : i + step], values[i : i + step] = top, np.take_along_axis(block, top, 1)
    order = np.argsort(neighbours.ravel(), kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(neighbours.ravel(), minlength=rows))])
    return starts, (order // k).astype(np.int32), values.ravel()[order]


def lazy_greedy(column: Column, size: int, count: int) -> tuple[Numbers, Numbers]:
    """The first `count` examples of plain greedy, and their gains; ties go to the lower position."""
    best = np.zeros(size)
    heap = [(-float(column(j)[1].sum(dtype=np.float64)), j) for j in range(size)]
    heapq.heapify(heap)
    chosen: list[int] = []
    gains: list[float] = []
    while heap and len(chosen) < count:
        _, j = heapq.heappop(heap)
        rows, values = column(j)
        gain = float(np.maximum(values - best[rows], 0.0).sum(dtype=np.float64))
        if heap and (-gain, j) > heap[0]:
            heapq.heappush(heap, (-gain, j))
            continue
        chosen.append(j)
        gains.append(gain)
        best[rows] = np.maximum(best[rows], values)
    return np.array(chosen, np.int64), np.array(gains)
