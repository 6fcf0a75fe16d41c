"""Clusters of embeddings, and an order over them.

stream        one example of each cluster in turn
proportional  from each cluster its share of the budget
whole         clusters 0, 1, 2, … as long as they fit (the original's way; much worse than random)
centroid      the example nearest to each centre, one for each cluster
"""

from typing import Literal

import numpy as np
from pydantic import Field

from encodery.selectors._clustering import ROWS_EACH, Algorithm, Clusters, found_by
from encodery.selectors.base import Numbers, Pool, Ranked, Selector, apportioned, interleaved, prepared

USUAL = 512  # clusters of a pool that has so many rows


class ByCluster(Selector):
    """Rows from clusters of embeddings."""

    needs = ("embeddings",)

    pick: Literal["stream", "proportional", "whole", "centroid"] = "stream"
    """stream: from each cluster in turn; proportional: by the size of the cluster; whole: one cluster after the other;
    centroid: the row nearest to each centre."""
    within: Literal["random", "file", "near", "far"] | None = None
    """Order within a cluster: random, as in the file, nearest to the centre first, or farthest first. Default: random
    for stream, near for proportional, file for whole."""
    algorithm: Algorithm = "minibatch"
    """Clustering algorithm of scikit-learn. minibatch: mini-batch k-means."""
    k: int = Field(default=USUAL, ge=1)
    """Number of clusters. Unless it is set, a pool of fewer than 512 rows gets a tenth of its rows."""
    normalise: bool = False
    """Scale embeddings to length 1."""
    pca: int | None = Field(default=None, ge=1)
    """Reduce embeddings to this many principal components. null: no reduction."""
    batch_size: int = Field(default=4096, ge=1)
    """minibatch: rows per step."""
    eps: float = Field(default=0.2, gt=0)
    """dbscan: maximum distance between neighbours."""
    min_samples: int = Field(default=50, ge=1)
    """dbscan: neighbours that a core point needs."""

    def __call__(self, pool: Pool, count: int) -> Ranked:
        """All positions; of whole and centroid only those that are chosen."""
        clusters = self.clusters(pool)
        order = self.order(clusters, pool, count)
        number, notes, about = self.number(pool), clusters.notes, {}
        if self.algorithm != "dbscan" and number < self.k:
            fewer = f"{number} clusters, since there are {len(pool):,} rows (--selector.k N sets another number)"
            notes, about = (fewer, *notes), {"k": number}
        return Ranked(order, clusters.distances, clusters.labels, notes=notes, about=about)

    def number(self, pool: Pool) -> int:
        """How many clusters are made of a pool."""
        small = len(pool) < USUAL and "k" not in self.model_fields_set
        return max(1, len(pool) // ROWS_EACH) if small else self.k

    def points(self, pool: Pool) -> Numbers:
        """The vectors that are clustered."""
        return prepared(pool.vectors, self.normalise, self.pca, pool.seed)

    def clusters(self, pool: Pool) -> Clusters:
        """Of the pool's vectors."""
        if self not in pool.kept:
            options = self.algorithm, self.number(pool), pool.seed, self.eps, self.min_samples, self.batch_size
            pool.kept[self] = found_by(self.points(pool), *options)
        found: Clusters = pool.kept[self]
        return found

    def middles(self, clusters: Clusters, members: list[Numbers], pool: Pool) -> Numbers:
        """The example nearest to each centre; of an empty cluster the nearest that is not taken yet."""
        middles = [int(group[0]) for group in members if len(group)]
        for centre in (clusters.centres[i] for i, group in enumerate(members) if not len(group)):
            gap = np.linalg.norm(self.points(pool) - centre, axis=1)
            gap[middles] = np.inf
            middles.append(int(gap.argmin()))
        return np.array(middles, np.int64)

    @property
    def order_within(self) -> str:
        """The order in a cluster."""
        usual = {"stream": "random", "proportional": "near", "whole": "file", "centroid": "near"}
        return self.within or usual[self.pick]

    def order(self, clusters: Clusters, pool: Pool, count: int) -> Numbers:
        """Positions as `pick` says."""
        members = members_of(clusters, pool, self.order_within)
        if self.pick == "stream":
            return round_robin(members)
        if self.pick == "proportional":
            return interleaved(members, apportioned(clusters.sizes))
        return whole_groups(members, count) if self.pick == "whole" else self.middles(clusters, members, pool)


def members_of(clusters: Clusters, pool: Pool, within: str) -> list[Numbers]:
    """The positions of each cluster, in the order that is asked for; ties at random."""
    by = {
        "random": pool.draws, "file": pool.file_order, "near": clusters.distances, "far": -clusters.distances,
    }[within]  # fmt: skip
    order = np.lexsort((pool.draws, by, clusters.labels))
    return np.split(order, np.cumsum(clusters.sizes)[:-1])


def round_robin(members: list[Numbers]) -> Numbers:
    """One of each group in turn; groups that are used up are passed over."""
    turn = np.concatenate([np.arange(len(group)) for group in members]) if members else np.zeros(0, np.int64)
    group = np.concatenate([np.full(len(m), g) for g, m in enumerate(members)]) if members else turn
    found: Numbers = np.concatenate(members)[np.lexsort((group, turn))]
    return found


def whole_groups(members: list[Numbers], count: int) -> Numbers:
    """Whole groups, as long as the next one fits the budget; with a budget of everything it is everything."""
    ends = np.cumsum([len(group) for group in members])
    fit = int((ends <= count).sum())
    return np.concatenate([*members[:fit], np.zeros(0, np.int64)]).astype(np.int64)
