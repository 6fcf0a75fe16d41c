"""Strict readers of jsonl, csv, tsv and Parquet: a legal row arrives, a bad one is named by file, line and column.

Lines end at \\n or \\r\\n and nowhere else, so that a lone \\r, U+2028 or NUL stays what it is: part of a text.
"""

import codecs
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from encodery.errors import UserError

SHOWN = 20  # bad rows that an error message shows
CUT = 200  # characters of a value that it shows


class Bad(Exception):
    """Why one row cannot be used; becomes a BadRow as soon as file and line are known."""

    def __init__(self, why: str, column: str | None = None) -> None:
        super().__init__(why)
        self.why, self.column = why, column


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that was refused."""

    file: str
    line: int  # from 1; in Parquet, which has no lines, the row
    column: str | None
    why: str
    raw: str  # the row as found; bytes that are no text appear as \xNN

    def __str__(self) -> str:
        unit = "row" if self.file.endswith(".parquet") or self.file.startswith("hub:") else "line"
        return (
            f"{self.file}, {unit} {self.line}" + (f', column "{self.column}"' if self.column else "") + f": {self.why}"
        )


class Row(NamedTuple):
    """A row as the file has it."""

    line: int
    values: dict[str, Any]


@dataclass(slots=True)
class Sheet:
    """A file as it was read."""

    file: str
    columns: tuple[str, ...] = ()
    rows: list[Row] = field(default_factory=list)
    bad: list[BadRow] = field(default_factory=list)

    def refuse(self, line: int, bad: Bad, raw: str) -> None:
        """Note a bad row."""
        self.bad.append(BadRow(self.file, line, bad.column, bad.why, raw))


def refuse(bad: Sequence[BadRow], advice: str = "Correct them, or go on without them with skip_bad_rows.") -> None:
    """Raise one error that names all bad rows, up to a limit."""
    if bad:
        more = f"\n  and {len(bad) - SHOWN:,} more" if len(bad) > SHOWN else ""
        listed = "".join(f"\n  {row}" for row in bad[:SHOWN])
        count = "1 bad row" if len(bad) == 1 else f"{len(bad):,} bad rows"
        raise UserError(f"{count}:{listed}{more}\n{advice}")


def read(path: Path, columns: Sequence[str] | None = None, header: Sequence[str] | None = None) -> Sheet:
    """The rows of a file; `header` names the columns of a tsv without a header, `columns` limits what Parquet loads."""
    readers: dict[str, Callable[[], Sheet]] = {
        ".jsonl": lambda: read_jsonl(path),
        ".ndjson": lambda: read_jsonl(path),
        ".csv": lambda: read_csv(path),
        ".tsv": lambda: read_tsv(path, header),
        ".txt": lambda: read_tsv(path, header),
        ".parquet": lambda: read_parquet(path, columns),
    }
    if path.suffix.lower() not in readers:
        raise UserError(f"{path}: unknown kind of file; it must end in {', '.join(readers)}")
    try:
        return readers[path.suffix.lower()]()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error})") from error


def read_tsv(path: Path, header: Sequence[str] | None = None) -> Sheet:
    """Tab-separated values without any quoting: a quotation mark is a character like others."""
    sheet = Sheet(str(path), _names(path, header) if header else ())
    for line, raw, _ in _held_blanks(_lines(path), sheet):
        try:
            _take(sheet, path, line, decoded(raw).split("\t"))
        except Bad as bad:
            _refuse_header(sheet, line, bad)
            sheet.refuse(line, bad, raw_shown(raw))
    return _not_empty(sheet)


def _take(sheet: Sheet, path: Path, line: int, cells: list[str]) -> None:
    """The next line of a table: the first names its columns, unless they are known."""
    if sheet.columns:
        sheet.rows.append(Row(line, _by_name(sheet.columns, cells)))
    else:
        sheet.columns = _names(path, cells)


def read_jsonl(path: Path) -> Sheet:
    """One JSON object per line."""
    sheet = Sheet(str(path))
    columns: dict[str, None] = {}
    for line, raw, _ in _held_blanks(_lines(path), sheet):
        try:
            values = json_object(decoded(raw))
            columns.update(dict.fromkeys(values))
            sheet.rows.append(Row(line, values))
        except Bad as bad:
            sheet.refuse(line, bad, raw_shown(raw))
    sheet.columns = tuple(columns)
    return sheet


def read_csv(path: Path) -> Sheet:
    """Comma-separated values with the usual quoting; a quote that never closes or closes too early is an error."""
    sheet = Sheet(str(path))
    for line, raw, cells in _held_blanks(_records(without_mark(path, path.read_bytes())), sheet):
        try:
            if isinstance(cells, Bad):
                raise cells
            decoded(raw)
            _take(sheet, path, line, [cell.decode() for cell in cells])
        except Bad as bad:
            _refuse_header(sheet, line, bad)
            sheet.refuse(line, bad, raw_shown(raw))
    return _not_empty(sheet)


def read_parquet(path: Path, columns: Sequence[str] | None = None) -> Sheet:
    """A Parquet file; rows are counted from 1."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
        names = tuple(file.schema_arrow.names)
        wanted = [name for name in names if columns is None or name in columns]
        table = file.read(columns=wanted)
        values = [parquet_column(table.column(name)) for name in wanted]
    except pa.ArrowException as error:
        raise UserError(f"{path}: is no readable Parquet file ({str(error).splitlines()[0]})") from error
    rows = zip(*values, strict=True) if values else iter([()] * table.num_rows)
    return Sheet(str(path), names, [Row(i, dict(zip(wanted, row, strict=True))) for i, row in enumerate(rows, 1)])


def parquet_column(column: Any) -> list[Any]:
    """Values of a column; a text that is no UTF-8 stays bytes, so that its row alone is refused."""
    import pyarrow as pa

    try:
        return list(column.to_pylist())
    except UnicodeDecodeError:
        kind = pa.large_binary() if pa.types.is_large_string(column.type) else pa.binary()
        return [_try_decode(value) for value in column.cast(kind).to_pylist()]


def _try_decode(value: bytes | None) -> str | bytes | None:
    try:
        return value.decode() if value is not None else None
    except UnicodeDecodeError:
        return value


_Cells = list[bytes] | Bad


def _lines(path: Path) -> Iterator[tuple[int, bytes, _Cells]]:
    with path.open("rb") as file:
        for number, raw in enumerate(file, 1):
            raw = without_mark(path, raw) if number == 1 else raw
            yield number, raw.removesuffix(b"\n").removesuffix(b"\r"), []


def without_mark(path: Path, data: bytes) -> bytes:
    """Without the byte-order mark that some editors write; UTF-16 is refused by name."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise UserError(f"{path}: is UTF-16; save it as UTF-8")
    return data.removeprefix(codecs.BOM_UTF8)


def _held_blanks(records: Iterable[tuple[int, bytes, _Cells]], sheet: Sheet) -> Iterator[tuple[int, bytes, _Cells]]:
    """The records; an empty line is a bad row, unless it ends the file or one empty cell is all that a row needs."""
    blank: list[int] = []
    for line, raw, cells in records:
        if not raw.strip(b" \r") and len(sheet.columns) != 1:
            blank.append(line)
            continue
        for number in blank:
            sheet.refuse(number, Bad("the line is empty"), "")
        blank.clear()
        yield line, raw, cells


def decoded(raw: bytes) -> str:
    """A line as text; Bad names the first wrong byte."""
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise Bad(f"byte {error.start + 1} of the line (0x{raw[error.start]:02x}) is no valid UTF-8") from None


def raw_shown(raw: bytes) -> str:
    """Bytes for an error message."""
    return raw.decode(errors="backslashreplace")


def _names(path: Path, cells: Iterable[str]) -> tuple[str, ...]:
    names = tuple(cells)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UserError(f'{path}, line 1: the column "{twice[0]}" occurs twice')
    return names


def _by_name(columns: Sequence[str], cells: Sequence[str]) -> dict[str, Any]:
    if len(cells) != len(columns):
        missing = columns[len(cells)] if len(cells) < len(columns) else None
        raise Bad(f"{len(cells)} fields instead of {len(columns)}", missing)
    return dict(zip(columns, cells, strict=True))


def _refuse_header(sheet: Sheet, line: int, bad: Bad) -> None:
    """Without column names no row can be read, so a bad header ends the reading."""
    if not sheet.columns:
        raise UserError(f"{sheet.file}, line {line}: the header cannot be read: {bad.why}")


def _not_empty(sheet: Sheet) -> Sheet:
    if not sheet.columns:
        raise UserError(f"{sheet.file}: is empty; the first line must name the columns")
    return sheet


def json_object(text: str) -> dict[str, Any]:
    """One line of jsonl."""
    try:
        value = json.loads(text, object_pairs_hook=_once)
    except json.JSONDecodeError as error:
        raise Bad(f"no valid JSON: {error.msg} at character {error.pos + 1}") from None
    except (ValueError, RecursionError) as error:
        raise Bad(f"no valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise Bad(f'{shown(value)} is not an object like {{"text": …}}')
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        names = [name for name, _ in pairs]
        raise Bad("occurs twice in the object", next(name for name in names if names.count(name) > 1))
    return values


_END = re.compile(rb"[,\n]")


def _records(data: bytes) -> Iterator[tuple[int, bytes, _Cells]]:
    """Line, bytes and cells of each record. After a broken one reading goes on at the next line."""
    at, line = 0, 1
    while at < len(data):
        try:
            cells, end = _record(data, at)
        except Bad as bad:
            newline = data.find(b"\n", at)
            end = newline + 1 if newline >= 0 else len(data)
            yield line, data[at:end].rstrip(b"\r\n"), bad
        else:
            yield line, data[at:end].removesuffix(b"\n").removesuffix(b"\r"), cells
        line += data.count(b"\n", at, end)
        at = end


def _record(data: bytes, at: int) -> tuple[list[bytes], int]:
    """The cells of the record that begins here, and where the next one begins."""
    cells: list[bytes] = []
    while True:
        cell, at = _quoted(data, at, len(cells)) if data.startswith(b'"', at) else _plain(data, at)
        cells.append(cell)
        if not data.startswith(b",", at):
            return cells, at + 1 if at < len(data) else at
        at += 1


def _plain(data: bytes, at: int) -> tuple[bytes, int]:
    match = _END.search(data, at)
    end = match.start() if match else len(data)
    cell = data[at:end]
    return (cell if data.startswith(b",", end) else cell.removesuffix(b"\r")), end


def _quoted(data: bytes, at: int, place: int) -> tuple[bytes, int]:
    """A cell in quotes, where a doubled quote stands for one."""
    close = data.find(b'"', at + 1)
    while close >= 0 and data.startswith(b'"', close + 1):
        close = data.find(b'"', close + 2)
    if close < 0:
        raise Bad(f"field {place + 1} opens a quote that is never closed")
    end = close + 2 if data.startswith(b"\r\n", close + 1) else close + 1
    if end < len(data) and data[end : end + 1] not in (b",", b"\n"):
        lines = data.count(b"\n", at, close)
        where = f"{lines} lines further down" if lines else "in the same line"
        raise Bad(f"field {place + 1} opens a quote, and text follows its closing quote {where}")
    return data[at + 1 : close].replace(b'""', b'"'), end


def shown(value: object) -> str:
    """A value for an error message."""
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= CUT else text[:CUT] + "…"


def need_columns(sheet: Sheet, names: Iterable[str]) -> None:
    """Every named column must exist; the error says which ones do and which is nearest."""
    for name in names:
        if name not in sheet.columns and (sheet.rows or sheet.columns):
            near = get_close_matches(name, sheet.columns, n=1, cutoff=0.5)
            hint = f' (did you mean "{near[0]}"?)' if near else ""
            raise UserError(f'{sheet.file}: there is no column "{name}"{hint}; it has {", ".join(sheet.columns)}')
