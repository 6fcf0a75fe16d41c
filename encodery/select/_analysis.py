"""What clusters of embeddings look like: sizes, labels, typical and odd examples, a map; as JSON and pictures."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from encodery import files
from encodery.data import draws
from encodery.errors import UserError
from encodery.report import figures
from encodery.select._clustering import Clusters
from encodery.select.base import Numbers, Pool

SHOWN = 3  # nearest and farthest examples of a cluster
SAMPLE = 5000  # rows that the silhouette and the map are taken from
Map = Literal["pca", "tsne", "umap"]


def analyse(clusters: Clusters, points: Numbers, pool: Pool, folder: Path, how: Map = "pca") -> dict[str, Any]:
    """Write clusters.json, clusters.svg (sizes and purity) and map.svg; what stands in the first."""
    rows = sample(pool)
    found = summary(clusters, points, pool, rows)
    folder.mkdir(parents=True, exist_ok=True)
    files.write_atomic(folder / "clusters.json", json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    sizes = [one["size"] for one in found["clusters"]]
    purity = [one["purity"] for one in found["clusters"]]
    files.write_atomic(folder / "clusters.svg", figures.cluster_sizes(sizes, purity))
    flat = flattened(points[rows], how, pool.seed)
    names = [str(pool.examples[i].label) for i in rows]
    files.write_atomic(folder / "map.svg", figures.cluster_map(flat, clusters.labels[rows].tolist(), names, how))
    return found


def sample(pool: Pool) -> Numbers:
    """Some rows, drawn by their ids."""
    return np.argsort(pool.draws, kind="stable")[:SAMPLE]


def summary(clusters: Clusters, points: Numbers, pool: Pool, rows: Numbers) -> dict[str, Any]:
    """The figures."""
    sizes = clusters.sizes
    each = [about(i, clusters, pool) for i in range(len(sizes))]
    kept = [one["purity"] * one["size"] for one in each if one["size"]]
    return {
        "rows": len(pool), "clusters_found": int((sizes > 0).sum()), "empty": int((sizes == 0).sum()),
        "size": {"median": float(np.median(sizes)), "largest": int(sizes.max()), "smallest": int(sizes.min())},
        "purity": sum(kept) / len(pool), "purity_by_chance": purity_by_chance(pool, sizes.tolist()),
        "silhouette": silhouette(clusters, points, rows), "notes": list(clusters.notes), "clusters": each,
    }  # fmt: skip


def about(number: int, clusters: Clusters, pool: Pool) -> dict[str, Any]:
    """One cluster: its size, labels and groups, its most typical and its oddest examples."""
    members = np.flatnonzero(clusters.labels == number)
    near = members[np.argsort(clusters.distances[members], kind="stable")]
    labels = Counter(str(pool.examples[i].label) for i in members)
    groups = Counter(str(g) for i in members if (g := genre(pool, int(i))) is not None)
    return {
        "cluster": number, "size": len(members), "purity": max(labels.values(), default=0) / max(len(members), 1),
        "labels": dict(labels.most_common()), "groups": dict(groups.most_common(20)),
        "nearest": [shown(pool, i, clusters) for i in near[:SHOWN]],
        "farthest": [shown(pool, i, clusters) for i in near[::-1][:SHOWN]],
    }  # fmt: skip


def genre(pool: Pool, place: int) -> str | None:
    """Where a row comes from, if its task says so."""
    example = pool.examples[place]
    named = example.extra.get("genre")
    return example.group if named is None else str(named)


def shown(pool: Pool, place: int, clusters: Clusters) -> dict[str, Any]:
    """An example for people."""
    example = pool.examples[place]
    distance = float(clusters.distances[place])
    return {"id": example.id, "label": example.label, "distance": distance, "texts": [t[:200] for t in example.texts]}


def silhouette(clusters: Clusters, points: Numbers, rows: Numbers) -> float | None:
    """Of a sample; None where there is only one cluster."""
    from sklearn.metrics import silhouette_score

    kinds = len(set(clusters.labels[rows].tolist()))
    return float(silhouette_score(points[rows], clusters.labels[rows])) if 1 < kinds < len(rows) else None


def flattened(points: Numbers, how: Map, seed: int) -> Numbers:
    """Two numbers for each point."""
    if how == "umap":
        try:
            from umap import UMAP
        except ImportError:
            raise UserError("--map umap: needs `pip install umap-learn`; pca and tsne need nothing") from None
        return np.asarray(UMAP(random_state=seed).fit_transform(points))
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    if how == "pca":
        return np.asarray(PCA(2, random_state=seed).fit_transform(points))
    perplexity = min(30.0, max(2.0, (len(points) - 1) / 3))
    return np.asarray(TSNE(2, perplexity=perplexity, init="pca", random_state=seed).fit_transform(points))


def purity_by_chance(pool: Pool, sizes: Sequence[int]) -> float:
    """The purity of clusters of these sizes whose members are drawn at random: what a figure must beat."""
    order = np.argsort(draws.bits(draws.key(pool.seed, "purity"), pool.hashes, 1)[:, 0], kind="stable")
    parts = np.split(order, np.cumsum(sizes)[:-1])
    best = [max(Counter(str(pool.examples[i].label) for i in part).values(), default=0) for part in parts]
    return sum(best) / len(pool)
