"""HANS: the share of right answers by heuristic, beside the 50 % that guessing gets, and every subcase."""

from collections.abc import Mapping, Sequence
from typing import Any

from encodery.report import stats
from encodery.report.groups import Row
from encodery.report.page.chart import Chart, Section, Series
from encodery.report.page.data import PageData
from encodery.report.page.html import Html, figure, join, table

GUESSING = 0.5
SIDES = ("entailed", "non_entailed")
CONFIGURATIONS = 8


def section(page: PageData) -> Section | None:
    """Bars and a table for each data set with heuristics."""
    charts: list[Chart] = []
    parts: list[str] = []
    for number, data in enumerate(data for data in page.data if "hans" in data):
        best = page.rows_of(data)[:CONFIGURATIONS]
        reports = [(row, those) for row in best if (those := page.beside_answers(row, ".report.json", SIDES))]
        if reports:
            label = reports[0][0].label
            chart = _bars(page, f"hans-{number}", label, reports)
            charts.append(chart)
            parts += [figure(chart), _subcases(page, f"hans-{number}-subcases", label, reports)]
    return Section("hans", "HANS", join(*parts), charts) if charts else None


Report = Mapping[str, Any]


def rates(reports: Sequence[Report], kind: str) -> dict[str, list[float]]:
    """Right answers by name, one share a seed."""
    shares: dict[str, list[float]] = {}
    for one in reports:
        for name, cell in one.get(kind, {}).items():
            shares.setdefault(name, []).append(float(cell["accuracy"]))
    return shares


def _bars(page: PageData, id: str, data: str, reports: Sequence[tuple[Row, list[Report]]]) -> Chart:
    series = []
    for row, those in reports:
        cells = {(side, name): values for side in SIDES for name, values in rates(those, side).items()}
        names = [f"{name.replace('_', ' ')}, {side.replace('_', '-')}" for side, name in cells]
        means = [stats.mean(values) for values in cells.values()]
        low, high = stats.band(list(cells.values()))
        label = page.name(row) or data
        series.append(Series(label, names, means, kind="bars", low=low, high=high))
    note = (
        "Whiskers: 95 % interval of the mean over seeds (from three on). A model that follows a heuristic is right "
        "where the label is entailment, and wrong elsewhere."
    )
    rules = [(GUESSING, "guessing: 50 %")]
    return Chart(id, f"{data} by heuristic", "", "accuracy", series, rules=rules, note=note, y_range=(0.0, 1.02))


def _subcases(page: PageData, id: str, data: str, reports: Sequence[tuple[Row, list[Report]]]) -> Html:
    columns = [page.name(row) or "accuracy" for row, _ in reports]
    each = [rates(those, "subcases") for _, those in reports]
    names = list(dict.fromkeys(name for one in each for name in one))
    means = [[stats.mean(one[name]) if name in one else None for one in each] for name in names]
    rows = [
        [name, *("" if m is None else f"{100 * m:.1f}" for m in line)] for name, line in zip(names, means, strict=True)
    ]
    sort = [[None, *line] for line in means]
    caption = f"{data}: right answers in % by subcase"
    header = ["subcase", *columns]
    return table(header, rows, id=id, caption=caption, numbers=columns, sort=sort, search="Search subcases")
