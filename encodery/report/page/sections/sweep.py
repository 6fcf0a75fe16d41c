"""A sweep: scores over the two settings that matter most, all settings as parallel lines, and the expected best."""

from collections.abc import Sequence
from itertools import combinations

from encodery.report import stats
from encodery.report.groups import Row, number_or_text
from encodery.report.page.chart import Chart, Heat, Picture, Section, Series, spread
from encodery.report.page.data import PageData
from encodery.report.page.html import Html, choice, figure, heat, join, tag
from encodery.report.table import scaled

LEAST = 4  # configurations that make a sweep
MOST_LINES = 150
MARKS = 6  # values of a setting that are named on its axis


def section(page: PageData) -> Section | None:
    """For each data set with enough configurations."""
    pictures: list[Picture] = []
    panels = []
    for number, data in enumerate(page.data):
        rows = page.rows_of(data)
        keys = [key for key in page.table.settings if len({row.settings.get(key, "") for row in rows}) > 1]
        if len(rows) < LEAST or not keys:
            continue
        drawn, body = _data(page, f"sweep-{number}", data, rows, keys)
        pictures += drawn
        panels.append((data, body))
    return Section("sweep", "Sweep", choice("sweep-data", "Data", panels), pictures) if panels else None


def _data(page: PageData, id: str, data: str, rows: Sequence[Row], keys: Sequence[str]) -> tuple[list[Picture], Html]:
    charts = [_parallel(page, f"{id}-lines", data, rows, keys), _expected(f"{id}-expected", data, rows)]
    maps = [_map(page, f"{id}-map-{i}", data, rows, *pair) for i, pair in enumerate(pairs(rows, keys))]
    panels = [(f"{one.y} × {one.x}", heat(one)) for one in maps]
    chosen = choice(f"{id}-maps", "Settings", panels) if panels else ""
    return [*maps, *charts], join(chosen, tag("div", *map(figure, charts), class_="grid"))


def effect(rows: Sequence[Row], key: str) -> float:
    """How far the means of a setting's values lie apart."""
    by_value: dict[str, list[float]] = {}
    for row in rows:
        if row.settings.get(key) and row.summary.mean is not None:
            by_value.setdefault(row.settings[key], []).append(row.summary.mean)
    means = [stats.mean(values) for values in by_value.values()]
    return max(means) - min(means) if len(means) > 1 else 0.0


def pairs(rows: Sequence[Row], keys: Sequence[str], most: int = 3) -> list[tuple[str, str]]:
    """Pairs of the settings with the largest effect; settings that always move together say the same and go once."""
    ranked = sorted(keys, key=lambda key: -effect(rows, key))
    kept: list[str] = []
    for key in ranked:
        if effect(rows, key) and not any(_together(rows, key, other) for other in kept):
            kept.append(key)
    return list(combinations(kept[:most], 2))


def _together(rows: Sequence[Row], a: str, b: str) -> bool:
    seen = {(row.settings.get(a, ""), row.settings.get(b, "")) for row in rows}
    return len(seen) == len({one for one, _ in seen}) == len({two for _, two in seen})


def _map(page: PageData, id: str, data: str, rows: Sequence[Row], first: str, second: str) -> Heat:
    """Mean score of each pair of values, over everything else that varies."""
    here = [row for row in rows if row.settings.get(first) and row.settings.get(second)]
    down = sorted({row.settings[first] for row in here}, key=number_or_text)
    across = sorted({row.settings[second] for row in here}, key=number_or_text)
    cells: dict[tuple[str, str], list[Row]] = {}
    for row in here:
        cells.setdefault((row.settings[first], row.settings[second]), []).append(row)
    means = [[_mean(cells.get((a, b), [])) for b in across] for a in down]
    texts = [["" if value is None else scaled(rows[0], value) for value in line] for line in means]
    title = f"{data}: {rows[0].metric}"
    note = "Means over all other settings and seeds." if len(here) > len(cells) else ""
    return Heat(id, title, down, across, means, texts, page.label_of(second), page.label_of(first), note=note)


def _mean(rows: Sequence[Row]) -> float | None:
    values = [row.summary.mean for row in rows if row.summary.mean is not None]
    return stats.mean(values) if values else None


def _parallel(page: PageData, id: str, data: str, rows: Sequence[Row], keys: Sequence[str]) -> Chart:
    """Each configuration is a line through its values; what is not set in a configuration is a gap."""
    places: dict[str, dict[str, float]] = {}
    for key in keys:
        values = sorted({row.settings[key] for row in rows if row.settings.get(key)}, key=number_or_text)
        places[key] = {value: i / max(len(values) - 1, 1) for i, value in enumerate(values)}
    scores = [row.summary.mean or 0.0 for row in rows]
    low, high = min(scores), max(scores)
    names = [*(page.label_of(key) for key in keys), rows[0].metric]
    series = []
    for row in spread(list(reversed(rows)), MOST_LINES):  # the best last, on top
        share = ((row.summary.mean or 0.0) - low) / ((high - low) or 1.0)
        text = [f"{page.label_of(key)} {row.settings.get(key, '')}" for key in keys]
        text.append(f"{row.metric} {scaled(row, row.summary.mean)}")
        y = [places[key].get(row.settings.get(key, "")) for key in keys]
        shade = 1 - share if row.lower else share
        series.append(Series(page.name(row, 200), names, [*y, share], "all", text=text, shade=shade))
    note = "Each line is a configuration; darker is better."
    marks = [(page.label_of(key), y, value) for key in keys for value, y in spread(list(places[key].items()), MARKS)]
    marks += [(names[-1], float(value == high), scaled(rows[0], value)) for value in {low, high}]
    title = f"{data}: all settings"
    return Chart(id, title, "", "", series, bare=True, note=note, y_range=(-0.08, 1.08), marks=marks)


def _expected(id: str, data: str, rows: Sequence[Row]) -> Chart:
    """What the best of fewer tries would be: how much of the best score is search (Dodge et al. 2019)."""
    means = [row.summary.mean for row in rows if row.summary.mean is not None]
    tries = list(range(1, len(means) + 1))
    values = [stats.expected_best(means, n, lower=rows[0].lower) for n in tries]
    drawn = spread(list(zip(tries, values, strict=True)), 60)
    line = Series(rows[0].metric, [n for n, _ in drawn], [value for _, value in drawn])
    note = "The expected best of n configurations drawn from these: what a smaller search would have reported."
    return Chart(id, f"{data}: expected best", "configurations tried", rows[0].metric, [line], note=note)
