"""Scores and loss against the radius of an attack, from what `encodery evaluate --attack` keeps."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from encodery.core import files
from encodery.errors import UserError
from encodery.report import stats
from encodery.report.page.chart import Chart, Section, Series
from encodery.report.page.data import PageData, below
from encodery.report.page.html import figure, tag
from encodery.report.robustness import norm_of

Levels = Sequence[Mapping[str, float]]
BAND = "Band: Student's 95 % interval of the mean over seeds; none below three seeds."


def section(page: PageData) -> Section | None:
    """Two charts for each data set and attack: the headline, and the loss."""
    charts: list[Chart] = []
    for number, ((data, attack, norm), (main, models)) in enumerate(_attacks(page).items()):
        for name in dict.fromkeys((main, "loss")):
            series = [_line(label, several, name) for label, several in models.items()]
            title = f"{data} under {attack} ({norm})"
            charts.append(Chart(f"attack-{number}-{name.replace('_', '-')}", title, "radius", name, series, note=BAND))
    if not charts:
        return None
    return Section("robustness", "Robustness", tag("div", *map(figure, charts), class_="grid"), charts)


Key = tuple[str, str, str]
Kept = tuple[str, dict[str, list[Levels]]]


def _attacks(page: PageData) -> dict[Key, Kept]:
    """By data, attack and norm: the headline's name, and the levels of each configuration's seeds."""
    attacks: dict[Key, Kept] = {}
    names = {str(record.path.resolve()): page.group(record) for record in page.records}
    for path in below(page.folders, "*.json"):
        if path.parent.name != "attacks":
            continue
        try:
            stored: dict[str, Any] = files.read_json(path)
            key = (stored["data"], f"{stored['attack']}, {stored['steps']} steps", norm_of(stored))
            _, models = attacks.setdefault(key, (stored["main"], {}))
            for model, levels in stored["models"].items():
                label = names.get(str(Path(model).resolve())) or names.get(str(path.parents[1].resolve()))
                models.setdefault(label or Path(model).name, []).append(levels)
        except (UserError, KeyError, TypeError, AttributeError):
            page.remark(f"{path.parent.parent.name}/attacks/{path.name} is damaged and not shown")
    return attacks


def _line(label: str, several: Sequence[Levels], name: str) -> Series:
    """Mean over seeds, with Student's 95 % interval."""
    by_radius: dict[float, list[float]] = {}
    for levels in several:
        for level in levels:
            if level.get(name) is not None:
                by_radius.setdefault(float(level["radius"]), []).append(float(level[name]))
    radii = sorted(by_radius)
    middle = [stats.mean(by_radius[radius]) for radius in radii]
    low, high = stats.band([by_radius[radius] for radius in radii])
    return Series(label, radii, middle, low=low, high=high)
