"""Files with words and their tags: CoNLL columns, or rows (jsonl, Parquet) with a list of words and a list of tags."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from encodery.errors import UserError
from encodery.tasks.base import Example
from encodery.tasks.readers import Bad, Row, Sheet, need_columns, read, shown
from encodery.tasks.rows import good_rows, label_name, must_be_in, name_of

ROWS = (".jsonl", ".ndjson", ".parquet")
Column = str | int


def read_tagged(path: Path, words: Column, tags: Column, id: str | None, hidden: bool) -> Sheet:
    """Sentences with the columns `words`, `tags` (absent only if they may be hidden) and `id`."""
    if path.suffix.lower() not in ROWS:
        return _read_columns(path, words, tags)
    sheet = read(path, [str(words), str(tags), *filter(None, [id])])
    need_columns(sheet, [str(words), *filter(None, [id])])
    if not hidden:
        need_columns(sheet, [str(tags)])
    for row in sheet.rows:
        row.values["words"], row.values["tags"] = row.values.get(str(words)), row.values.get(str(tags))
        row.values["id"] = row.values.get(id) if id else None
    return sheet


def _read_columns(path: Path, words: Column, tags: Column) -> Sheet:
    """A word a line, columns parted by a tab or blanks, an empty line after each sentence."""
    universal = path.suffix.lower() == ".conllu"
    word_at, tag_at = _place(words, 1 if universal else 0), _place(tags, 3 if universal else -1)
    sheet = Sheet(str(path), ("words", "tags", "id"))
    for line, block in _blocks(path):
        comments = dict(_comment(text) for _, text in block if universal and text.startswith("#"))
        kept: list[tuple[str, str]] = []
        try:
            for number, text in block:
                cells = text.split("\t") if "\t" in text else text.split()
                if (universal and _skipped(cells[0])) or cells[0] == "-DOCSTART-":
                    continue
                kept.append((_cell(cells, word_at, number), _cell(cells, tag_at, number)))
        except Bad as bad:
            sheet.refuse(line, bad, block[0][1])
            continue
        if kept:
            values = {"words": [w for w, _ in kept], "tags": [t for _, t in kept], "id": comments.get("sent_id")}
            sheet.rows.append(Row(line, values))
    return sheet


def _place(column: Column, usual: int) -> int:
    """A column's number; a name (which such files do not have) stands for the usual place."""
    return column if isinstance(column, int) else usual


def _comment(text: str) -> tuple[str, str]:
    name, _, value = text.lstrip("# ").partition("=")
    return name.strip(), value.strip()


def _skipped(cell: str) -> bool:
    """Comments, joined words (1-2) and words that are not there (1.1) of Universal Dependencies."""
    return cell.startswith("#") or not cell.isdecimal()


def _cell(cells: Sequence[str], place: int, line: int) -> str:
    if not -len(cells) <= place < len(cells) or (len(cells) < 2):
        raise Bad(f"line {line} has {len(cells)} columns, and column {place} is wanted")
    return cells[place]


def _blocks(path: Path) -> Iterator[tuple[int, list[tuple[int, str]]]]:
    """Sentences: the line they begin at, and their lines."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error})") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: byte {error.start + 1} is no valid UTF-8") from None
    block: list[tuple[int, str]] = []
    for number, line in enumerate([*text.split("\n"), ""], 1):
        line = line.removesuffix("\r")
        if line.strip():
            block.append((number, line))
        elif block:
            yield block[0][0], block
            block = []


def tagged_examples(sheet: Sheet, hidden: bool, names: Sequence[str] | None) -> list[Example]:
    """Examples of all good rows; bad ones are noted in the sheet. `names`: the legal tags, by number too."""
    return good_rows(sheet, lambda place, row: _example(place, row.values, hidden, names), "id")


def _example(place: int, values: dict[str, Any], hidden: bool, names: Sequence[str] | None) -> Example:
    words = _texts(values["words"], "words")
    if not words:
        raise Bad("there are no words", "words")
    given = values.get("tags")
    if given is None and not hidden:
        raise Bad("there are no tags", "tags")
    tags = None if given is None else tuple(_tags(given, names))
    if tags is not None and len(tags) != len(words):
        raise Bad(f"{len(tags)} tags for {len(words)} words", "tags")
    id = str(place) if values.get("id") is None else name_of(values, "id")
    return Example(id, (" ".join(words),), tags, extra={"words": words})


def _texts(value: Any, column: str) -> tuple[str, ...]:
    if isinstance(value, str):
        value = value.split()
    if not isinstance(value, list):
        raise Bad(f"{shown(value)} is no list of words", column)
    for one in value:
        if not isinstance(one, str) or not one.strip():
            raise Bad(f"{shown(one)} is no word", column)
        try:
            one.encode()
        except UnicodeEncodeError:
            raise Bad("half a character in a word", column) from None
    return tuple(value)


def _tags(value: Any, names: Sequence[str] | None) -> Iterator[str]:
    value = value.split() if isinstance(value, str) else value
    if not isinstance(value, list):
        raise Bad(f"{shown(value)} is no list of tags", "tags")
    for one in value:
        if isinstance(one, int) and not isinstance(one, bool) and names and 0 <= one < len(names):
            one = names[one]  # the hub numbers them
        name = label_name(one)
        if name is None:
            raise Bad("a tag is empty", "tags")
        try:
            yield must_be_in(name, names) if names else name
        except Bad as bad:
            raise Bad(bad.why, "tags") from None


def tag_set(examples: Iterable[Example]) -> list[str]:
    """All tags that occur, sorted."""
    return sorted({tag for example in examples for tag in (example.label or ())})  # type: ignore[union-attr]
