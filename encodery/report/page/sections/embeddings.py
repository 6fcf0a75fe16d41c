"""A map of embeddings (`encodery embed -o DIR`): the first two principal components, with the text of each point."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from encodery.core import files
from encodery.core.redact import without_paths
from encodery.core.text import short
from encodery.errors import UserError
from encodery.report.examples import task_of
from encodery.report.page.chart import Chart, Section, Series, spread
from encodery.report.page.data import PageData, below
from encodery.report.page.html import figure, tag
from encodery.tasks.base import Example

POINTS = 2000  # of a map
TEXT = 160  # letters of a text


def section(page: PageData) -> Section | None:
    """One map for each folder of vectors."""
    charts = []
    for number, path in enumerate(below(page.folders, "vectors.npy")):
        try:
            charts.append(_map(page, f"map-{number}", path.parent))
        except (UserError, OSError, ValueError, KeyError, TypeError) as error:
            page.remark(f"{path.parent.name}: its embeddings are not shown, because {without_paths(str(error))}")
    body = tag("div", *map(figure, charts), class_="grid wide")
    return Section("embeddings", "Embeddings", body, charts) if charts else None


def _map(page: PageData, id: str, folder: Path) -> Chart:
    meta: dict[str, Any] = files.read_json(folder / "meta.json")
    vectors = np.load(folder / "vectors.npy", mmap_mode="r", allow_pickle=False)
    ids: list[str] = json.loads((folder / "ids.json").read_text(encoding="utf-8"))
    places = spread(range(len(ids)), POINTS)
    points, kept = plane(np.asarray(vectors[places], dtype=np.float64))
    known = _examples(page, meta)
    series = []
    for label, mine in _by_label([ids[place] for place in places], known).items():
        text = [_hover(ids[places[i]], known, page.text) for i in mine]
        series.append(Series(label, points[mine, 0].tolist(), points[mine, 1].tolist(), kind="points", text=text))
    where = f"{meta.get('task')}:{meta.get('split')}"
    note = (
        f"First two principal components of {meta.get('site')}, layer {meta.get('layer')}: {kept:.0%} of the variance"
    )
    note += f"; {len(places):,} of {len(ids):,} examples." if len(places) < len(ids) else "."
    return Chart(id, f"Embeddings of {where}", "", "", series, bare=True, note=note)


def plane(vectors: Any) -> tuple[Any, float]:
    """Coordinates on the first two principal components, and the share of the variance that they keep."""
    centred = vectors - vectors.mean(axis=0)
    left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    flat = np.zeros((len(vectors), 2))
    width = min(2, len(sizes))
    flat[:, :width] = left[:, :width] * sizes[:width]
    whole = float((sizes**2).sum())
    return flat, float((sizes[:2] ** 2).sum() / whole) if whole else 1.0


def _examples(page: PageData, meta: Mapping[str, Any]) -> dict[str, Example]:
    """Texts and labels by id; nothing where the rows are not the ones that were embedded."""
    tree = {"tasks": [{"name": meta["task"]}], "data": None}
    try:
        task = task_of(tree)
        if task.origin(meta["split"]).digest != meta.get("rows"):
            raise UserError("its rows are other ones now")
        return {example.id: example for example in task.examples(meta["split"])}
    except (UserError, OSError) as error:
        page.remark(f"{meta['task']}: embeddings without texts, because {without_paths(str(error))}")
        return {}


def _by_label(ids: Sequence[str], known: Mapping[str, Example]) -> dict[str, list[int]]:
    groups: dict[str, list[int]] = {}
    for place, id in enumerate(ids):
        label = known[id].label if id in known else None
        groups.setdefault(label if isinstance(label, str) else "examples", []).append(place)
    return dict(sorted(groups.items()))


def _hover(id: str, known: Mapping[str, Example], text: bool) -> str:
    if not text or id not in known:
        return id
    return " | ".join(short(one, TEXT) for one in known[id].texts)
