"""Tables for people and programs: aligned and as wide as the terminal, Markdown in a pipe, CSV or JSON if asked for.

Verbs hand over Markdown, in which tables and remarks alternate; only what is shown at a terminal depends on its width.
"""

import csv
import io
import itertools
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence

from encodery.core.text import markdown_table

FORMATS = ("rich", "md", "csv", "json")
Cells = list[str]
LONG = 30  # characters of a cell that may become a note
_CELL = re.compile(r"(?<!\\)\|")


def show(markdown: str, form: str | None = None) -> None:
    """Print tables and what is around them; without a format rich at a terminal, else Markdown."""
    form = form or ("rich" if sys.stdout.isatty() else "md")
    if form == "md":
        print(markdown)
    elif form == "rich":
        _rich(markdown)
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


def _rich(markdown: str) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    for number, block in enumerate(blocks(markdown)):
        if number:
            console.print()
        if isinstance(block, str):
            console.print(block, markup=False)
        else:
            block, notes = with_notes(block, console.width)
            console.print(_table(block))
            for place, note in enumerate(notes, 1):
                console.print(f"[{place}] {note}", markup=False)


def with_notes(table: list[Cells], width: int) -> tuple[list[Cells], list[str]]:
    """The table with its longest cells moved below it as notes, where it would be too wide otherwise."""
    table, notes = [list(row) for row in table], list[str]()
    while True:
        sizes = [max(len(cell) for cell in column) for column in itertools.zip_longest(*table, fillvalue="")]
        widest = max(range(1, len(sizes)), key=lambda column: sizes[column], default=0)
        if sum(sizes) + 3 * len(sizes) <= width or not widest or sizes[widest] <= LONG:
            return table, notes
        for row in table[1:]:
            if widest < len(row) and len(row[widest]) > LONG // 2:
                text = row[widest]
                notes += [] if text in notes else [text]
                row[widest] = f"[{notes.index(text) + 1}]"
        if max(len(row[widest]) for row in table if widest < len(row)) > LONG:  # the header
            return table, notes


def _table(table: list[Cells]) -> object:
    """Numbers to the right; long cells are folded, so that every column is there however narrow the terminal is."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    width = max(map(len, table))
    for column in range(width):
        cells = [row[column] for row in table[1:] if column < len(row) and row[column]]
        numbers = bool(cells) and all(re.match(r"\**[-+−]?\d", cell) for cell in cells)
        header = table[0][column] if column < len(table[0]) else ""
        drawn.add_column(header, justify="right" if numbers else "left", overflow="fold")
    for row in table[1:]:
        cells = [*row, *[""] * (width - len(row))]
        drawn.add_row(*(Text(cell.strip("*"), style="bold" if cell.startswith("**") else "") for cell in cells))
    return drawn
