"""Clusters of vectors, and what to say when they are badly formed."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from encodery.errors import UserError
from encodery.selectors.base import Numbers

ROWS_EACH = 10  # of a cluster, where there are few rows
UNEVEN = 20  # largest cluster against the median one

Algorithm = Literal["minibatch", "kmeans", "dbscan"]


@dataclass(frozen=True)
class Clusters:
    """The cluster of each point, the centres, and each point's distance to its own centre."""

    labels: Numbers
    centres: Numbers
    distances: Numbers
    notes: tuple[str, ...]

    @property
    def sizes(self) -> Numbers:
        """Points of each cluster; empty ones have 0."""
        return np.bincount(self.labels, minlength=len(self.centres))


def found_by(
    points: Numbers, algorithm: Algorithm, k: int, seed: int, eps: float, min_samples: int, batch_size: int
) -> Clusters:
    if algorithm == "dbscan":
        return _dbscan(points, eps, min_samples)
    if k > len(points):
        fewer = f"ask for fewer, such as --selector.k {max(1, len(points) // ROWS_EACH)}"
        raise UserError(f"selector.k: {k} clusters of {len(points):,} rows; {fewer}")
    from sklearn.cluster import KMeans, MiniBatchKMeans

    if algorithm == "kmeans":
        model = KMeans(k, n_init=3, random_state=seed)
    else:
        model = MiniBatchKMeans(k, batch_size=batch_size, n_init=3, reassignment_ratio=0.01, random_state=seed)
    model.fit(points)
    labels, centres = model.labels_.astype(np.int64), model.cluster_centers_
    return Clusters(labels, centres, distances_to(points, centres, labels), remarks(np.bincount(labels, minlength=k)))


def _dbscan(points: Numbers, eps: float, min_samples: int) -> Clusters:
    """Points that belong to no cluster make one of their own, the last."""
    from sklearn.cluster import DBSCAN

    labels = DBSCAN(eps=eps, min_samples=min_samples).fit(points).labels_.astype(np.int64)
    kinds = int(labels.max()) + 1
    lost = int((labels < 0).sum())
    labels = np.where(labels < 0, kinds, labels)
    centres = np.stack([points[labels == c].mean(0) for c in range(kinds + bool(lost))])
    notes = [f"{lost:,} of {len(points):,} rows belong to no cluster; they are cluster {kinds}"] if lost else []
    if kinds < 2:
        notes.append(f"DBSCAN found {kinds} clusters: another eps (now {eps:g}) may fit these vectors better")
    sizes = np.bincount(labels, minlength=len(centres))
    return Clusters(labels, centres, distances_to(points, centres, labels), (*notes, *remarks(sizes)))


def distances_to(points: Numbers, centres: Numbers, labels: Numbers, block: int = 65536) -> Numbers:
    """Each point's distance to its own centre, in blocks of bounded memory."""
    distances = np.empty(len(points))
    for i in range(0, len(points), block):
        gap = points[i : i + block] - centres[labels[i : i + block]]
        distances[i : i + block] = np.sqrt(np.einsum("ij,ij->i", gap, gap, dtype=np.float64))
    return distances


def remarks(sizes: Numbers) -> tuple[str, ...]:
    """Empty and very uneven clusters, as sentences."""
    empty, median = int((sizes == 0).sum()), float(np.median(sizes))
    notes = [f"{empty} of {len(sizes)} clusters are empty"] if empty else []
    if sizes.max() > UNEVEN * max(median, 1e-9):
        notes.append(f"clusters are uneven: the largest has {sizes.max():,} rows, the median one {median:g}")
    return tuple(notes)
