"""How a data file is laid out: encoding, delimiter, and whether it is a table or has a word a line with its tag."""

import codecs
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from encodery.errors import UserError
from encodery.tasks.sources.readers import is_rows, nested, read, records, shown

FIRST = 5000  # rows in which nested keys are looked for
DELIMITERS = (",", ";", "\t", "|")
WORD_A_LINE = (".conll", ".conllu", ".bio", ".iob")
TABLES = (".csv", ".tsv", ".txt")


def encoding_of(path: Path, given: Mapping[str, Any]) -> str | None:
    binary = path.suffix.lower() == ".parquet"
    return given.get("encoding") or (None if binary else detect_encoding(path.read_bytes()))


def layout(path: Path, given: Mapping[str, Any], labelled: bool) -> dict[str, str] | None:
    """Encoding and delimiter where they are not the usual ones; None: it has a word a line and no table.

    A file that needs no label may have one column, and then no delimiter.
    """
    suffix, encoding = path.suffix.lower(), encoding_of(path, given)
    if suffix in WORD_A_LINE or (suffix in (".txt", ".tsv") and looks_tagged(_head(path, encoding))):
        return None
    options = {} if encoding is None else {"encoding": encoding}
    if suffix in TABLES and given.get("delimiter") is None:
        try:
            delimiter = detect_delimiter(path, _data(path, encoding))
        except UserError:
            if labelled:
                raise
            delimiter = usual_delimiter(suffix)
        options |= {} if delimiter == usual_delimiter(suffix) else {"delimiter": delimiter}
    return options


def csv_layout(path: Path) -> dict[str, str]:
    """What is unusual about a csv file, as a spreadsheet may have saved it; nothing of any other file."""
    here = path.suffix.lower() == ".csv" and path.is_file()
    return (layout(path, {}, labelled=False) if here else None) or {}


def columns_in(path: Path) -> tuple[str, ...]:
    """The columns of a file, nested keys included; none where it has no named columns."""
    squad = path.suffix.lower() == ".json" and not is_rows(path)
    if squad or (found := layout(path, {}, labelled=False)) is None:
        return ()
    sheet = read(path, delimiter=found.get("delimiter"), encoding=found.get("encoding"))
    inner = (name for row in sheet.rows[:FIRST] for name in nested(row.values))
    return tuple(dict.fromkeys((*sheet.columns, *inner)))


def usual_delimiter(suffix: str) -> str:
    """What the ending of a name promises."""
    return "," if suffix == ".csv" else "\t"


def detect_encoding(data: bytes) -> str | None:
    """None for UTF-8, also with a few broken bytes; else UTF-16 or Windows' cp1252."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    zeros = data[:4000]
    if zeros and zeros[1::2].count(0) > 0.4 * len(zeros) / 2:
        return "utf-16-le"
    if zeros and zeros[::2].count(0) > 0.4 * len(zeros) / 2:
        return "utf-16-be"
    try:
        data.decode()
    except UnicodeDecodeError:
        # Letters of UTF-8 are groups of bytes that cp1252 hardly ever has: where they prevail, some rows are broken.
        groups = len(re.findall(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}", data))
        alone = len(re.findall(rb"(?<![\x80-\xff])[\x80-\xff](?![\x80-\xff])", data))
        return None if groups >= alone else "cp1252"
    return None


def _data(path: Path, encoding: str | None) -> bytes:
    """The file as UTF-8, whatever it was."""
    data = path.read_bytes()
    if encoding is None:
        return data.removeprefix(codecs.BOM_UTF8)
    try:
        return data.decode(encoding).encode()
    except (UnicodeError, LookupError) as error:
        raise UserError(f"{path}: cannot be read with encoding {encoding}: {error}") from None


def _head(path: Path, encoding: str | None) -> str:
    return _data(path, encoding)[:100_000].decode(errors="replace")


def detect_delimiter(path: Path, data: bytes) -> str:
    """The one that cuts the first line into most columns and the others into as many."""
    usual = usual_delimiter(path.suffix.lower())
    quoted = path.suffix.lower() == ".csv"
    fits: dict[str, tuple[float, int]] = {}
    for delimiter in sorted(DELIMITERS, key=lambda mark: mark != usual):
        counts = _field_counts(data, delimiter, quoted)
        if counts and counts[0] > 1:
            fits[delimiter] = (round(counts.count(counts[0]) / len(counts), 1), counts[0])
    if not fits:
        first = data.split(b"\n", 1)[0].decode(errors="replace").strip()
        raise UserError(
            f"{path}: line 1 ({shown(first)}) does not look like the names of columns: it has no "
            f"{' or '.join(map(_named, DELIMITERS))}. A table needs a first line such as `text,label`; plain text "
            f"without labels is for pretraining (--tasks.kind corpus --tasks.files {path})."
        )
    return max(fits, key=lambda mark: fits[mark])  # the usual one of equals: it is the first


def _named(delimiter: str) -> str:
    return {"\t": "tab", ",": "comma", ";": "semicolon", "|": "bar"}[delimiter]


def _field_counts(data: bytes, delimiter: str, quoted: bool) -> list[int]:
    """Fields of the first lines."""
    if not quoted:
        lines = [line for line in data[:200_000].split(b"\n")[:200] if line.strip()]
        return [line.count(delimiter.encode()) + 1 for line in lines]
    counts: list[int] = []
    for _, _, cells in records(data, delimiter):
        counts.append(len(cells) if isinstance(cells, list) else 0)
        if len(counts) == 200:
            break
    return counts


def looks_tagged(text: str) -> bool:
    """Whether it is a word a line with its tag, and an empty line after each sentence."""
    lines = [line.rstrip("\r") for line in text.split("\n")[:-1]][:2000]
    words = [cells_of(line) for line in lines if line.strip(" \t")]
    words = [cells for cells in words if not cells[0].startswith(("#", "-DOCSTART-"))]
    blank = len(lines) - len(words)
    if len(words) < 4 or not blank or len({len(cells) for cells in words}) != 1 or len(words[0]) < 2:
        return False
    tags = {cells[-1] for cells in words}
    return len(tags) <= max(3, len(words) / 2) and not any(" " in cells[0].strip() for cells in words)


def cells_of(line: str) -> list[str]:
    """The columns of a word's line. Other blanks than tab and space, as in `10 000` with U+00A0, belong to the word."""
    return line.split("\t") if "\t" in line else [cell for cell in line.split(" ") if cell]
