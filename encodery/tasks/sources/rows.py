"""From the rows of a sheet to examples: texts must be text, ids must be unique, labels must be legal."""

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import PrivateAttr

from encodery.core import files
from encodery.core.text import counted
from encodery.errors import UserError
from encodery.tasks.base import Example, Label, Origin, Task, plain_texts
from encodery.tasks.sources.labels import has_decimal_comma, matched, may_be_thousands
from encodery.tasks.sources.readers import Bad, BadRow, Row, Sheet, shown

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
LONGEST_LABEL = 300  # characters
_LARGEST_LABEL = 10**LONGEST_LABEL
LARGEST = 3.4e38  # of a number that a model is trained on
UNSEEN = ("genre",)  # extras that only some copies of a set have, and that no model is shown


@dataclass(frozen=True)
class Columns:
    """Which columns make an example."""

    texts: tuple[str, ...]
    label: str | None = None
    id: str | None = None
    group: str | None = None
    extra: tuple[str, ...] = ()


@dataclass(frozen=True)
class Loaded:
    """A split in memory."""

    examples: list[Example]
    origin: Origin
    bad: list[BadRow] = field(default_factory=list)


def to_examples(sheet: Sheet, columns: Columns, label_of: Callable[[Any], Label]) -> list[Example]:
    """Examples of all good rows of named columns."""
    return good_rows(sheet, lambda place, row: _example(place, row, columns, label_of), columns.id)


def good_rows(sheet: Sheet, make: Callable[[int, Row], Example], id: str | None) -> list[Example]:
    """Examples of all good rows; the others are noted in `sheet.bad`, which ends up in the order of the file."""
    examples: list[Example] = []
    seen: dict[str, int] = {}
    for place, row in sheet.numbered():
        try:
            example = make(place, row)
            if example.id in seen:
                raise Bad(f"the id {shown(example.id)} occurs twice, first in {seen[example.id]}", id)
            seen[example.id] = row.line
            examples.append(example)
        except Bad as bad:
            sheet.refuse(row.line, bad, json.dumps(row.values, ensure_ascii=False, default=repr))
    sheet.bad.sort(key=lambda bad: bad.line)
    return examples


def _example(number: int, row: Row, columns: Columns, label_of: Callable[[Any], Label]) -> Example:
    values = row.values
    texts = tuple(text_of(values, name) for name in columns.texts)
    try:
        label = label_of(values.get(columns.label)) if columns.label else None
    except Bad as bad:
        raise Bad(bad.why, columns.label) from None
    group = name_of(values, columns.group) if columns.group else None
    extra = _shared(tuple((name, name_of(values, name)) for name in columns.extra if values.get(name)))
    return Example(_id(number, values, columns.id), texts, label, group, extra)


@lru_cache(maxsize=4096)
def _shared(items: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    """Equal extras are one object: hundreds of thousands of rows have a handful of genres."""
    return dict(items)


def _id(place: int, values: dict[str, Any], column: str | None) -> str:
    """The id column, else the row's number in the file."""
    if column is None:
        return str(place)
    return name_of(values, column)


def rows_by_id(sheet: Sheet, column: str | None) -> dict[str, dict[str, Any]]:
    """All values of each row by the id that its example has; rows without one are left out."""
    by_id = {}
    for place, row in sheet.numbered():
        try:
            by_id[_id(place, row.values, column)] = row.values
        except Bad:
            continue
    return by_id


def text_of(values: dict[str, Any], column: str) -> str:
    """A text, which must be there and be text."""
    value = values.get(column)
    if isinstance(value, str):
        _must_encode(value, column)
        return value
    if column not in values:
        raise Bad("is missing", column)
    if isinstance(value, bytes):
        raise Bad("is not valid UTF-8", column)
    raise Bad(f"{'null' if value is None else shown(value)} is not text", column)


def half_character(text: str) -> str | None:
    """Where a text has half a character, which JSON can spell (\\ud800) and no tokenizer can read."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return f"a lone surrogate (\\u{ord(text[error.start]):04x}) at position {error.start + 1}"
    return None


def _must_encode(text: str, column: str) -> None:
    if why := half_character(text):
        raise Bad(why, column)


def name_of(values: dict[str, Any], column: str) -> str:
    """An id or group: text or a whole number."""
    value = values.get(column)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if value == "":
        raise Bad("is empty", column)
    return text_of(values, column)


def label_name(value: Any) -> str | None:
    """A label as text; None where there is none. 2.0 is 2: columns of whole numbers with a gap become such floats."""
    if value is None or value == "" or value != value:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and abs(value) >= _LARGEST_LABEL:
        raise Bad("has too many digits for a label")
    if isinstance(value, str | int):
        return _short(str(value))
    raise Bad(f"{shown(value)} is not a label; labels are text or whole numbers (form regression reads a quantity)")


def _short(name: str) -> str:
    """A label that can be printed and written into any file."""
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise Bad(f"a lone surrogate (\\u{ord(name[error.start]):04x}) in the label") from None
    if len(name) > LONGEST_LABEL:
        raise Bad(f"{shown(name)} is not a label; labels have at most {LONGEST_LABEL} characters")
    return name


def label_number(value: Any) -> float | None:
    """A label of a regression task."""
    if value is None or value == "":
        return None
    if isinstance(value, str) and may_be_thousands(value):
        raise Bad(
            f"{shown(value)} could mean thousands or a decimal number; write it with a point, or without the comma"
        )
    if isinstance(value, str) and has_decimal_comma(value):
        value = value.replace(",", ".")
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip(" ")):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Bad(f"{shown(value)} is not a finite number")
    if isinstance(value, float) and not math.isfinite(value):
        raise Bad(f"{shown(value)} is not a finite number")
    if abs(value) > LARGEST:  # a comparison that takes whole numbers of any length
        raise Bad(f"{shown(value)[:40]} is beyond what float32 can hold ({LARGEST:.1e})")
    return float(value)


def must_be_in(label: str, legal: Sequence[str]) -> str:
    """The legal label that is meant; case and blanks do not matter where they leave no doubt."""
    if (meant := matched(label, legal)) is not None:
        return meant
    near = get_close_matches(label, legal, n=1)
    hint = f' (did you mean "{near[0]}"?)' if near else ""
    there = "there is only" if len(legal) == 1 else "there are"
    raise Bad(f"{shown(label)} is not a label of this task{hint}; {there} {', '.join(map(shown, legal[:20]))}")


def content_digest(examples: Iterable[Example]) -> str:
    """sha256 of what the model will see and be asked, so that it holds for every source and layout."""
    hasher = hashlib.sha256()
    for example in examples:
        content: tuple[Any, ...] = (example.id, example.texts, example.label, example.group)
        seen = sorted((name, value) for name, value in example.extra.items() if name not in UNSEEN)
        content += (seen,) if seen else ()
        hasher.update(repr(content).encode(errors="surrogatepass"))
    return hasher.hexdigest()


def file_digest(path: Path) -> str:
    """sha256 of a file; computed once per process as long as size and time of change stay."""
    stat = path.stat()
    return _file_digest(str(path.resolve()), stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=1024)
def _file_digest(path: str, size: int, changed: int) -> str:
    return files.sha256(Path(path))


# Tasks whose splits are read from files once and then kept.


class Read(Task):
    """Base: a subclass says in `loaded` how a split is read, and keeps it in `_loaded`."""

    skip_bad_rows: bool = False
    """Skip rows that cannot be used, instead of refusing the file."""

    _loaded: dict[str, Loaded] = PrivateAttr(default_factory=dict)

    def loaded(self, split: str) -> Loaded:
        """The split with where it comes from and what was left out."""
        raise NotImplementedError

    def examples(self, split: str) -> Sequence[Example]:
        """All rows, in file order."""
        return self.loaded(split).examples

    def origin(self, split: str) -> Origin:
        """Where they come from."""
        return self.loaded(split).origin

    def bad_rows(self, split: str) -> Sequence[BadRow]:
        """The rows that `skip_bad_rows` left out."""
        return self.loaded(split).bad


# A part of the rows set aside, the same for equal seeds: stratified by label, or whole groups at a time.


def set_aside(
    examples: Sequence[Example], fraction: float, seed: int, *, together: bool = False
) -> tuple[list[Example], list[Example]]:
    """(the rest, the part set aside), both in file order. Groups are kept whole where examples have them.

    `together`: without groups, rows with equal texts are on one side; with no such rows nothing changes.
    """
    grouped = any(e.group is not None for e in examples)
    units = equal_texts(examples) if together and not grouped else [[row] for row in range(len(examples))]
    chosen = _by_group(examples, fraction, seed) if grouped else _by_label(examples, units, fraction, seed)
    if not 0 < len(chosen) < len(examples):
        groups = counted(len({e.group for e in examples}), "group")
        what = (
            f"{len(examples)} rows in {groups} (such as all questions on one article), which stay on one side,"
            if grouped
            else f"{len(examples)} rows"
        )
        equal = f" ({len(units)} different texts)" if len(units) < len(examples) else ""
        raise UserError(
            f"{what}{equal} are too few to set {fraction:g} of them aside; name a dev file (--tasks.dev FILE)"
        )
    rest = [e for i, e in enumerate(examples) if i not in chosen]
    return rest, [e for i, e in enumerate(examples) if i in chosen]


def equal_texts(examples: Sequence[Example]) -> list[list[int]]:
    """The rows of each text, in the order of the file."""
    units: dict[tuple[str, ...], list[int]] = {}
    for row, example in enumerate(examples):
        units.setdefault(plain_texts(example), []).append(row)
    return list(units.values())


def _draw(seed: int, key: str) -> bytes:
    """A number that looks random, from the seed and a name alone."""
    return hashlib.blake2b(f"{seed}:{key}".encode(errors="surrogatepass"), digest_size=8).digest()


def _by_label(examples: Sequence[Example], units: Sequence[Sequence[int]], fraction: float, seed: int) -> set[int]:
    """Evenly spaced units of those sorted by label, then at random: each label (or range of numbers) gives its share.

    A unit of several rows is taken where at least half of it is due, so the part has its size but for half a unit.
    """
    order = sorted(units, key=lambda unit: (_stratum(examples[unit[0]]), _draw(seed, examples[unit[0]].id)))
    chosen: set[int] = set()
    passed = 0
    for unit in order:
        passed += len(unit)
        if 2 * (round(passed * fraction) - len(chosen)) >= len(unit):
            chosen.update(unit)
    return chosen


def _stratum(example: Example) -> tuple[float, str]:
    if isinstance(example.label, float):
        return example.label, ""
    return 0.0, repr(sorted(example.label) if isinstance(example.label, tuple) else example.label)


def _by_group(examples: Sequence[Example], fraction: float, seed: int) -> set[int]:
    """Whole groups in random order until the part is full; a row without a group is a group of its own."""
    groups: dict[str, list[int]] = {}
    for i, example in enumerate(examples):
        groups.setdefault(f"g{example.group}" if example.group is not None else f"r{example.id}", []).append(i)
    chosen: set[int] = set()
    for name in sorted(groups, key=lambda name: _draw(seed, name)):
        if len(chosen) >= fraction * len(examples):
            break
        chosen.update(groups[name])
    return chosen
