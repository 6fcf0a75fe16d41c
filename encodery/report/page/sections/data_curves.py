"""Learning curves over data, from the folders of `encodery curve`: mean over seeds with its 95 % interval."""

from pathlib import Path
from typing import Any

from encodery.core import files
from encodery.core.redact import without_paths
from encodery.core.text import counted
from encodery.errors import UserError
from encodery.report import stats
from encodery.report.data_curves import Curves, Point, area_text, needed_text
from encodery.report.page.chart import Chart, Section, Series
from encodery.report.page.data import PageData, below
from encodery.report.page.html import Html, figure, join, table, tag


def section(page: PageData) -> Section | None:
    """Every curve.json at and below the folders."""
    charts: list[Chart] = []
    parts: list[str] = []
    for number, path in enumerate(below(page.folders, "curve.json")):
        try:
            curves = read(path)
        except (UserError, KeyError, TypeError, AttributeError) as error:
            page.remark(f"{path.parent.name}/curve.json is damaged and not shown ({without_paths(str(error))})")
            continue
        mine = [_chart(curves, f"learning-{number}-{i}", *panel) for i, panel in enumerate(_panels(curves))]
        charts += mine
        about = tag("p", without_paths(f"{path.parent.name}: {'; '.join(curves.about)}"), class_="note")
        parts += [about, tag("div", *map(figure, mine), class_="grid"), _table(curves, f"learning-{number}-table")]
    return Section("learning", "Learning curves", join(*parts), charts) if charts else None


def read(path: Path) -> Curves:
    stored: dict[str, Any] = files.read_json(path)
    points = [Point(**{**one, "alarms": tuple(one.get("alarms", ()))}) for one in stored["points"]]
    main = {one["data"]: one["metric"] for one in reversed(stored["curves"])}  # the first of each is the headline
    first = stored["curves"][0]["data"] if stored["curves"] else ""
    return Curves(points, first, main, tuple(stored["about"]), dict(stored.get("cautions", {})))


def _panels(curves: Curves) -> list[tuple[str, str, str]]:
    return [(data, metric, match) for data, metric in curves.panels for match in curves.matches]


def _chart(curves: Curves, id: str, data: str, metric: str, match: str) -> Chart:
    series = []
    for method in curves.methods:
        line = curves.line(method, match, data, metric)
        if not line:
            continue
        x = [100 * fraction for fraction, _ in line]
        middle = [stats.mean(values) for _, values in line]
        low, high = stats.band([values for _, values in line])
        text = [counted(len(values), "seed") for _, values in line]
        series.append(Series(method, x, middle, low=low, high=high, text=text))
    note = "Band: Student's 95 % interval of the mean over seeds; none below three seeds."
    return Chart(id, f"{curves.label(data)}, {match}-matched", "% of the training set", metric, series, note=note)


def _table(curves: Curves, id: str) -> Html:
    header = ["method", "data", "metric", "matched by", "area", "99 % of full at"]
    rows = []
    for data, metric, match in _panels(curves):
        for method in curves.methods:
            line = curves.line(method, match, data, metric)
            if line:
                rows.append([method, curves.label(data), metric, match, area_text(line), needed_text(line, metric)])
    return table(header, rows, id=id, caption="Mean height of each curve, and the data it needs", numbers=header[-2:])
