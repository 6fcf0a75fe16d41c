"""The table of scores: every configuration and data set, beside published numbers."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from encodery.core.redact import without_paths
from encodery.core.text import each
from encodery.report.groups import Row
from encodery.report.page.chart import Section
from encodery.report.page.data import PageData
from encodery.report.page.html import Html, join, paragraphs, table, tag
from encodery.report.page.references import Published, published
from encodery.report.page.second_scores import majority, second_metric
from encodery.report.records import TASKS
from encodery.report.table import MEAN, difference_text, duration, interval_text, p_value, pivot, scaled, spell

SURE = 0.05
MOST_COLUMNS = 4  # data sets beside each other
COMPARED = ("difference", "95 %", "p (Holm)")
Cell = tuple[str, Any]  # what is shown, and what it is sorted by
BLANK = (MEAN, "95 %", "p (Holm)", "notes")  # columns that are left out where no row fills them


def section(page: PageData) -> Section | None:
    """Tasks as columns where configurations have several, then every number, task by task."""
    if not page.table.rows:
        return None
    remarks = paragraphs([without_paths(line) for line in page.table.remarks], "notes")
    every = _every(page)
    if not _several(page.table.rows):
        return Section("scores", "Scores", join(every, remarks))
    more = tag("details", tag("summary", "Every number"), every, open=len(page.table.rows) < 20)
    return Section("scores", "Scores", join(_by_task(page), more, remarks))


def _several(rows: Sequence[Row]) -> bool:
    """Whether a configuration has scores of more than one data set: else tasks as columns would be mostly blank."""
    scored = Counter(tuple(row.settings.items()) for row in rows if row.runs or row.fixed)
    return len(scored) > 1 and max(scored.values()) > 1  # of one configuration every number is a row below anyway


def _by_task(page: PageData) -> Html:
    """Configurations as rows, data sets as columns; the other way round where there are many data sets."""
    whole = [row for row in page.table.rows if row.values or any(run.settings for run in row.missing)]
    sheet = pivot(replace(page.table, rows=whole), "data")
    keys = page.table.settings
    rows = []
    for line in sheet.body:
        settings = {key: cell.text for key, cell in zip(keys, line, strict=False)}
        cells = [tag("strong", cell.text) if cell.bold else cell.text for cell in line[len(keys) :]]
        rows.append([page.label(settings) or "all runs", *cells])
    header = ["configuration", *sheet.header[len(keys) :]]
    if len(header) - 1 > max(MOST_COLUMNS, len(rows)):
        columns = list(zip(*[header, *rows], strict=True))
        header, rows = ["data", *columns[0][1:]], [list(column) for column in columns[1:]]
    compared = "; bold is better than the baseline; then the difference, its 95 % interval, and p after Holm"
    caption = "Mean ± sd (n seeds) by task" + (compared if page.baseline else "")
    return table(header, rows, id="by-task", caption=caption, numbers=header[1:])


def _every(page: PageData) -> Html:
    """A table for each task that was trained, with the settings that vary there."""
    groups: dict[str, list[Row]] = {}
    for row in page.table.rows:
        groups.setdefault(_trained_on(row), []).append(row)
    ordered = sorted(groups, key=lambda task: not any(row.values for row in groups[task]))  # damaged runs last
    if len(groups) == 1 or TASKS in page.keys:  # where runs of several tasks share data, one table compares them
        return _table(page, page.table.rows, "every", "")
    ids = [f"every-{i}" if i else "every" for i in range(len(ordered))]
    parts = [_table(page, groups[task], id, task) for id, task in zip(ids, ordered, strict=True)]
    return join(*parts)


def _filled(header: Sequence[str], lines: Sequence[list[Cell]]) -> tuple[list[str], list[list[Cell]]]:
    """Without columns that say nothing, such as intervals where each row has one seed."""
    blank = {name for place, name in enumerate(header) if name in BLANK and not any(line[place][0] for line in lines)}
    if all((line[header.index("n")][1] or 0) <= 1 for line in lines):
        blank |= {"median", "best"}  # they repeat the only score
    kept = [place for place, name in enumerate(header) if name not in blank]
    return [header[place] for place in kept], [[line[place] for place in kept] for line in lines]


def _trained_on(row: Row) -> str:
    runs = [*row.runs.values(), *row.missing]
    return runs[0].task or "own task" if runs else "averages"


def _table(page: PageData, rows: Sequence[Row], id: str, task: str) -> Html:
    paper = [published(row) for row in rows]
    keys = [key for key in page.table.settings if not task or len({row.settings.get(key, "") for row in rows}) > 1]
    second = [second_metric(row) for row in rows]
    easy = [majority(row) for row in rows]
    header = [*(page.label_of(key) for key in keys), "data", "mean ± sd", "metric", "n", MEAN, "median", "best"]
    header += ["majority"] if any(value is not None for value in easy) else []
    header += ["second metric"] if any(second) else []
    header += list(COMPARED) if page.baseline else []
    header += ["published"] if any(paper) else []
    header += ["time", "notes"]
    lines = [_line(row, header, keys, number) for row, number in zip(rows, paper, strict=True)]
    header, lines = _filled(header, lines)
    numbers = ["n", "mean ± sd", MEAN, "median", "best", "majority", "second metric", *COMPARED, "published", "time"]
    against = f", compared with {page.baseline}" if page.baseline else ""
    caption = f"{task}: " if task else ""
    caption += ("one row" if len(rows) == 1 else each(len(rows), "row")) + against
    body = table(
        header,
        [[cell for cell, _ in line] for line in lines],
        id=id,
        caption=caption[0].upper() + caption[1:] if not task else caption,
        numbers=numbers,
        sort=[[key for _, key in line] for line in lines],
        search="Search settings, data, notes",
        rowclass=["failed" if row.failed and not row.values else "" for row in rows],
    )
    return join(body, _sources(paper))


def _line(row: Row, header: Sequence[str], keys: Sequence[str], number: Published | None) -> list[Cell]:
    summary = row.summary
    wanted = summary.n + len(row.missing)
    cells: list[Cell] = [(without_paths(row.settings.get(key, "")), None) for key in keys]
    whole = spell(row).rpartition(" (")[0] if summary.mean is not None else "–"
    score = (tag("strong", whole) if row.more.get("better") else whole, summary.mean)
    cells += [(row.label, None), score, (row.metric, None)]  # the score first: a phone shows few columns
    cells.append((f"{summary.n} of {wanted}" if row.missing else str(summary.n), summary.n))
    cells.append((interval_text(row, row.interval), row.interval and row.interval[0]))
    cells += [(scaled(row, value), value) for value in (summary.median, summary.best)]
    if "majority" in header:
        easy = majority(row)
        cells.append((scaled(row, easy), easy))
    if "second metric" in header:
        other = second_metric(row)
        cells.append((f"{other.name} {other.text}", other.mean) if other else ("", None))
    if COMPARED[0] in header:
        cells += _compared(row)
    if "published" in header:
        cells.append(_paper(number))
    notes = "; ".join(without_paths(note) for note in row.notes)
    return [*cells, (duration(row.seconds), row.seconds), (tag("p", notes, class_="aside") if notes else "", None)]


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
