"""A table in a terminal's width: settings that have no room go below it as a legend, and no number is folded.

What is still too wide is shown as several tables of the same rows, one below the other.
"""

import itertools
import re
from collections.abc import Collection, Iterator, Sequence
from string import ascii_lowercase
from typing import NamedTuple

from rich.cells import cell_len

Cells = list[str]
LONG = 30  # characters of a cell that may become a note, or be wrapped although it begins with a number
WORD = 20  # characters of a word that is not folded
GAP = 3  # characters between two columns
LEGEND = "settings"  # the column that names a line of the legend
_NUMBER = re.compile(r"\**([-+−<]?\d|– \()")


class Column(NamedTuple):
    """How wide a column is at most and at least, and whether it holds numbers."""

    widest: int
    narrowest: int
    numbers: bool


class Fitted(NamedTuple):
    """The tables to show one below the other, and the lines below them: notes, then the legend."""

    tables: list[list[Cells]]
    below: list[str]


def fitted(table: list[Cells], width: int, settings: Collection[str] = ()) -> Fitted:
    """The table in this width; `settings` are the headers of columns that may go into the legend."""
    columns = max(map(len, table))
    table = [[*row, *[""] * (columns - len(row))] for row in table]
    movable = [table[0].index(name) for name in dict.fromkeys(settings) if name in table[0]]
    table, notes = with_notes(table, width, movable)
    below = [f"[{number}] {note}" for number, note in enumerate(notes, 1)]
    widest_first = sorted(movable, key=lambda column: -_size(table, column))
    for count in range(len(movable) + 1):
        shorter, legend = with_legend(table, widest_first[:count])
        if _needed(shorter, settings) <= width:
            return Fitted([shorter], [*below, *legend])
    few = sum(_size(table, column) + GAP for column in movable) <= width // 3
    table, legend = (table, []) if few else with_legend(table, movable)
    return Fitted(list(_parts(table, _keys(table, settings), width)), [*below, *legend])


def with_notes(table: list[Cells], width: int, kept: Collection[int] = ()) -> tuple[list[Cells], list[str]]:
    """The table with its longest cells moved below it as notes, where it would be too wide; not those of `kept`."""
    table, notes = [list(row) for row in table], list[str]()
    while True:
        sizes = [_size(table, column) for column in range(len(table[0]))]
        others = [column for column in range(1, len(sizes)) if column not in kept]
        widest = max(others, key=lambda column: sizes[column], default=0)
        if sum(sizes) + GAP * len(sizes) <= width or not widest or sizes[widest] <= LONG:
            return table, notes
        for row in table[1:]:
            if len(row[widest]) > LONG // 2:
                text = row[widest]
                notes += [] if text in notes else [text]
                row[widest] = f"[{notes.index(text) + 1}]"
        if _size(table, widest) > LONG:  # the header
            return table, notes


def with_legend(table: list[Cells], moved: Collection[int]) -> tuple[list[Cells], list[str]]:
    """The table without these columns, and a line for each of the sets of values that they held: `a: lr=0.1, …`."""
    if not moved:
        return table, []
    first, header = min(moved), table[0]
    names: dict[tuple[str, ...], str] = {}
    letters = _letters()
    rest = []
    for row in table:
        values = tuple(row[column] for column in sorted(moved))
        name = LEGEND if row is header else names.get(values) or names.setdefault(values, next(letters))
        cells = [name if column == first else cell for column, cell in enumerate(row)]
        rest.append([cell for column, cell in enumerate(cells) if column == first or column not in moved])
    keys = [header[column] for column in sorted(moved)]
    pairs = {name: zip(keys, values, strict=True) for values, name in names.items()}
    lines = {name: ", ".join(f"{key}={value}" for key, value in found if value) for name, found in pairs.items()}
    return rest, [f"{name}: {text or 'none of these settings'}" for name, text in lines.items()]


def widths(table: list[Cells], width: int) -> list[int]:
    """How wide each column is drawn: columns of text give way to those of numbers."""
    columns = [column_of(table, column) for column in range(len(table[0]))]
    drawn = [column.widest for column in columns]
    while sum(drawn) + GAP * (len(drawn) - 1) > width:
        loose = [number for number, column in enumerate(columns) if drawn[number] > column.narrowest]
        if not loose:
            break
        drawn[max(loose, key=lambda number: drawn[number])] -= 1
    return drawn


def column_of(table: list[Cells], column: int) -> Column:
    """What a column needs: a number is whole, texts and headers may be wrapped between words."""
    header, *cells = (row[column].strip("*") for row in table)
    filled = [cell for cell in cells if cell]
    numbers = bool(filled) and all(_NUMBER.match(cell) for cell in filled)
    least = [min(_longest_word(text), WORD) for text in (header, *cells)]
    least += [cell_len(cell) if cell_len(cell) <= LONG else _longest_word(cell) for cell in cells if numbers]
    return Column(_size(table, column), max(least), numbers)


def _needed(table: list[Cells], unfolded: Collection[str]) -> int:
    """The least width of a table in which settings are not folded."""
    columns = [column_of(table, column) for column in range(len(table[0]))]
    sizes = [
        column.widest if name in unfolded else column.narrowest for name, column in zip(table[0], columns, strict=True)
    ]
    return sum(sizes) + GAP * (len(sizes) - 1)


def _keys(table: list[Cells], settings: Collection[str]) -> list[int]:
    """The first columns, which tell rows apart: settings and texts."""
    columns = range(len(table[0]))
    named = itertools.takewhile(
        lambda column: table[0][column] in settings or not column_of(table, column).numbers, columns
    )
    return list(named) or [0]


def _parts(table: list[Cells], keys: Sequence[int], width: int) -> Iterator[list[Cells]]:
    """The table cut between columns; each part begins with the keys, as far as half of the width has room for them."""
    ends = itertools.accumulate(_size(table, column) + GAP for column in keys)
    keys = keys[: max(1, sum(end <= width // 2 for end in ends))]
    begin = sum(_size(table, column) + GAP for column in keys) - GAP
    part, taken = list(keys), begin
    for column in range(len(keys), len(table[0])):
        needs = GAP + column_of(table, column).narrowest
        if taken + needs > width and len(part) > len(keys):
            yield [[row[column] for column in part] for row in table]
            part, taken = list(keys), begin
        part.append(column)
        taken += needs
    yield [[row[column] for column in part] for row in table]


def _letters() -> Iterator[str]:
    """a, b, …, z, aa, ab, …"""
    for length in itertools.count(1):
        yield from map("".join, itertools.product(ascii_lowercase, repeat=length))


def _size(table: list[Cells], column: int) -> int:
    return max(cell_len(row[column].strip("*")) for row in table)


def _longest_word(text: str) -> int:
    return max(map(cell_len, text.split()), default=0)
