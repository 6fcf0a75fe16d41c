"""Run directories → a table: one row per configuration, mean ± sd (n) over seeds, and only what varies."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from encodery.errors import UserError
from encodery.report import averages, compare, groups, records, stats
from encodery.report.formats import csv_text, json_text, latex, markdown
from encodery.report.groups import Row
from encodery.report.models import Score, over_models

__all__ = ["Table", "csv_text", "json_text", "latex", "markdown", "table"]

NUMBERS = ("mean", "median", "best", "n", "sd", "seconds", "difference")
MANY = 4  # from so many configurations on, the best of them is better than it will be again


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

    def plain(self) -> list[dict[str, Any]]:
        """The rows as data."""
        return [row.plain() for row in self.rows]


def table(
    folders: Sequence[str | Path],
    baseline: str | None = None,
    metric: str | None = None,
    *,
    sort: str | None = None,
    every: bool = False,
    models: Score | None = None,
) -> Table:
    """The runs at and below the folders. `every`: also those that are no longer in the plan of their sweep."""
    found, remarks = records.read(folders, every=every)
    if not found:
        raise UserError("; ".join([f"no runs below {', '.join(map(str, folders))}", *remarks]))
    return of_records(found, baseline, metric, sort=sort, models=models, remarks=remarks)


def of_records(
    found: Sequence[records.Record],
    baseline: str | None = None,
    metric: str | None = None,
    *,
    sort: str | None = None,
    models: Score | None = None,
    remarks: Sequence[str] = (),
) -> Table:
    """The table of runs that were read already."""
    rows, more = groups.rows_of(found, metric)
    if metric and not any(row.values for row in rows):
        have = dict.fromkeys(name for record in found for scores in record.scores.values() for name in scores)
        raise UserError(f"--metric {metric}: no run has it; they have {', '.join(have) or 'no scores yet'}")
    whole, missing = ([], []) if metric else averages.average_rows(found)
    rows = [*rows, *whole]
    said = [*remarks, *more, *missing, *best_of_many(rows)]
    if baseline:
        said += compare.against(rows, baseline)
    elif any(0 < row.summary.n < stats.FEW for row in rows):
        said.append(f"fewer than {stats.FEW} seeds in some rows: differences there may well be chance")
    second = over_models(rows, models) if models else []
    return Table(ordered(rows, sort), said, bool(baseline), second)


def best_of_many(rows: Sequence[Row]) -> list[str]:
    """What the best of many configurations is worth: the expected best of fewer tries."""
    remarks = []
    for data, metric in dict.fromkeys((row.data, row.metric) for row in rows):
        same = [row for row in rows if (row.data, row.metric) == (data, metric)]
        means = [row.summary.mean for row in same if row.summary.mean is not None]
        if len(means) < MANY or same[0].about.better == "neither":
            continue
        about, lower = same[0].about, same[0].lower
        tries = [n for n in (1, 2, 4, 8, 16, 32, 64, 128) if n < len(means)] + [len(means)]
        curve = ", ".join(f"{about.text(stats.expected_best(means, n, lower=lower))} of {n}" for n in tries)
        best = about.text(min(means) if lower else max(means))
        remarks.append(f"{data}: {best} is the best of {len(means)} configurations; expected best: {curve}")
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
    value = row.plain().get(name)
    if value is None:
        return True, 0.0
    rising = name in ("sd", "seconds") or (row.lower and name != "n")
    return False, value if rising else -value
