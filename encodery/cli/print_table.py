"""Tables for people and programs: aligned and as wide as the terminal, Markdown in a pipe, CSV or JSON if asked for.

Verbs hand over Markdown, in which tables and remarks alternate; only what is shown at a terminal depends on its width.
"""

import csv
import io
import json
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal

from encodery.core.text import markdown_table

FORMATS = ("rich", "md", "csv", "json")
Cells = list[str]
_CELL = re.compile(r"(?<!\\)\|")


def show(markdown: str, form: str | None = None, settings: Collection[str] = ()) -> None:
    """Print tables and what is around them; without a format rich at a terminal, else Markdown.

    `settings` are columns that may go into a legend below the table where a terminal is too narrow for them.
    """
    form = form or ("rich" if sys.stdout.isatty() else "md")
    if form == "md":
        print(markdown)
    elif form == "rich":
        _rich(markdown, settings)
    else:
        tables = [block for block in blocks(markdown) if isinstance(block, list)]
        print(_csv(tables) if form == "csv" else json.dumps([_records(table) for table in tables], indent=1), end="")
        print("" if form == "csv" else "\n", end="")
        for text in (block for block in blocks(markdown) if isinstance(block, str)):
            print(text, file=sys.stderr)


Records = Sequence[Mapping[str, object]]


def show_records(sections: Mapping[str, Records], form: str | None = None) -> None:
    """Print records as a table for each section; in JSON they keep their types, and one section is a plain list."""
    if form == "json":
        plain = {title: list(records) for title, records in sections.items()}
        print(json.dumps(next(iter(plain.values())) if len(plain) == 1 else plain, indent=1, ensure_ascii=False))
        return
    parts = []
    for title, records in sections.items():
        header = list(dict.fromkeys(key for record in records for key in record))
        table = of_rows(header, [[_cell(record.get(key)) for key in header] for record in records])
        parts.append(f"{title}\n\n{table}" if len(sections) > 1 and form != "csv" else table)
    show("\n\n".join(parts), form)


def _cell(value: object) -> object:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else value


def of_rows(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Rows as a Markdown table."""
    return markdown_table(header, rows)


def blocks(markdown: str) -> Iterator[str | list[Cells]]:
    """Tables as rows of cells, the first of which is the header, and the text between them."""
    text: list[str] = []
    table: list[Cells] = []
    for line in [*markdown.split("\n"), ""]:
        if line.startswith("|"):
            if any(text):
                yield "\n".join(text).strip("\n")
            text = []
            cells = [cell.strip().replace("\\|", "|") for cell in _CELL.split(line.strip().strip("|"))]
            if not all(re.fullmatch(r":?-+:?", cell) for cell in cells):
                table.append(cells)
            continue
        if table:
            yield table
            table = []
        text.append(line)
    if any(text):
        yield "\n".join(text).strip("\n")


def _records(table: list[Cells]) -> list[dict[str, str]]:
    return [dict(zip(table[0], (cell.strip("*") for cell in row), strict=False)) for row in table[1:]]


def _csv(tables: Sequence[list[Cells]]) -> str:
    parts = []
    for table in tables:
        stream = io.StringIO()
        csv.writer(stream, lineterminator="\n").writerows([[cell.strip("*") for cell in row] for row in table])
        parts.append(stream.getvalue())
    return "\n".join(parts)


def _rich(markdown: str, settings: Collection[str]) -> None:
    from rich.console import Console

    from encodery.cli.fit_table import fitted

    console = Console(highlight=False)
    for number, block in enumerate(blocks(markdown)):
        if number:
            console.print()
        if isinstance(block, str):
            console.print(block, markup=False)
        else:
            parts, below = fitted(block, console.width, settings)
            for number_of_part, part in enumerate(parts):
                console.print(*([""] if number_of_part else []), _table(part, console.width), sep="\n")
            for line in below:
                console.print(line, markup=False)


def _table(table: list[Cells], width: int) -> object:
    """Numbers to the right and never folded; long texts are folded."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from encodery.cli.fit_table import column_of, widths

    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column, (header, size) in enumerate(zip(table[0], widths(table, width), strict=True)):
        side: Literal["left", "right"] = "right" if column_of(table, column).numbers else "left"
        drawn.add_column(Text(header), justify=side, overflow="fold", width=size)
    for row in table[1:]:
        drawn.add_row(*(Text(cell.strip("*"), style="bold" if cell.startswith("**") else "") for cell in row))
    return drawn
