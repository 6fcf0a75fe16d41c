"""What clusters of embeddings look like: sizes, labels, words, typical and odd examples, a map; JSON and pictures."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np

from encodery.core import files
from encodery.core.extras import install
from encodery.data import rng
from encodery.errors import UserError
from encodery.report import figures, stats
from encodery.selection.cluster_count import compared
from encodery.selection.cluster_profile import Words, column_counts, label_mix, shared_texts
from encodery.selection.difficulty import Difficulty
from encodery.selectors._clustering import Clusters
from encodery.selectors.base import Numbers, Pool

SHOWN = 3  # nearest and farthest examples of a cluster
SAMPLE = 5000  # rows that the silhouette and the picture are taken from
MAP_ROWS = 20_000  # rows of map.json
LETTERS = 200  # of a text
# Random groupings that the purity by chance is the mean of: at most, and so many that they draw this many rows in all.
DRAWS, FEWEST_DRAWS, DRAWN_ROWS = 200, 10, 2_400_000
Map = Literal["pca", "tsne", "umap"]


@dataclass(frozen=True)
class Options:
    """What an analysis looks at besides the clusters."""

    how: Map = "pca"
    columns: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # column → id → value
    difficulty: Difficulty | None = None
    counts: Sequence[int] = ()  # k to try
    algorithm: Any = "minibatch"
    map_rows: int | None = None


def analyse(clusters: Clusters, points: Numbers, pool: Pool, folder: Path, options: Options) -> dict[str, Any]:
    """Write clusters.json, map.json, clusters.svg (sizes and purity) and map.svg; what is in the first."""
    rows = sample(pool, SAMPLE)
    overview = summary(clusters, points, pool, rows, options)
    folder.mkdir(parents=True, exist_ok=True)
    files.write_atomic(folder / "clusters.json", files.plain_json(overview, indent=1) + "\n")
    sizes = [one["size"] for one in overview["clusters"]]
    purity = [one["purity"] for one in overview["clusters"]]
    files.write_atomic(folder / "clusters.svg", figures.cluster_sizes(sizes, purity))
    shown = sample(pool, options.map_rows or (SAMPLE if options.how == "tsne" else MAP_ROWS))
    flat, explained = flattened(points[shown], options.how, pool.seed)
    files.write_atomic(
        folder / "map.json", files.plain_json(map_of(clusters, pool, shown, flat, explained, options)) + "\n"
    )
    few = flat[:SAMPLE]  # drawn rows: the first are drawn too
    names = [str(pool.examples[i].label) for i in shown[:SAMPLE]]
    picture = figures.cluster_map(few, clusters.labels[shown[:SAMPLE]].tolist(), names, options.how)
    files.write_atomic(folder / "map.svg", picture)
    return overview


def sample(pool: Pool, most: int) -> Numbers:
    """Some rows, drawn by their ids; a smaller sample is the beginning of a larger one."""
    return np.argsort(pool.draws, kind="stable")[:most]


def summary(clusters: Clusters, points: Numbers, pool: Pool, rows: Numbers, options: Options) -> dict[str, Any]:
    sizes = clusters.sizes
    labels = Counter(str(example.label) for example in pool.examples if isinstance(example.label, str))
    each = profiles(clusters, pool, labels, options)
    kept = [one["purity"] * one["size"] for one in each if one["size"]]
    dbscan = options.algorithm == "dbscan"
    tried = compared(points, rows, options.counts, options.algorithm, pool.seed) if not dbscan else []
    everything = np.arange(len(pool))
    return {
        "format": 2, "task": pool.made_from.task, "split": pool.made_from.split,
        "rows": len(pool), "clusters_found": int((sizes > 0).sum()), "empty": int((sizes == 0).sum()),
        "k": None if dbscan else len(sizes), "labels": dict(labels.most_common()),
        "columns": {name: column_counts(values, pool, everything) for name, values in options.columns.items()},
        "size": {"median": float(np.median(sizes)), "largest": int(sizes.max()), "smallest": int(sizes.min())},
        "purity": sum(kept) / len(pool), "purity_by_chance": purity_by_chance(pool, sizes.tolist()),
        "silhouette": silhouette(clusters, points, rows), "silhouette_rows": len(rows),
        **({"difficulty": options.difficulty.of(everything)} if options.difficulty else {}),
        "k_choice": tried, "notes": list(clusters.notes), "clusters": each,
    }  # fmt: skip


def profiles(clusters: Clusters, pool: Pool, labels: Mapping[str, int], options: Options) -> list[dict[str, Any]]:
    """Every cluster; p of the label mixes after Holm's correction for all clusters."""
    words = Words(pool)
    order = np.argsort(clusters.labels, kind="stable")
    members = np.split(order, np.cumsum(clusters.sizes)[:-1])
    each = [about(number, own, clusters, pool, labels, words, options) for number, own in enumerate(members)]
    tested = [one for one in each if one["p"] is not None]
    for one, p in zip(tested, stats.holm([one["p"] for one in tested]), strict=True):
        one["p_holm"] = p
    return each


def about(
    number: int, members: Numbers, clusters: Clusters, pool: Pool, pool_labels: Mapping[str, int], words: Words,
    options: Options,
) -> dict[str, Any]:  # fmt: skip
    """One cluster: its size, labels, words and columns, its most typical and its oddest examples."""
    near = members[np.argsort(clusters.distances[members], kind="stable")]
    labels = Counter(str(pool.examples[i].label) for i in members)
    groups = Counter(str(g) for i in members if (g := genre(pool, int(i))) is not None)
    return {
        "cluster": number, "size": len(members), "purity": max(labels.values(), default=0) / max(len(members), 1),
        "labels": dict(labels.most_common()), **label_mix(labels, pool_labels),
        "groups": dict(groups.most_common(20)), "words": words.typical(members),
        "columns": {name: column_counts(values, pool, members) for name, values in options.columns.items()},
        **shared_texts(pool, members),
        **({"difficulty": options.difficulty.of(members)} if options.difficulty else {}),
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
    texts = [text[:LETTERS] for text in example.texts]
    return {"id": example.id, "label": example.label, "distance": distance, "texts": texts}


def silhouette(clusters: Clusters, points: Numbers, rows: Numbers) -> float | None:
    """Of a sample; None where there is only one cluster."""
    from sklearn.metrics import silhouette_score

    kinds = len(set(clusters.labels[rows].tolist()))
    return float(silhouette_score(points[rows], clusters.labels[rows])) if 1 < kinds < len(rows) else None


def require_map(how: Map) -> None:
    """UMAP is an extra: said before vectors and clusters are made."""
    if how == "umap" and find_spec("umap") is None:
        raise UserError(f"--map umap: needs umap-learn: {install('umap')}; pca and tsne need nothing")


def flattened(points: Numbers, how: Map, seed: int) -> tuple[Numbers, float | None]:
    """Two numbers for each point; of PCA also the share of the variance that they hold."""
    if how == "umap":
        from umap import UMAP

        return np.asarray(UMAP(random_state=seed).fit_transform(points)), None
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    if how == "pca":
        model = PCA(2, random_state=seed)
        flat = np.asarray(model.fit_transform(points))
        return flat, float(model.explained_variance_ratio_.sum())
    perplexity = min(30.0, max(2.0, (len(points) - 1) / 3))
    return np.asarray(TSNE(2, perplexity=perplexity, init="pca", random_state=seed).fit_transform(points)), None


def map_of(
    clusters: Clusters, pool: Pool, rows: Numbers, flat: Numbers, explained: float | None, options: Options
) -> dict[str, Any]:
    """The map column by column; `of` says how many rows it was thinned from."""
    ids = [pool.ids[i] for i in rows]
    columns: dict[str, list[Any]] = {"label": [_plain(pool.examples[i].label) for i in rows]}
    columns |= {name: [values[id] for id in ids] for name, values in options.columns.items()}
    if options.difficulty:
        hard = options.difficulty
        columns["correctness"] = [_correctness(value) for value in hard.error[rows]]
        columns["error"] = [_short(value) for value in hard.error[rows]]
        columns["confidence"] = [_short(value) for value in hard.confidence[rows]]
    return {
        "format": 1, "how": options.how, "explained": explained, "of": len(pool), "ids": ids,
        "x": [_short(value) for value in flat[:, 0]], "y": [_short(value) for value in flat[:, 1]],
        "cluster": clusters.labels[rows].tolist(), "columns": columns,
        "texts": [" | ".join(pool.examples[i].texts)[:LETTERS] for i in rows],
    }  # fmt: skip


def _plain(label: Any) -> Any:
    return ", ".join(label) if isinstance(label, tuple) else label


def _correctness(error: float) -> str | None:
    """Of most runs; None where no run tells."""
    return None if np.isnan(error) else "wrong" if error > 0.5 else "correct"


def _short(value: float) -> float | None:
    """Five digits are more than a screen has."""
    return float(f"{value:.5g}") if np.isfinite(value) else None


def purity_by_chance(pool: Pool, sizes: Sequence[int]) -> float:
    """The mean purity of groups of these sizes whose members are drawn at random: what a figure must beat.

    One grouping alone is off by several hundredths in a small pool; a large one needs fewer for the same precision.
    """
    names, codes = np.unique([str(example.label) for example in pool.examples], return_inverse=True)
    first = np.repeat(np.arange(len(sizes)), sizes) * len(names)  # of the cells (group, label), those of a row's group
    pure = []
    for draw in range(min(DRAWS, max(FEWEST_DRAWS, DRAWN_ROWS // len(pool)))):
        bits = rng.bits(rng.key(pool.seed, "purity", draw), pool.hashes, 1)[:, 0]
        cells, counts = np.unique(first + codes[np.argsort(bits, kind="stable")], return_counts=True)
        starts = np.unique(cells // len(names), return_index=True)[1]
        pure.append(int(np.maximum.reduceat(counts, starts).sum()))
    return float(np.mean(pure)) / len(pool)
