"""Slices: scores broken down by a column (`encodery evaluate --by COLUMN`), with 95 % intervals over examples."""

from collections.abc import Mapping, Sequence
from typing import Any

from encodery.core.text import short
from encodery.report import stats
from encodery.report.groups import Row
from encodery.report.page.chart import Chart, Section, Series
from encodery.report.page.data import PageData
from encodery.report.page.html import Html, choice, figure, join, table
from encodery.tasks.forms import metric_table
from encodery.tasks.sources.columns import ordered

CONFIGURATIONS = 6
BARS = 20  # values of a column that are drawn
VALUES = 100
TICK = 18  # letters of a name below a bar

Slice = Mapping[str, Any]


def section(page: PageData) -> Section | None:
    """Bars and a table for each data set and column."""
    charts: list[Chart] = []
    panels = []
    for data in page.data:
        best = page.rows_of(data)[:CONFIGURATIONS]
        stored = [(row, those) for row in best if (those := page.beside_answers(row, ".slices.json", ["by"]))]
        columns = dict.fromkeys(column for _, those in stored for one in those for column in one["by"])
        for column in columns:
            mine = [(row, [one for one in those if column in one["by"]]) for row, those in stored]
            mine = [(row, those) for row, those in mine if those]
            chart, body = _column(page, f"slices-{len(charts)}", data, column, mine)
            charts.append(chart)
            panels.append((f"{data} by {column}", body))
    return Section("slices", "Slices", choice("slices-choice", "Scores of", panels), charts) if panels else None


def means(those: Sequence[Slice], column: str) -> dict[str, dict[str, float | None]]:
    """By value: rows, score and interval, as means over seeds."""
    cells: dict[str, dict[str, list[float]]] = {}
    for one in those:
        for part in one["by"][column]:
            cell = cells.setdefault(str(part["value"]), {"rows": [], "score": [], "low": [], "high": []})
            score = part["scores"].get(one["metric"])
            for name, value in (
                ("rows", part["rows"]),
                ("score", score),
                ("low", part.get("low")),
                ("high", part.get("high")),
            ):
                if value is not None:
                    cell[name].append(float(value))
    return {
        value: {name: stats.mean(numbers) if numbers else None for name, numbers in cell.items()}
        for value, cell in cells.items()
    }


def _column(
    page: PageData, id: str, data: str, column: str, mine: Sequence[tuple[Row, list[Slice]]]
) -> tuple[Chart, Html]:
    each = [(page.name(row) or data, means(those, column)) for row, those in mine]
    metric = str(mine[0][1][0]["metric"])
    first = each[0][1]
    values = ordered({value: cell["rows"] or 0.0 for value, cell in first.items()})
    large = set(sorted(values, key=lambda value: -(first[value]["rows"] or 0))[:BARS])
    series = [_bars(name, cells, [value for value in values if value in large]) for name, cells in each]
    note = "Whiskers: 95 % interval over the examples of the slice."
    if max(len(those) for _, those in mine) > 1:
        note += " Scores and intervals are means over seeds."
    if len(values) > BARS:
        note += f" The largest {BARS} of {len(values)} slices are drawn."
    overall = mine[0][0].summary.mean
    same = mine[0][0].metric == metric and overall is not None
    rules = (
        [(overall, f"all rows: {metric_table.metric(metric).text(overall)}")] if same and overall is not None else []
    )
    chart = Chart(id, f"{data}: {metric} by {column}", "", metric, series, rules=rules, note=note)
    return chart, join(figure(chart), _table(id, data, column, metric, each, values))


def _bars(name: str, cells: Mapping[str, Mapping[str, float | None]], values: Sequence[str]) -> Series:
    mine = [cells[value] for value in values if value in cells]
    names = [f"{short(value, TICK)} ({cells[value]['rows']:.0f})" for value in values if value in cells]
    low, high = (
        [one[side] if one[side] is not None else one["score"] or 0.0 for one in mine] for side in ("low", "high")
    )
    return Series(
        name,
        names,
        [one["score"] for one in mine],
        kind="bars",
        low=[v or 0.0 for v in low],
        high=[v or 0.0 for v in high],
    )


def _table(
    id: str, data: str, column: str, metric: str, each: Sequence[tuple[str, Any]], values: Sequence[str]
) -> Html:
    about = metric_table.metric(metric)
    header = [column, "rows"]
    for name, _ in each:
        header += [name if len(each) > 1 else metric, "95 %" if len(each) == 1 else f"95 %, {name}"]
    lines, keys = [], []
    for value in values[:VALUES]:
        rows = each[0][1][value]["rows"]
        cells, sort = [value, f"{rows:,.0f}"], [None, rows]
        for _, known in each:
            one = known.get(value, {})
            score, low, high = one.get("score"), one.get("low"), one.get("high")
            cells.append("" if score is None else about.text(score))
            cells.append("" if low is None or high is None else f"{about.text(low)} to {about.text(high)}")
            sort += [score, low]
        lines.append(cells)
        keys.append(sort)
    caption = f"{data}: {metric} by {column}"
    return table(
        header, lines, id=f"{id}-table", caption=caption, numbers=header[1:], sort=keys, search="Search slices"
    )
