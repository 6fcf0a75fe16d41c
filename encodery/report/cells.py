"""Rows as cells of text: the plain table, the pivoted one, and the one over models."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from encodery.errors import UserError
from encodery.report.groups import Row, number_or_text

if TYPE_CHECKING:
    from encodery.report.tables import Table

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


class Cell(NamedTuple):
    """A text, bold where it is better than the baseline."""

    text: str
    bold: bool = False


class Sheet(NamedTuple):
    """A header and rows of cells."""

    header: list[str]
    body: list[list[Cell]]
    notes: list[str]


def scaled(row: Row, value: float | None) -> str:
    """As the table of metrics says: shares times 100, losses and errors as they are."""
    if value is None:
        return ""
    return row.about.text(value)


def spell(row: Row) -> str:
    """`81.23 ± 0.45 (5)`; `(4 of 5 ✗)` where a seed failed."""
    found = row.summary
    wanted = found.n + len(row.missing)
    n = f"{found.n} of {wanted}" if row.missing else str(found.n)
    n += f" {FAILED}" if row.failed else ""
    if found.mean is None:
        return f"– ({n})"
    spread = f" ± {scaled(row, found.sd)}" if found.sd is not None else ""
    return f"{scaled(row, found.mean)}{spread} ({n})"


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


def sheet(table: "Table") -> Sheet:
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


def difference_text(row: Row) -> str:
    """`+1.20`: how far a row is from its baseline."""
    found = row.more["difference"]
    return ("+" if found > 0 else "") + scaled(row, found)


def interval_text(row: Row, interval: tuple[float, float] | None) -> str:
    """`80.11 to 82.35`; nothing where there is none."""
    return f"{scaled(row, interval[0])} to {scaled(row, interval[1])}" if interval else ""


def pivot(table: "Table", columns: str) -> Sheet:
    """The values of one setting (or several, or `data`) as columns, the other settings as rows."""
    over = columns.split(",")
    unknown = [key for key in over if key not in (*table.settings, "data")]
    if unknown:
        raise UserError(f"--columns {unknown[0]}: does not vary; choose from {', '.join((*table.settings, 'data'))}")
    keys = [key for key in table.settings if key not in over]
    named = ["data", "metric"] if "data" not in over else []
    lines: dict[tuple[str, ...], dict[str, Row]] = {}
    heads: dict[str, tuple[str, ...]] = {}
    for row in table.rows:
        head, order = _head(row, over)
        heads[head] = order
        at = (*(row.settings.get(key, "") for key in keys), *((row.label, row.metric) if named else ()))
        lines.setdefault(at, {}).setdefault(head, row)
    ordered = sorted(heads, key=lambda head: [number_or_text(word) for word in heads[head]])
    body = [
        [*map(Cell, at), *(_cell(found[head]) if head in found else Cell("") for head in ordered)]
        for at, found in lines.items()
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


def models_sheet(found: Sequence[Mapping[str, Any]]) -> Sheet:
    """Mean, sd, max, min and number of models."""
    last = ("mean", "sd", "max", "min", "models")
    keys = [key for key in found[0] if key not in (*last, "of_models")]
    body = []
    for one in found:
        plain = Row({}, one["data"], one["metric"])  # for its scale
        numbers = [Cell(scaled(plain, one[name])) for name in last[:-1]]
        body.append([*(Cell(str(one.get(key, ""))) for key in keys), *numbers, Cell(str(one["models"]))])
    return Sheet([*keys, "mean", "sd", "max", "min", "models"], body, [])
