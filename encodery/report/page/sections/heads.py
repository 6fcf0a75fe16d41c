"""Attention heads: how much each task hangs on each of them (`encodery heads`), and how alike tasks are (`gradts`)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from encodery.core import files
from encodery.core.redact import without_paths
from encodery.errors import UserError
from encodery.report.page.chart import Heat, Section
from encodery.report.page.data import PageData, below
from encodery.report.page.html import heat, join, tag
from encodery.tasks.forms import metrics

MAPS = 60  # head maps of a page: ten tasks with six seeds


def section(page: PageData) -> Section | None:
    """A map for each task, and the correlations of tasks: stored ones, or those of the maps themselves."""
    maps = _maps(page)
    drawn = [_importance(f"heads-{number}", *one) for number, one in enumerate(maps[:MAPS])]
    if len(maps) > MAPS:
        page.remark(f"Heads: the first {MAPS} of {len(maps)} maps are drawn; give fewer folders to see the others")
    alike = _stored(page) or _compared(maps)
    if not drawn and not alike:
        return None
    body = join(tag("div", *map(heat, alike), class_="grid"), tag("div", *map(heat, drawn), class_="grid"))
    return Section("heads", "Heads", body, [*alike, *drawn])


def _maps(page: PageData) -> list[tuple[str, str, Any]]:
    """Title, name and matrix [layers, heads] of each folder."""
    maps = []
    for path in below(page.folders, "task.npy"):
        try:
            meta: dict[str, Any] = files.read_json(path.parent / "meta.json")
            matrix = np.load(path, allow_pickle=False)
            if matrix.ndim != 2 or not np.isfinite(matrix).all():
                raise ValueError(f"not a matrix of numbers: {matrix.shape}")
            maps.append((f"{meta['task']}:{meta['split']}, {meta['estimator']}", path.parent.name, matrix))
        except (UserError, OSError, ValueError, KeyError, TypeError) as error:
            page.remark(f"{path.parent.name}: its heads are not shown, because {without_paths(str(error))}")
    return maps


def _importance(id: str, title: str, folder: str, matrix: Any) -> Heat:
    top = float(np.abs(matrix).max()) or 1.0
    shares = (matrix / top).tolist()
    texts = [[f"{100 * value:.0f}" for value in line] for line in shares]
    rows = [f"layer {i + 1}" for i in range(len(shares))]
    columns = [str(i + 1) for i in range(len(shares[0]))]
    note = f"{folder}: in % of the most important head."
    return Heat(id, title, rows, columns, shares, texts, x="head", low=0.0, high=1.0, note=note)


def _compared(maps: Sequence[tuple[str, str, Any]]) -> list[Heat]:
    """Rank correlations of the maps of equal encoders."""
    shapes = {matrix.shape for _, _, matrix in maps}
    names = [title for title, _, _ in maps]
    if len(maps) < 2 or len(shapes) != 1 or len(set(names)) < len(names):
        return []
    flat = [matrix.reshape(-1).astype(np.float64) for _, _, matrix in maps]
    values = [[metrics.spearman(a, b) for b in flat] for a in flat]
    return [_alike("heads-alike", "Tasks by their heads: Spearman's correlation", names, values)]


def _stored(page: PageData) -> list[Heat]:
    """The matrices of `encodery gradts`, one for each seed."""
    drawn: list[Heat] = []
    for number, path in enumerate(below(page.folders, "gradts.json")):
        try:
            stored: dict[str, Any] = files.read_json(path)
            for seed, one in stored["matrices"].items():
                title = f"{_name(path)}: {one['kind']} correlation of tasks, seed {seed}"
                drawn.append(_alike(f"alike-{number}-{len(drawn)}", title, one["names"], one["values"]))
        except (UserError, KeyError, TypeError, AttributeError, ValueError) as error:
            page.remark(f"{_name(path)}/gradts.json is damaged and not shown ({without_paths(str(error))})")
    return drawn


def _name(path: Path) -> str:
    return path.resolve().parent.name


def _alike(id: str, title: str, names: Sequence[str], values: Sequence[Sequence[float]]) -> Heat:
    texts = [[f"{value:.2f}" for value in line] for line in values]
    spelled = [without_paths(str(name)) for name in names]
    return Heat(id, title, spelled, spelled, values, texts, low=0.0, high=1.0)
