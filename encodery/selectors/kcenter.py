"""k-center greedy (Sener and Savarese 2018, Gonzalez 1985): always the example farthest from those that are chosen.

The largest distance of any example to its nearest chosen one is at most twice what the best choice could reach.
"""

import numpy as np
from pydantic import Field

from encodery.selectors.base import Numbers, Pool, Ranked, Selector, prepared


class KCenter(Selector):
    """Greedy k-center: takes the row farthest from all selected rows next, starting with the row nearest to the
    mean."""

    needs = ("embeddings",)

    normalise: bool = False
    """Scale embeddings to length 1."""
    pca: int | None = Field(default=64, ge=1)
    """Measure distances in this many principal components. null: in the full space."""

    def __call__(self, pool: Pool, count: int) -> Ranked:
        """The first `count` positions, each with its distance to those before it."""
        points = prepared(pool.vectors, self.normalise, self.pca, pool.seed)
        order, radius = farthest_first(points, count)
        scores = np.zeros(len(pool))
        scores[order] = radius
        return Ranked(order, scores)


def farthest_first(points: Numbers, count: int) -> tuple[Numbers, Numbers]:
    """Positions, and how far each was from all before it (the first: from the mean)."""
    points = np.ascontiguousarray(points, np.float32)
    squares = np.einsum("ij,ij->i", points, points, dtype=np.float64)
    gap = points - points.mean(0)
    near = np.einsum("ij,ij->i", gap, gap, dtype=np.float64)
    here = int(near.argmin())
    order, radius = [here], [float(near[here]) ** 0.5]
    distance = np.full(len(points), np.inf)
    for _ in range(min(count, len(points)) - 1):
        to_here = squares - 2.0 * (points @ points[here]) + squares[here]
        np.minimum(distance, np.maximum(to_here, 0.0), out=distance)
        distance[here] = -1.0  # chosen ones are never chosen again, also where points coincide
        here = int(distance.argmax())
        order.append(here)
        radius.append(float(max(distance[here], 0.0)) ** 0.5)
    return np.array(order), np.array(radius)
