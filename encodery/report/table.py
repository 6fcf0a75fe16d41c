"""Run directories → a table: one row per configuration, mean ± sd (n) over seeds; as Markdown, LaTeX, CSV, JSON."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from encodery.core.text import markdown_table
from encodery.errors import UserError
from encodery.report import compare, groups, majority, records, rivals, stats
from encodery.report.groups import Row, number_or_text
from encodery.report.over_models import Score, over_models
from encodery.report.slices import sliced

NUMBERS = ("mean", "median", "best", "n", "sd", "seconds", "difference")
MANY = 4  # from so many configurations on, the best of them is better than it will be again
FAILED = "✗"
MEAN = "95 % of the mean"
TESTS = {  # columns of a comparison, and where a row keeps them
    "p (t)": "p_t", "p (Holm)": "p_holm", "p (flips)": "p_flips", "p (flips, Holm)": "p_flips_holm",
    "p (McNemar)": "p_mcnemar", "p (McNemar, Holm)": "p_mcnemar_holm",
}  # fmt: skip
COMPARED = (
    "In each cell: mean ± sd (n); the difference to the baseline, its 95 % interval over seeds, and p (t) after Holm. "
    "The tests by sign flips and over examples (McNemar) are in the table without --columns"
)
_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"$<$", ">": r"$>$", "|": r"$|$", "±": r"$\pm$",
    "✗": r"$\times$", "–": "--", "…": r"\dots{}",
}  # fmt: skip


@dataclass
class Table:
    """Rows, what a reader of them must know, and the second level if it was asked for."""

    rows: list[Row]
    remarks: list[str] = field(default_factory=list)
    baseline: bool = False
    models: list[dict[str, Any]] = field(default_factory=list)

    @property
    def settings(self) -> list[str]:
        """The keys that vary."""
        return list(dict.fromkeys(key for row in self.rows for key in row.settings))

    def to_dict(self) -> list[dict[str, Any]]:
        """The rows as data."""
        return [row.to_dict() for row in self.rows]


def table(
    folders: Sequence[str | Path],
    baseline: str | None = None,
    metric: str | None = None,
    *,
    sort: str | None = None,
    every: bool = False,
    models: Score | None = None,
    by: str | None = None,
) -> Table:
    """The runs at and below the folders. `every`: also those that are no longer in the plan of their sweep."""
    found, remarks = records.read(folders, every=every)
    if not found:
        raise UserError("; ".join([f"no runs below {', '.join(map(str, folders))}", *remarks]))
    found = sliced(found, by) if by else found
    try:
        return of_records(found, baseline, metric, sort=sort, models=models, remarks=remarks)
    except compare.NoBaseline as error:
        if every or not compare.has(groups.rows_of(records.read(folders, every=True)[0], metric)[0], str(baseline)):
            raise
        left = "runs that are no longer in the plan of their sweep match it (--all includes them)"
        raise UserError(f"{error}; {left}") from None


def of_records(
    runs: Sequence[records.Record],
    baseline: str | None = None,
    metric: str | None = None,
    *,
    sort: str | None = None,
    models: Score | None = None,
    remarks: Sequence[str] = (),
) -> Table:
    """The table of runs that were read already."""
    rows, more = groups.rows_of(runs, metric)
    if metric and not any(row.values for row in rows):
        have = dict.fromkeys(name for record in runs for scores in record.scores.values() for name in scores)
        raise UserError(f"--metric {metric}: no run has it; they have {', '.join(have) or 'no scores yet'}")
    whole, missing = ([], []) if metric else groups.average_rows(runs)
    rows = [*rows, *whole]
    said = [*remarks, *more, *missing, *majority.remarks(rows), *rivals.remarks(rows), *best_of_many(rows)]
    if baseline:
        said += compare.against(rows, baseline)
    elif few := dict.fromkeys(f"{row.unit}s" for row in rows if 0 < row.summary.n < stats.FEW):
        said.append(f"fewer than {stats.FEW} {' or '.join(few)} in some rows: differences there may well be chance")
    said += [stats.FOLDS] if any(row.unit == "fold" and row.interval for row in rows) else []
    second = over_models(rows, models) if models else []
    return Table(ordered(rows, sort), said, bool(baseline), second)


def best_of_many(rows: Sequence[Row]) -> list[str]:
    """What the best of many configurations is worth: the expected best of fewer tries."""
    remarks = []
    for same in rivals.by_data(rows):
        means = [row.summary.mean for row in same if row.summary.mean is not None]
        if len(means) < MANY or same[0].about.better == "neither":
            continue
        about, lower = same[0].about, same[0].lower
        tries = [n for n in (1, 2, 4, 8, 16, 32, 64, 128) if n < len(means)] + [len(means)]
        curve = ", ".join(f"{about.text(stats.expected_best(means, n, lower=lower))} of {n}" for n in tries)
        best = about.text(min(means) if lower else max(means))
        remarks.append(f"{same[0].data}: {best} is the best of {len(means)} configurations; expected best: {curve}")
    return remarks


def ordered(rows: Sequence[Row], sort: str | None) -> list[Row]:
    """Rows by a column: scores best first, settings ascending; without a value last."""
    if sort is None:
        return list(rows)
    known = dict.fromkeys(key for row in rows for key in row.settings)
    if sort not in (*NUMBERS, "data", *known):
        raise UserError(f"--sort {sort}: choose from {', '.join((*NUMBERS, 'data', *known))}")
    if sort in NUMBERS:
        return sorted(rows, key=lambda row: _number(row, sort))
    return sorted(rows, key=lambda row: groups.number_or_text(row.data if sort == "data" else row.settings[sort]))


def _number(row: Row, name: str) -> tuple[bool, float]:
    value = row.to_dict().get(name)
    if value is None:
        return True, 0.0
    rising = name in ("sd", "seconds") or (row.lower and name != "n")
    return False, value if rising else -value


# Rows as cells of text: the plain table, the pivoted one, and the one over models.


class Cell(NamedTuple):
    """A text, bold where it is better than the baseline."""

    text: str
    bold: bool = False


class Sheet(NamedTuple):
    """A header and rows of cells."""

    header: list[str]
    body: list[list[Cell]]
    notes: list[str]


def sheets(table: Table, columns: str | None = None) -> list[Sheet]:
    """The table itself, and the one over models if that was asked for."""
    first = pivot(table, columns) if columns else sheet(table)
    return [first, models_sheet(table.models)] if table.models else [first]


def sheet(table: Table) -> Sheet:
    """One line per row of the table."""
    keys = table.settings
    header = [*keys, "data", "metric", "mean ± sd (n)", MEAN, "median", "best"]
    header += ["difference", "95 %", *TESTS] if table.baseline else []
    body = [_line(row, keys, table.baseline) for row in table.rows]
    if not any(row.interval for row in table.rows):  # one or two seeds each: the column would be empty
        place = header.index(MEAN)
        del header[place]
        body = [line[:place] + line[place + 1 :] for line in body]
    for name, texts in (
        ("time", [duration(r.seconds) for r in table.rows]),
        ("notes", [_notes(r) for r in table.rows]),
    ):
        if any(texts):
            header.append(name)
            body = [[*line, Cell(text)] for line, text in zip(body, texts, strict=True)]
    return Sheet(header, body, [*table.remarks, *_time_in_all(table.rows)])


def _time_in_all(rows: Sequence[Row]) -> list[str]:
    """What all runs cost together, each counted once; every run had one device."""
    runs = {id(run): run.seconds for row in rows for run in row.runs.values() if run.seconds is not None}
    if len(runs) < 2:
        return []
    return [f"{len(runs)} runs trained for {duration(sum(runs.values()))} in all, each on one device"]


def _notes(row: Row) -> str:
    return "; ".join(["baseline"] * bool(row.more.get("is_baseline")) + row.notes)


def _line(row: Row, keys: Sequence[str], baseline: bool) -> list[Cell]:
    cells = [Cell(row.settings.get(key, "")) for key in keys]
    cells += [Cell(row.label), Cell(row.metric), Cell(spell(row), bool(row.more.get("better")))]
    cells.append(Cell(interval_text(row, row.interval)))
    cells += [Cell(scaled(row, row.summary.median)), Cell(scaled(row, row.summary.best))]
    return cells + (_comparison(row) if baseline else [])


def _comparison(row: Row) -> list[Cell]:
    more = row.more
    if more.get("difference") is None:
        return [Cell("")] * (2 + len(TESTS))
    interval = interval_text(row, (more["low"], more["high"]) if more["low"] is not None else None)
    return [Cell(difference_text(row)), Cell(interval), *(Cell(p_value(more[name])) for name in TESTS.values())]


def pivot(table: Table, columns: str) -> Sheet:
    """The values of one setting (or several, or `data`) as columns, the other settings as rows."""
    over = columns.split(",")
    unknown = [key for key in over if key not in (*table.settings, "data")]
    if unknown:
        raise UserError(f"--columns {unknown[0]}: does not vary; choose from {', '.join((*table.settings, 'data'))}")
    keys = [key for key in table.settings if key not in over]
    named = ["data", "metric"] if "data" not in over else []
    lines: dict[tuple[tuple[str, ...], int], dict[str, Row]] = {}
    heads: dict[str, tuple[str, ...]] = {}
    for row in table.rows:
        head, order = _head(row, over)
        heads[head] = order
        at = (*(row.settings.get(key, "") for key in keys), *((row.label, row.metric) if named else ()))
        number = next(n for n in count() if head not in lines.get((at, n), {}))  # runs on other rows: another line
        lines.setdefault((at, number), {})[head] = row
    ordered = sorted(heads, key=lambda head: [number_or_text(word) for word in heads[head]])
    body = [
        [*map(Cell, at), *(_cell(cells[head]) if head in cells else Cell("") for head in ordered)]
        for (at, _), cells in lines.items()
    ]
    notes = [COMPARED] if table.baseline else []
    return Sheet([*keys, *named, *ordered], body, [*notes, *_said(table.rows), *table.remarks])


def _said(rows: Sequence[Row]) -> list[str]:
    """The notes of all rows under a pivoted table; what many rows say is said once."""
    by_note: dict[str, list[Row]] = {}
    for row in rows:
        for note in row.notes:
            by_note.setdefault(note, []).append(row)
    few = 2  # rows that are named one by one
    return [
        f"{'; '.join(map(_about, found)) if len(found) <= few else f'{len(found)} of {len(rows)} rows'}: {note}"
        for note, found in by_note.items()
    ]


def _head(row: Row, over: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """The title of a row's column, and what it is sorted by; averages come last."""
    words = [f"{row.label} {row.metric}".strip() if key == "data" else f"{key}={row.settings[key]}" for key in over]
    order = tuple(("~" * (row.metric == "average")) + row.data if key == "data" else row.settings[key] for key in over)
    return ", ".join(words), order


def _cell(row: Row) -> Cell:
    """Mean, sd and n; with a baseline also the difference, its interval and Holm's p."""
    return Cell("; ".join([spell(row), *_short_comparison(row)]), bool(row.more.get("better")))


def _short_comparison(row: Row) -> list[str]:
    more = row.more
    if more.get("is_baseline"):
        return ["baseline"]
    if more.get("difference") is None:
        return []
    interval = f" [{scaled(row, more['low'])}, {scaled(row, more['high'])}]" if more["low"] is not None else ""
    p = f", p {p_value(more['p_holm'])}" if more["p_holm"] is not None else ""
    return [difference_text(row) + interval + p]


def _about(row: Row) -> str:
    return ", ".join([*(f"{key}={value}" for key, value in row.settings.items() if value), row.label])


def models_sheet(summaries: Sequence[Mapping[str, Any]]) -> Sheet:
    """Mean, sd, max, min and number of models."""
    last = ("mean", "sd", "max", "min", "models")
    keys = [key for key in summaries[0] if key not in (*last, "of_models")]
    body = []
    for one in summaries:
        plain = Row({}, one["data"], one["metric"])  # for its scale
        numbers = [Cell(scaled(plain, one[name])) for name in last[:-1]]
        body.append([*(Cell(str(one.get(key, ""))) for key in keys), *numbers, Cell(str(one["models"]))])
    return Sheet([*keys, "mean", "sd", "max", "min", "models"], body, [])


# Numbers as text.


def scaled(row: Row, value: float | None) -> str:
    """As the table of metrics says: shares times 100, losses and errors as they are."""
    if value is None:
        return ""
    return row.about.text(value)


def spell(row: Row) -> str:
    """`81.23 ± 0.45 (5)`; `(4 of 5 ✗)` where a seed failed."""
    summary = row.summary
    wanted = summary.n + len(row.missing)
    n = f"{summary.n} of {wanted}" if row.missing else str(summary.n)
    n += f" {FAILED}" if row.failed else ""
    if summary.mean is None:
        return f"– ({n})"
    spread = f" ± {scaled(row, summary.sd)}" if summary.sd is not None else ""
    return f"{scaled(row, summary.mean)}{spread} ({n})"


def duration(seconds: float | None) -> str:
    """`42 s`, `7.5 min`, `3.2 h`."""
    if seconds is None:
        return ""
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"


def p_value(p: float | None) -> str:
    """Three digits; never 0."""
    if p is None:
        return ""
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def difference_text(row: Row) -> str:
    """`+1.20`: how far a row is from its baseline."""
    found = row.more["difference"]
    return ("+" if found > 0 else "") + scaled(row, found)


def interval_text(row: Row, interval: tuple[float, float] | None) -> str:
    """`80.11 to 82.35`; nothing where there is none."""
    return f"{scaled(row, interval[0])} to {scaled(row, interval[1])}" if interval else ""


# A table as Markdown, LaTeX, CSV or JSON.


def markdown(table: Table, columns: str | None = None) -> str:
    """Markdown, scores times 100; remarks below."""
    return "\n\n".join(_markdown(one) for one in sheets(table, columns))


def _markdown(one: Sheet) -> str:
    cells = [[f"**{cell.text}**" if cell.bold else cell.text for cell in line] for line in one.body]
    notes = [f"- {note}" for note in one.notes]
    return "\n".join([markdown_table(one.header, cells), *([""] if notes else []), *notes])


def latex(table: Table, columns: str | None = None) -> str:
    """A tabular for the package booktabs; remarks as comments."""
    return "\n\n".join(_latex(one) for one in sheets(table, columns))


def _latex(sheet: Sheet) -> str:
    def line(cells: list[str]) -> str:
        return " & ".join(cells) + r" \\"

    body = [line([_latex_cell(cell) for cell in cells]) for cells in sheet.body]
    head = [r"\begin{tabular}{" + "l" * len(sheet.header) + "}", r"\toprule"]
    head += [line([escaped(word) for word in sheet.header]), r"\midrule"]
    return "\n".join(
        [*(f"% {' '.join(note.split())}" for note in sheet.notes), *head, *body, r"\bottomrule", r"\end{tabular}"]
    )


def _latex_cell(cell: Cell) -> str:
    return rf"\textbf{{{escaped(cell.text)}}}" if cell.bold else escaped(cell.text)


def escaped(text: str) -> str:
    """Text that LaTeX prints as it is."""
    return "".join(_LATEX.get(letter, letter) for letter in " ".join(text.split()))


def csv_text(table: Table, columns: str | None = None) -> str:
    """Comma-separated: numbers unrounded and not times 100; a pivoted table as people read it."""
    stream = io.StringIO()
    if columns:
        one = pivot(table, columns)
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerows([one.header, *([cell.text for cell in line] for line in one.body)])
        return stream.getvalue()
    rows = table.models or table.to_dict()
    names = [name for name in dict.fromkeys(key for row in rows for key in row) if name not in ("values", "of_models")]
    whole = csv.DictWriter(stream, names, extrasaction="ignore", lineterminator="\n")
    whole.writeheader()
    whole.writerows(rows)
    return stream.getvalue()


def json_text(table: Table) -> str:
    """Everything, the scores of each seed included."""
    found = {"rows": table.to_dict(), "remarks": table.remarks}
    return json.dumps(found | ({"models": table.models} if table.models else {}), indent=1, ensure_ascii=False)
