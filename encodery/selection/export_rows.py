"""The chosen rows as a file of their own: csv, tsv, jsonl or Parquet, with all columns that their file had."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from encodery.core import files
from encodery.data.subset import Subset
from encodery.errors import UserError
from encodery.tasks.base import Example, Task
from encodery.tasks.sources.published import OnHub

ENDINGS = (".csv", ".tsv", ".jsonl", ".parquet")


def require_ending(path: Path) -> None:
    """What cannot be written is refused before the work."""
    if path.suffix.lower() not in ENDINGS:
        raise UserError(f"--export {path}: must end in {', '.join(ENDINGS)}")


def export(chosen: Subset, task: Task, split: str, path: Path) -> Path:
    """Write the rows in the order of the selection, best first; a `train` file that --tasks takes as it is."""
    require_ending(path)
    rows = rows_of(chosen, task, split)
    names = list(dict.fromkeys(name for row in rows for name in row))
    with files.io_trouble(f"{path} cannot be written", path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix.lower() == ".parquet":
            _parquet(rows, names, path)
        else:
            files.write_atomic(path, _text(rows, names, path.suffix.lower(), getattr(task, "delimiter", None)))
    return path


def rows_of(chosen: Subset, task: Task, split: str) -> list[dict[str, Any]]:
    """Each chosen row: the columns of its file, or its texts and its label, and its score and cluster."""
    published = isinstance(task, OnHub)  # its files have numbers for labels
    raw = task.raw_rows(split)
    examples = {example.id: example for example in task.examples(split)}
    more: dict[str, Sequence[Any] | None] = {"score": chosen.scores, "cluster": chosen.clusters}
    rows = []
    for rank, id in enumerate(chosen.ids):
        row = dict(raw[id]) if id in raw else plain(examples[id])
        if row.get(str(getattr(task, "id", None))) is None:  # the rows of its file have no ids of their own
            row.setdefault("id", id)
        if published and isinstance(examples[id].label, str):
            row["label"] = examples[id].label
        row |= {f"selection_{name}": values[rank] for name, values in more.items() if values is not None}
        rows.append(row)
    return rows


def plain(example: Example) -> dict[str, Any]:
    """A row whose file is not at hand."""
    texts = {"text" if not place else f"text{place + 1}": text for place, text in enumerate(example.texts)}
    label = list(example.label) if isinstance(example.label, tuple) else example.label
    return {"id": example.id, **texts, "label": label, **example.extra}


def _text(rows: Sequence[Mapping[str, Any]], names: Sequence[str], ending: str, delimiter: str | None) -> str:
    """As the ending says; a csv file has the delimiter of the file that the rows are from."""
    if ending == ".jsonl":
        return "".join(files.readable_json(row) + "\n" for row in rows)
    stream = io.StringIO()
    if ending == ".tsv":
        lines = [names, *([_cell(row.get(name)) for name in names] for row in rows)]
        bad = next((i for i, line in enumerate(lines) if any("\t" in cell or "\n" in cell for cell in line)), None)
        if bad is not None:
            raise UserError(f"--export: row {bad} has a tab or a line end, which tsv cannot hold; choose csv or jsonl")
        return "".join("\t".join(line) + "\n" for line in lines)
    writer = csv.writer(stream, delimiter=delimiter or ",", lineterminator="\n")
    writer.writerows([names, *([_cell(row.get(name)) for name in names] for row in rows)])
    return stream.getvalue()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else str(value)


def _parquet(rows: Sequence[Mapping[str, Any]], names: Sequence[str], path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({name: [row.get(name) for row in rows] for name in names})
    with files.atomic(path) as stream:
        pq.write_table(table, stream, compression="zstd")
