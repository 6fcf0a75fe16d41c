"""Strict readers of jsonl, csv, tsv and Parquet: a legal row arrives, a bad one is named by file, line and column.

Lines end at \\n or \\r\\n and nowhere else, so that a lone \\r, U+2028 or NUL stays what it is: part of a text.
"""

import codecs
import json
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from encodery.core.text import first_line
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

    def numbered(self) -> list[tuple[int, Row]]:
        """The rows with their number in the file, from 0. Rows that could not be read count: ids must not shift."""
        unread = sorted({bad.line for bad in self.bad} - {row.line for row in self.rows})
        return [(place + bisect_left(unread, row.line), row) for place, row in enumerate(self.rows)]


ADVICE = "Correct them, or continue without them: --skip-bad-rows (in a config: skip_bad_rows: true)."


def refuse(bad: Sequence[BadRow], advice: str = ADVICE) -> None:
    """Raise one error that names all bad rows, up to a limit."""
    if bad:
        raise UserError(f"{named(bad)}\n{advice}")


def named(bad: Sequence[BadRow], what: str = "bad row") -> str:
    """How many rows, and each by file, line and column, up to a limit."""
    more = f"\n  and {len(bad) - SHOWN:,} more" if len(bad) > SHOWN else ""
    listed = "".join(f"\n  {row}" for row in bad[:SHOWN])
    return f"{len(bad):,} {what}{'' if len(bad) == 1 else 's'}:{listed}{more}"


def read(
    path: Path,
    columns: Sequence[str] | None = None,
    header: Sequence[str] | None = None,
    *,
    delimiter: str | None = None,
    encoding: str | None = None,
) -> Sheet:
    """The rows of a file; `header` names the columns of a tsv without a header, `columns` limits what Parquet loads.

    A column may be a key inside a key: `review.text`. Delimiter and encoding are by default those that the ending of
    the name promises: a comma for csv, a tab for tsv and txt, and UTF-8.
    """
    readers: dict[str, Callable[[], Sheet]] = {
        ".jsonl": lambda: read_jsonl(path, columns, encoding),
        ".ndjson": lambda: read_jsonl(path, columns, encoding),
        ".json": lambda: read_json(path, columns, encoding),
        ".csv": lambda: read_csv(path, delimiter or ",", encoding),
        ".tsv": lambda: read_tsv(path, header, delimiter or "\t", encoding),
        ".txt": lambda: read_tsv(path, header, delimiter or "\t", encoding),
        ".parquet": lambda: read_parquet(path, columns),
    }
    if path.is_dir():
        raise UserError(f"{path}: is a folder; give a file in it")
    if path.suffix.lower() not in readers:
        raise UserError(f"{path}: unknown kind of file; it must end in {', '.join(readers)}")
    try:
        return readers[path.suffix.lower()]()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error})") from error


def read_tsv(
    path: Path, header: Sequence[str] | None = None, delimiter: str = "\t", encoding: str | None = None
) -> Sheet:
    """Tab-separated values without any quoting: a quotation mark is a character like others."""
    sheet = Sheet(str(path), _names(path, header) if header else ())
    for line, raw, _ in _held_blanks(_lines(path, encoding), sheet):
        try:
            _take(sheet, path, line, decoded(raw).split(delimiter))
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


def read_jsonl(path: Path, columns: Sequence[str] | None = None, encoding: str | None = None) -> Sheet:
    """One JSON object per line; of nested keys those that are asked for become columns."""
    sheet = Sheet(str(path))
    inner = [name for name in columns or () if "." in name]
    names: dict[str, None] = {}
    for line, raw, _ in _held_blanks(_lines(path, encoding), sheet):
        try:
            values = _with_inner(json_object(decoded(raw)), inner)
            names.update(dict.fromkeys(values))
            sheet.rows.append(Row(line, values))
        except Bad as bad:
            sheet.refuse(line, bad, raw_shown(raw))
    sheet.columns = tuple(names)
    return sheet


def read_json(path: Path, columns: Sequence[str] | None = None, encoding: str | None = None) -> Sheet:
    """A list of JSON objects; many programs also write one object per line under this ending."""
    data = as_utf8(path, path.read_bytes(), encoding)
    if not data.lstrip().startswith(b"["):
        return read_jsonl(path, columns, encoding)
    sheet, names = Sheet(str(path)), dict[str, None]()
    inner = [name for name in columns or () if "." in name]
    for line, value in _entries(path, data):
        if not isinstance(value, dict):
            sheet.refuse(line, Bad(f"expected an object, not {shown(value)}"), shown(value))
            continue
        values = _with_inner(value, inner)
        names.update(dict.fromkeys(values))
        sheet.rows.append(Row(line, values))
    sheet.columns = tuple(names)
    return sheet


def is_rows(path: Path) -> bool:
    """Whether a .json file holds rows: a list of objects, or several objects one after the other."""
    try:
        with path.open("rb") as stream:
            lines = (line.strip() for line in stream if line.strip())
            first, second = (next(lines, b"").removeprefix(codecs.BOM_UTF8) for _ in range(2))
    except OSError:
        return False
    if first.startswith(b"["):
        return (first[1:] + second).lstrip().startswith(b"{")
    return first.startswith(b"{") and first.endswith(b"}") and second.startswith(b"{")


def _entries(path: Path, data: bytes) -> Iterator[tuple[int, Any]]:
    """The entries of a JSON list, each with the line that it begins in."""
    decoder, at, line, seen = json.JSONDecoder(object_pairs_hook=_once), 0, 1, 0
    try:
        text = data.decode()
        at = _after_blanks(text, text.index("[") + 1)
        while not text.startswith("]", at):
            line, seen = line + text.count("\n", seen, at), at
            value, at = decoder.raw_decode(text, at)
            yield line, value
            at = _after_blanks(text, at)
            if text.startswith(",", at):
                at = _after_blanks(text, at + 1)
            elif not text.startswith("]", at):
                raise json.JSONDecodeError("expected a comma or the end of the list", text, at)
    except (ValueError, RecursionError, Bad) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else getattr(error, "why", error)
        raise UserError(f"{path}, line {line}: not valid JSON: {reason}") from None


def _after_blanks(text: str, at: int) -> int:
    blank = re.compile(r"\s*").match(text, at)
    return blank.end() if blank else at


def _with_inner(values: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The object with `review.text` beside `review`, for the names that are asked for."""
    return values | {name: value for name, value in nested(values).items() if name in names} if names else values


def nested(values: Mapping[str, Any], deep: int = 4) -> dict[str, Any]:
    """The values with objects opened: {"review": {"text": …}} has the column `review.text`."""
    if not any(isinstance(value, dict) for value in values.values()):
        return dict(values)
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict) and deep:
            flat |= {f"{name}.{key}": inner for key, inner in nested(value, deep - 1).items()}
        else:
            flat[name] = value
    return flat


def open_nested(sheet: Sheet, names: Iterable[Any]) -> None:
    """Give the sheet the nested keys among these names as columns."""
    wanted = [name for name in names if isinstance(name, str) and "." in name and name not in sheet.columns]
    if wanted:
        sheet.rows = [Row(row.line, _with_inner(row.values, wanted)) for row in sheet.rows]
        there = {name for row in sheet.rows for name in wanted if name in row.values}
        sheet.columns = (*sheet.columns, *(name for name in wanted if name in there))


def read_csv(path: Path, delimiter: str = ",", encoding: str | None = None) -> Sheet:
    """Comma-separated values with the usual quoting; a quote that never closes or closes too early is an error."""
    sheet = Sheet(str(path))
    for line, raw, cells in _held_blanks(records(as_utf8(path, path.read_bytes(), encoding), delimiter), sheet):
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
        tops = None if columns is None else {top for name in columns for top in (name, name.partition(".")[0])}
        wanted = [name for name in names if tops is None or name in tops]
        table = file.read(columns=wanted)
        values = [parquet_column(table.column(name)) for name in wanted]
    except pa.ArrowException as error:
        raise UserError(f"{path}: is not a readable Parquet file ({first_line(error)})") from error
    rows = zip(*values, strict=True) if values else iter([()] * table.num_rows)
    inner = [name for name in columns or () if "." in name and name not in names]
    found = [Row(i, _with_inner(dict(zip(wanted, row, strict=True)), inner)) for i, row in enumerate(rows, 1)]
    return Sheet(str(path), (*names, *(name for name in inner if any(name in row.values for row in found))), found)


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
_OR_ENCODING = ", or give the task `encoding: utf-16`"


def _lines(path: Path, encoding: str | None = None) -> Iterator[tuple[int, bytes, _Cells]]:
    if encoding is not None:
        for number, raw in enumerate(as_utf8(path, path.read_bytes(), encoding).removesuffix(b"\n").split(b"\n"), 1):
            yield number, raw.removesuffix(b"\r"), []
        return
    with path.open("rb") as file:
        for number, raw in enumerate(file, 1):
            raw = without_mark(path, raw, _OR_ENCODING) if number == 1 else raw
            yield number, raw.removesuffix(b"\n").removesuffix(b"\r"), []


def as_utf8(path: Path, data: bytes, encoding: str | None) -> bytes:
    """The bytes of a file in another encoding as UTF-8, without a byte-order mark; those of UTF-8 as they are."""
    if encoding is None:
        return without_mark(path, data, _OR_ENCODING)
    try:
        return data.decode(encoding).removeprefix("\ufeff").encode()
    except LookupError:
        raise UserError(f"{path}: there is no encoding {encoding}; try utf-8, cp1252, latin-1 or utf-16") from None
    except UnicodeError as error:
        start = getattr(error, "start", 0)
        line = data.count(b"\n", 0, start) + 1
        raise UserError(f"{path}, line {line}: byte {start + 1} of the file is not valid {encoding}") from None


def known_encoding(name: str | None) -> str | None:
    """The name, if Python knows such an encoding of text; UTF-8 is what is meant without one."""
    if name is None or name.lower().replace("_", "-") in ("utf-8", "utf8"):
        return None
    try:
        if not codecs.lookup(name)._is_text_encoding:
            raise LookupError
    except LookupError:
        raise ValueError("expected an encoding of text, such as utf-8, cp1252, latin-1 or utf-16") from None
    return name


def without_mark(path: Path, data: bytes, advice: str = "") -> bytes:
    """Without the byte-order mark that some editors write; UTF-16 is refused by name."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise UserError(f"{path}: is UTF-16; save it as UTF-8{advice}")
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
        raise Bad(f"byte {error.start + 1} of the line (0x{raw[error.start]:02x}) is not valid UTF-8") from None


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
        raise Bad(f"{len(cells)} field{'' if len(cells) == 1 else 's'} instead of {len(columns)}", missing)
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
        raise Bad(f"not valid JSON: {error.msg.removesuffix(' at')} at character {error.pos + 1}") from None
    except (ValueError, RecursionError) as error:
        raise Bad(f"not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise Bad(f'{shown(value)} is not an object like {{"text": …}}')
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        names = [name for name, _ in pairs]
        raise Bad("occurs twice in the object", next(name for name in names if names.count(name) > 1))
    return values


def records(data: bytes, delimiter: str = ",") -> Iterator[tuple[int, bytes, _Cells]]:
    """Line, bytes and cells of each record. After a broken one reading goes on at the next line."""
    mark = delimiter.encode()
    end_of_cell = re.compile(b"[" + re.escape(mark) + rb"\n]")
    at, line = 0, 1
    while at < len(data):
        try:
            cells, end = _record(data, at, mark, end_of_cell)
        except Bad as bad:
            newline = data.find(b"\n", at)
            end = newline + 1 if newline >= 0 else len(data)
            yield line, data[at:end].rstrip(b"\r\n"), bad
        else:
            yield line, data[at:end].removesuffix(b"\n").removesuffix(b"\r"), cells
        line += data.count(b"\n", at, end)
        at = end


def _record(data: bytes, at: int, mark: bytes, end_of_cell: re.Pattern[bytes]) -> tuple[list[bytes], int]:
    """The cells of the record that begins here, and where the next one begins."""
    cells: list[bytes] = []
    while True:
        quoted = data.startswith(b'"', at)
        cell, at = _quoted(data, at, len(cells), mark) if quoted else _plain(data, at, mark, end_of_cell)
        cells.append(cell)
        if not data.startswith(mark, at):
            return cells, at + 1 if at < len(data) else at
        at += 1


def _plain(data: bytes, at: int, mark: bytes, end_of_cell: re.Pattern[bytes]) -> tuple[bytes, int]:
    match = end_of_cell.search(data, at)
    end = match.start() if match else len(data)
    cell = data[at:end]
    return (cell if data.startswith(mark, end) else cell.removesuffix(b"\r")), end


def _quoted(data: bytes, at: int, number: int, mark: bytes) -> tuple[bytes, int]:
    """A cell in quotes, where a doubled quote stands for one."""
    close = data.find(b'"', at + 1)
    while close >= 0 and data.startswith(b'"', close + 1):
        close = data.find(b'"', close + 2)
    if close < 0:
        raise Bad(f"field {number + 1} opens a quote that is never closed")
    end = close + 2 if data.startswith(b"\r\n", close + 1) else close + 1
    if end < len(data) and data[end : end + 1] not in (mark, b"\n"):
        lines = data.count(b"\n", at, close)
        where = f"{lines} lines further down" if lines else "in the same line"
        raise Bad(f"field {number + 1} opens a quote, and text follows its closing quote {where}")
    return data[at + 1 : close].replace(b'""', b'"'), end


def shown(value: object) -> str:
    """A value for an error message."""
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= CUT else text[:CUT] + "…"


def need_columns(sheet: Sheet, names: Iterable[str], advice: str = "") -> None:
    """Every named column must exist; the error says which ones do, which is nearest, and what to do about it."""
    for name in names:
        if name not in sheet.columns and (sheet.rows or sheet.columns):
            near = get_close_matches(name, sheet.columns, n=1, cutoff=0.5)
            hint = f' (did you mean "{near[0]}"?)' if near else ""
            raise UserError(
                f'{sheet.file}: there is no column "{name}"{hint}; it has {", ".join(sheet.columns)}{advice}'
            )
