"""The table of scores: every configuration and data set, beside published numbers."""

from collections.abc import Sequence
from typing import Any

from encodery.report.cells import MEAN, difference_text, duration, interval_text, p_value, pivot, scaled, spell
from encodery.report.groups import Row
from encodery.report.page.chart import Section
from encodery.report.page.found import Found
from encodery.report.page.html import Html, join, paragraphs, table, tag, without_paths
from encodery.report.page.published import Published, published

SURE = 0.05
COMPARED = ("difference", "95 %", "p (Holm)")


def section(found: Found) -> Section | None:
    """Tasks as columns where there are several, then every number."""
    if not found.table.rows:
        return None
    every = _every(found)
    remarks = paragraphs([without_paths(line) for line in found.table.remarks], "notes")
    data = {row.data for row in found.table.rows}
    if len(data) == 1:
        return Section("scores", "Scores", join(every, remarks))
    more = tag("details", tag("summary", "Every number"), every, open=len(found.table.rows) < 20)
    return Section("scores", "Scores", join(_by_task(found), more, remarks))


def _by_task(found: Found) -> Html:
    """Configurations as rows, data sets as columns."""
    sheet = pivot(found.table, "data")
    keys = found.table.settings
    rows = []
    for line in sheet.body:
        settings = {key: cell.text for key, cell in zip(keys, line, strict=False)}
        cells = [tag("strong", cell.text) if cell.bold else cell.text for cell in line[len(keys) :]]
        rows.append([found.label(settings) or "all runs", *cells])
    header = ["configuration", *sheet.header[len(keys) :]]
    compared = "; bold is better than the baseline; then the difference, its 95 % interval, and p after Holm"
    caption = "Mean ± sd (n seeds) by task" + (compared if found.baseline else "")
    return table(header, rows, id="by-task", caption=caption, numbers=header[1:])


def _every(found: Found) -> Html:
    rows = found.table.rows
    paper = [published(row) for row in rows]
    keys = found.table.settings
    header = [*(found.label_of(key) for key in keys), "data", "metric", "n", "mean ± sd", MEAN, "median", "best"]
    header += list(COMPARED) if found.baseline else []
    header += ["published"] if any(paper) else []
    header += ["time", "notes"]
    lines = [_line(row, keys, found, number if any(paper) else False) for row, number in zip(rows, paper, strict=True)]
    numbers = ["n", "mean ± sd", MEAN, "median", "best", *COMPARED, "published", "time"]
    caption = f"All {len(rows)} rows" + (f", compared with {found.baseline}" if found.baseline else "")
    whole = table(
        header,
        [[cell for cell, _ in line] for line in lines],
        id="every",
        caption=caption,
        numbers=numbers,
        sort=[[key for _, key in line] for line in lines],
        search="Search settings, data, notes",
        rowclass=["failed" if row.failed and not row.values else "" for row in rows],
    )
    return join(whole, _sources(paper))


Cell = tuple[str, Any]  # what is shown, and what it is sorted by


def _line(row: Row, keys: Sequence[str], found: Found, number: Published | bool | None) -> list[Cell]:
    summary = row.summary
    wanted = summary.n + len(row.missing)
    cells: list[Cell] = [(without_paths(row.settings.get(key, "")), None) for key in keys]
    cells += [(row.label, None), (row.metric, None)]
    cells.append((f"{summary.n} of {wanted}" if row.missing else str(summary.n), summary.n))
    whole = spell(row).rpartition(" (")[0] if summary.mean is not None else "–"
    cells.append((tag("strong", whole) if row.more.get("better") else whole, summary.mean))
    cells.append((interval_text(row, row.interval), row.interval and row.interval[0]))
    cells += [(scaled(row, value), value) for value in (summary.median, summary.best)]
    if found.baseline:
        cells += _compared(row)
    if number is not False:
        cells.append(_paper(number if isinstance(number, Published) else None))
    notes = "; ".join(without_paths(note) for note in row.notes)
    return [*cells, (duration(row.seconds), row.seconds), (tag("p", notes, class_="aside"), None)]


def _compared(row: Row) -> list[Cell]:
    more = row.more
    if more.get("is_baseline"):
        return [(tag("span", "baseline", class_="aside"), 0), ("", None), ("", None)]
    if more.get("difference") is None:
        return [("", None)] * 3
    p, low = more["p_holm"], more["low"]
    mark = " *" if p is not None and p < SURE else ""
    interval = interval_text(row, (low, more["high"]) if low is not None else None)
    return [(difference_text(row), more["difference"]), (interval, low), (p_value(p) + mark, p)]


def _paper(number: Published | None) -> Cell:
    if number is None:
        return "", None
    where = " (test)" if number.on_test else ""
    return tag("span", f"{number.value:.1f}{where}", class_="paper", title=number.words), number.value


def _sources(paper: Sequence[Published | None]) -> Html:
    lines = dict.fromkeys(f"published: {one.words} (recipe:{one.recipe})" for one in paper if one)
    return paragraphs(list(lines), "notes paper")
