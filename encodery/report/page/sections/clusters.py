"""Clusters of embeddings (`encodery select … --analyse`): choice of k, each cluster beside chance, a map to search."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from encodery.core import files
from encodery.core.redact import without_paths
from encodery.core.text import counted, short
from encodery.errors import UserError
from encodery.report.page.chart import Chart, Dots, Picture, Section, Series
from encodery.report.page.data import PageData, below, json_lines
from encodery.report.page.html import Html, choice, dots, figure, join, paragraphs, table, tag
from encodery.report.page.point_map import POINTS
from encodery.report.page.row_marks import of_runs

FOLDERS = 6
CLUSTERS = 200  # of a table
WORDS = 8
SHOWN = 3  # nearest and farthest rows of a cluster
SURE = 0.05
VALUES = 4  # of a breakdown in a cell
MAPS = {"pca": "First two principal components", "tsne": "t-SNE", "umap": "UMAP"}
NAMED = 60  # clusters with a name on the map
LETTERS = 28  # of such a name

Stored = Mapping[str, Any]


def section(page: PageData) -> Section | None:
    """A panel for each folder with clusters."""
    paths = list(below(page.folders, "clusters.json"))
    if len(paths) > FOLDERS:
        page.remark(f"Clusters: the first {FOLDERS} of {len(paths)} folders are shown; give fewer to see the others")
    panels, pictures = [], []
    for number, path in enumerate(paths[:FOLDERS]):
        try:
            stored: Stored = files.read_json(path)
            drawn, body = _folder(page, f"clusters-{number}", path.parent, stored, POINTS // min(len(paths), FOLDERS))
        except (UserError, OSError, KeyError, TypeError, AttributeError, ValueError) as error:
            reason = without_paths(short(str(error), 200))
            page.remark(f"{path.parent.name}/clusters.json is damaged and not shown ({reason})")
            continue
        pictures += drawn
        panels.append((path.resolve().parent.name, body))
    return Section("clusters", "Clusters", choice("clusters-folder", "Folder", panels), pictures) if panels else None


def _folder(page: PageData, id: str, folder: Path, stored: Stored, most: int) -> tuple[list[Picture], Html]:
    meta = _meta(folder, stored)
    charts: list[Chart] = [one for one in _of_k(id, stored) if one]
    chart = _mix(id, stored, _pool(stored, meta))
    charts += [chart] if chart else []
    drawn = _map(page, id, folder, stored, meta, most)
    parts: list[str] = [paragraphs(told(stored, meta), "results")]
    parts += [dots(drawn)] if drawn else []
    parts += [tag("div", *map(figure, charts), class_="grid"), _table(page, id, stored, meta, folder, drawn)]
    pictures: list[Picture] = [*([drawn] if drawn else []), *charts]
    return pictures, join(*parts, _members(page, id, stored))


def _meta(folder: Path, stored: Stored) -> Stored:
    """The selection's own file; what was clustered is in both."""
    path = folder / "selection.meta.json"
    found: Stored = files.read_json(path) if path.is_file() else {}
    return {"task": stored.get("task"), "split": stored.get("split"), **found}


def told(stored: Stored, meta: Stored) -> list[str]:
    """Whether the clusters say anything, in words."""
    where = f"{meta.get('task')}:{meta.get('split')}" if meta.get("task") else "the pool"
    size = stored["size"]
    lines = [
        f"{stored['rows']:,} rows of {where} in {stored['clusters_found']} clusters of {size['smallest']:,} to "
        f"{size['largest']:,} rows (median {size['median']:g})."
    ]
    purity, chance = float(stored["purity"]), float(stored["purity_by_chance"])
    sentence = "about as chance does" if purity < chance + 0.02 else "better than chance"
    lines.append(
        f"They separate the labels {sentence}: purity {purity:.3f}, of random groups of these sizes {chance:.3f} on "
        "average."
    )
    shape = stored.get("silhouette")
    if shape is not None:
        words = "well apart" if shape > 0.5 else "overlapping" if shape > 0.1 else "barely separated"
        lines.append(f"The clusters are {words} (silhouette {shape:.3f}; 1 is best, 0 is none).")
    return [*lines, *(without_paths(str(note)) for note in stored.get("notes", ()))]


# The choice of k


def _of_k(id: str, stored: Stored) -> list[Chart | None]:
    tried = sorted(stored.get("k_choice") or (), key=lambda one: one["k"])
    if len(tried) < 2:
        return []
    k = stored.get("k")
    chosen = f" Chosen: {k}." if k else ""
    notes = {
        "silhouette": "How far clusters are apart, 1 is best; the mean of new clusterings with several seeds.",
        "stability": "Agreement of the clusters of different seeds (mean adjusted Rand index, ± sd); 1 is the same.",
        "inertia": "Mean squared distance of a row to the centre of its cluster; look for the bend.",
    }
    return [_over_k(id, tried, name, note + chosen, k) for name, note in notes.items()]


def _over_k(id: str, tried: Sequence[Stored], name: str, note: str, chosen: int | None) -> Chart | None:
    scored = [one for one in tried if one.get(name) is not None]
    if len(scored) < 2:
        return None
    x, y = [one["k"] for one in scored], [float(one[name]) for one in scored]
    spread = [float(one.get(f"{name}_sd") or 0.0) for one in scored]
    low, high = [], []
    if any(spread):
        low, high = ([value + side * sd for value, sd in zip(y, spread, strict=True)] for side in (-1, 1))
    line = Series(name, x, y, low=low, high=high)
    marks = [(k, value, "chosen") for k, value in zip(x, y, strict=True) if k == chosen]
    title = f"{name.capitalize()} by number of clusters"
    return Chart(f"{id}-{name}", title, "k", name, [line], note=note, marks=marks)


# Each cluster


def _pool(stored: Stored, meta: Stored) -> dict[str, float]:
    """The share of each label in the whole pool."""
    shares = (meta.get("labels") or {}).get("pool")
    if shares:
        return dict(shares)
    counts: dict[str, float] = dict(stored.get("labels") or {})
    if not counts:
        for one in stored["clusters"]:
            for name, count in one["labels"].items():
                counts[name] = counts.get(name, 0) + count
    whole = sum(counts.values()) or 1
    return {name: count / whole for name, count in counts.items()}


def _mix(id: str, stored: Stored, pool: Mapping[str, float]) -> Chart | None:
    """The share of each label: of all rows, then cluster by cluster, largest first."""
    clusters = sorted((one for one in stored["clusters"] if one["size"]), key=lambda one: -one["size"])[:30]
    names = list(dict.fromkeys(name for one in clusters for name in one["labels"]))
    if len(names) < 2 or len(names) > 12:
        return None
    x = ["all rows", *(f"#{one['cluster']}" for one in clusters)]
    shares = {
        name: [pool.get(name, 0.0), *(one["labels"].get(name, 0) / one["size"] for one in clusters)] for name in names
    }
    series = [Series(name, x, shares[name], kind="bars") for name in names]
    note = "The first bar is what chance gives."
    note += " The largest 30 clusters." if len(stored["clusters"]) > 30 else ""
    title = "Labels of each cluster"
    return Chart(f"{id}-mix", title, "", "share", series, y_range=(0, 1.02), note=note, stacked=True)


def _table(page: PageData, id: str, stored: Stored, meta: Stored, folder: Path, drawn: Dots | None) -> Html:
    clusters = sorted(stored["clusters"], key=lambda one: -one["size"])
    pool, errors = _pool(stored, meta), _errors(page, meta, folder)
    columns = list(dict.fromkeys(name for one in clusters for name in _columns(one)))
    words = any(one.get("words") for one in clusters) and page.text
    shared, hard = (
        any(one.get("shared") for one in clusters),
        any(one["cluster"] in errors or one.get("difficulty") for one in clusters),
    )
    header = ["cluster", "rows", "purity", "labels against chance", *(["typical words"] if words else []), *columns]
    header += ["shared texts"] * shared + (["error", "confidence"] if hard else [])
    lines, keys = [], []
    for cluster in clusters[:CLUSTERS]:
        cells: list[tuple[str, Any]] = [
            (_number(cluster["cluster"], drawn), cluster["cluster"]), (f"{cluster['size']:,}", cluster["size"]),
            (f"{cluster['purity']:.2f}", cluster["purity"]), (_against(cluster, pool), None),
        ]  # fmt: skip
        cells += [(_words(cluster), None)] if words else []
        cells += [(_breakdown(_columns(cluster).get(name, {})), None) for name in columns]
        cells += [(f"{cluster.get('shared', 0):,}", cluster.get("shared", 0))] if shared else []
        cells += _difficulty(cluster, errors) if hard else []
        lines.append([cell for cell, _ in cells])
        keys.append([key for _, key in cells])
    numbers = ["rows", "purity", "shared texts", "error", "confidence"]
    caption = "All clusters" if len(clusters) <= CLUSTERS else f"The largest {CLUSTERS} of {len(clusters)} clusters"
    if any(one.get("p_holm") is not None for one in clusters):
        caption += "; * is a label mix unlike the pool's (χ², Holm, p < 0.05)"
    return table(header, lines, id=f"{id}-table", caption=caption, numbers=numbers, sort=keys, search="Search clusters")


def _number(cluster: int, drawn: Dots | None) -> str:
    """`#3`, which shows the cluster on the map, where it is there."""
    if drawn is None or str(cluster) not in drawn.columns["cluster"]:
        return f"#{cluster}"
    spoken = f"Show cluster {cluster} on the map"
    return tag(
        "button", f"#{cluster}", type="button", data_map=drawn.id, data_find=f"cluster:{cluster}", aria_label=spoken
    )


def _columns(cluster: Stored) -> dict[str, Mapping[str, int]]:
    named = cluster.get("columns")
    if named is not None:
        return dict(named)
    return {"group": cluster["groups"]} if cluster.get("groups") else {}


def _against(cluster: Stored, pool: Mapping[str, float]) -> Html:
    """`positive 80 % (×1.6)`: the share of each label, and how that is to the pool's."""
    size = max(cluster["size"], 1)
    ranked = sorted(cluster["labels"].items(), key=lambda pair: -pair[1])[:VALUES]
    parts = []
    for name, count in ranked:
        share, usual = count / size, pool.get(name, 0.0)
        parts.append(f"{name} {share:.0%}" + (f" (×{share / usual:.1f})" if usual else ""))
    p = cluster.get("p_holm")
    chance = "" if p is None else " *" if p < SURE else " (as by chance)"
    return tag("p", ", ".join(parts) + chance, class_="aside")


def _words(one: Stored) -> Html:
    return tag("p", ", ".join(str(word["word"]) for word in (one.get("words") or ())[:WORDS]))


def _breakdown(counts: Mapping[str, int]) -> Html:
    ranked = sorted(counts.items(), key=lambda pair: -pair[1])
    whole = sum(counts.values()) or 1
    rest = f", {len(ranked) - VALUES} more" if len(ranked) > VALUES else ""
    text = ", ".join(f"{short(name, 30)} {count / whole:.0%}" for name, count in ranked[:VALUES])
    return tag("p", text + rest, class_="aside")


def _difficulty(one: Stored, errors: Mapping[int, tuple[float, float]]) -> list[tuple[str, Any]]:
    """Error and confidence: stored ones, else those of the runs of this page."""
    own = one.get("difficulty") or {}
    pair = (own.get("error"), own.get("confidence")) if own else errors.get(one["cluster"], (None, None))
    return [("" if value is None else f"{value:.2f}", value) for value in pair]


def _errors(page: PageData, meta: Stored, folder: Path) -> dict[int, tuple[float, float]]:
    """Mean error and confidence of each cluster, from runs of the same task that recorded dynamics."""
    if meta.get("split") != "train":
        return {}
    marks = next((one for one in of_runs(page) if one.task == meta.get("task")), None)
    where = _cluster_of(folder) if marks else {}
    if not marks or not where:
        return {}
    by_cluster: dict[int, list[int]] = {}
    for place, example in enumerate(marks.examples):
        if example.id in where:
            by_cluster.setdefault(where[example.id], []).append(place)
    wrong = 1 - marks.correctness
    return {
        cluster: (float(np.mean(wrong[places])), float(np.mean(marks.confidence[places])))
        for cluster, places in by_cluster.items()
    }


def _cluster_of(folder: Path) -> dict[str, int]:
    """The cluster of each row that was chosen."""
    rows = json_lines(folder / "selection.jsonl") if (folder / "selection.jsonl").is_file() else []
    return {str(row["id"]): int(row["cluster"]) for row in rows if row.get("cluster") is not None}


def _members(page: PageData, id: str, stored: Stored) -> Html:
    """The most typical and the oddest rows of each cluster; without texts their ids."""
    panels = []
    for cluster in sorted(stored["clusters"], key=lambda one: -one["size"])[:CLUSTERS]:
        rows = [
            [kind, str(row["id"]), *([_texts(row)] if page.text else []), str(row["label"]), f"{row['distance']:.3f}"]
            for kind in ("nearest", "farthest")
            for row in cluster.get(kind, ())[:SHOWN]
        ]
        if not rows:
            continue
        header = ["which", "id", *(["text"] if page.text else []), "label", "distance"]
        caption = f"Cluster #{cluster['cluster']}: rows nearest to its centre, and farthest from it"
        name = f"#{cluster['cluster']} ({counted(cluster['size'], 'row')})"
        panels.append(
            (name, table(header, rows, id=f"{id}-rows-{cluster['cluster']}", caption=caption, numbers=["distance"]))
        )
    return choice(f"{id}-rows", "Cluster", panels) if panels else Html("")


def _texts(row: Stored) -> Html:
    return join(*(tag("p", str(text)) for text in row.get("texts", ())))


# The map


def _map(page: PageData, id: str, folder: Path, stored: Stored, meta: Stored, most: int) -> Dots | None:
    path = folder / "map.json"
    if not path.is_file():
        page.remark(
            f"{folder.name}: has no map.json (it is of an older version); run `encodery select --analyse` again"
        )
        return None
    drawn = files.read_json(path)
    places = (
        range(len(drawn["ids"]))
        if len(drawn["ids"]) <= most
        else np.linspace(0, len(drawn["ids"]) - 1, most).astype(int)
    )
    ids = [str(drawn["ids"][place]) for place in places]
    columns: dict[str, Sequence[Any]] = {"cluster": [f"{drawn['cluster'][place]}" for place in places]}
    for name, values in (drawn.get("columns") or {}).items():
        columns[name] = [_value(values[place]) for place in places]
    columns = {**_of_dynamics(page, meta, ids), **columns}  # stored marks are of the runs that were named then
    texts = drawn.get("texts") if page.text else None
    how = MAPS.get(drawn.get("how"), "A map")
    near = ""
    if drawn.get("how") in ("tsne", "umap"):
        near = "; neighbours are alike, but how far groups are apart means little"
    kept = f", which keep {drawn['explained']:.0%} of the variance" if drawn.get("explained") else ""
    return Dots(
        f"{id}-map", f"{folder.resolve().name}: map of {drawn.get('of', len(ids)):,} rows", ids,
        [float(drawn["x"][place]) for place in places], [float(drawn["y"][place]) for place in places],
        {name: columns[name] for name in sorted(columns, key=lambda name: name != "cluster")},
        texts=[str(texts[place]) for place in places] if texts else (),
        note=f"{how}{kept}. Axes have no unit{near}.", of=drawn.get("of"), names=_names(page, stored, drawn, places),
    )  # fmt: skip


def _names(page: PageData, stored: Stored, drawn: Stored, places: Iterable[int]) -> list[tuple[float, float, str]]:
    """`#3 film, actor` in the middle of each cluster's points, the largest first."""
    where = np.array([drawn["cluster"][place] for place in places])
    x, y = (np.array([float(drawn[axis][place]) for place in places]) for axis in "xy")
    names = []
    for cluster in sorted(stored["clusters"], key=lambda cluster: -cluster["size"])[:NAMED]:
        mine = where == cluster["cluster"]
        words = ", ".join(str(word["word"]) for word in (cluster.get("words") or ())[:2]) if page.text else ""
        if mine.any():
            text = short(f"#{cluster['cluster']} {words}".strip(), LETTERS)
            names.append((float(np.median(x[mine])), float(np.median(y[mine])), text))
    return names


def _value(value: Any) -> str | float | None:
    if value is None or isinstance(value, float):
        return value
    return str(value)


def _of_dynamics(page: PageData, meta: Stored, ids: Sequence[str]) -> dict[str, Sequence[Any]]:
    """Correctness and confidence of the points, where a run of the page recorded dynamics of the same rows."""
    marks = next((one for one in of_runs(page) if one.task == meta.get("task")), None)
    if marks is None or meta.get("split") != "train":
        return {}
    at = {example.id: place for place, example in enumerate(marks.examples)}
    places = [at.get(id) for id in ids]
    if not any(place is not None for place in places):
        return {}
    right = [None if p is None else "correct" if marks.correctness[p] >= 0.5 else "wrong" for p in places]
    return {"correctness": right, "confidence": [None if p is None else float(marks.confidence[p]) for p in places]}
