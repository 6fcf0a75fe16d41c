"""`{kind: table, form: ranking}`: anyone's own files with a text, several candidates and the right one."""

from typing import Any, Literal

from encodery.tasks._own import Own
from encodery.tasks.base import Example
from encodery.tasks.ranked import Ranking
from encodery.tasks.readers import Bad, Sheet, need_columns, read, refuse, shown
from encodery.tasks.rows import Loaded, good_rows, name_of, text_of


class RankTable(Own, Ranking):
    """Own files (jsonl, Parquet) with a text, a list of candidates and the right one's number from 0, or its text."""

    form: Literal["ranking"] = "ranking"
    """Which of several texts fits best."""
    text: str = "text"
    """Column of the first text."""
    candidates: str = "candidates"
    """Column with the list of candidates, two or more."""
    label: str = "label"
    """Column that says which one is right: its number from 0, its text, or a list of 0 with one 1."""
    id: str | None = None
    """Column with unique ids; default: the row's number, from 0."""
    group: str | None = None
    """Column whose equal values stay together when rows are set aside."""

    def _read_all(self) -> dict[str, Loaded]:
        found: dict[str, tuple[list[Example], Sheet]] = {}
        for split in self._files():
            if self._path(split).exists():
                sheet = read(self._path(split))
                need_columns(sheet, [self.text, self.candidates, *([] if split == "test" else [self.label])])
                found[split] = self._rows(split, sheet), sheet
        if not self.skip_bad_rows:
            refuse([row for _, sheet in found.values() for row in sheet.bad])
        return {split: self._finished(split, examples, sheet.bad) for split, (examples, sheet) in found.items()}

    def _rows(self, split: str, sheet: Sheet) -> list[Example]:
        return good_rows(sheet, lambda place, row: self._example(split, place, row.values), self.id)

    def _example(self, split: str, place: int, values: dict[str, Any]) -> Example:
        texts = values.get(self.candidates)
        if not isinstance(texts, list) or len(texts) < 2 or not all(isinstance(text, str) for text in texts):
            raise Bad(f"{shown(texts)} is no list of two texts or more", self.candidates)
        label = right_one(values.get(self.label), texts, self.label)
        if label is None and split != "test":
            raise Bad("nothing says which one is right", self.label)
        id = name_of(values, self.id) if self.id else str(place)
        group = name_of(values, self.group) if self.group else None
        return Example(id, (text_of(values, self.text), *texts), label, group)


def right_one(value: Any, texts: list[str], column: str) -> str | None:
    """The right candidate's number as text; None where it is hidden."""
    if value is None:
        return None
    if isinstance(value, list):
        if len(value) == len(texts) and sorted(map(str, value)) == ["0"] * (len(texts) - 1) + ["1"]:
            return str([str(one) for one in value].index("1"))
    elif isinstance(value, str) and texts.count(value) == 1:
        return str(texts.index(value))
    elif not isinstance(value, bool) and str(value).isdecimal() and int(value) < len(texts):
        return str(int(value))
    raise Bad(f"{shown(value)} does not say which of {len(texts)} candidates is right", column)
