"""Slices of scores as rows of a table: what `evaluate --by` wrote beside the predictions of runs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from encodery.core import files
from encodery.core.text import counted
from encodery.errors import UserError
from encodery.report.records import Record
from encodery.runs.directory import RunDir
from encodery.tasks.forms.metric_table import metric


def sliced(records: Sequence[Record], column: str) -> list[Record]:
    """The records with a data set for each value of a column: `glue/mnli:dev genre=fiction`."""
    by_value = [_of_run(record, column) for record in records]
    if not any(record.scores for record in by_value):
        raise UserError(
            f"--by {column}: no run has scores by it; `encodery evaluate RUN --on TASK --by {column}` writes them"
        )
    return [record for record in by_value if record.scores]


def _of_run(record: Record, column: str) -> Record:
    scores: dict[str, Mapping[str, float]] = {}
    main: dict[str, str] = {}
    notes: dict[str, tuple[str, ...]] = {}
    for path in sorted(RunDir(record.path).predictions.glob("*.slices.json")) if record.done else ():
        about = files.read_json(path)
        data = f"{about['task']}:{about['split']}"
        for entry in about.get("by", {}).get(column, []):
            key = f"{data} {column}={entry['value']}"
            scores[key], main[key] = entry["scores"], about["metric"]
            notes[key] = (*record.notes.get(data, ()), _rows(entry, about["metric"]))
    return replace(record, scores=scores, main=main, notes=notes, alarms={})


def _rows(entry: Mapping[str, Any], name: str) -> str:
    about = metric(name)
    if entry.get("low") is None:
        return counted(entry["rows"], "row")
    return f"{counted(entry['rows'], 'row')}: 95 % over rows {about.text(entry['low'])} to {about.text(entry['high'])}"
