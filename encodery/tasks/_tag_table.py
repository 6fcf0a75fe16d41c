"""`{kind: table, form: tags}`: anyone's own files with a tag for every word."""

from typing import Literal

from pydantic import Field, PrivateAttr

from encodery.errors import UserError
from encodery.tasks._own import Own
from encodery.tasks._tag_files import read_tagged, tag_set, tagged_examples
from encodery.tasks.base import Example
from encodery.tasks.readers import refuse
from encodery.tasks.rows import Loaded
from encodery.tasks.tagged import Tagged


class TagTable(Own, Tagged):
    """Own files with a tag for every word: CoNLL columns, or jsonl and Parquet with a list of words and one of tags."""

    form: Literal["tags"] = "tags"
    """A tag of every word."""
    text: str | int = "tokens"
    """Column of the words; in CoNLL files its number from 0 (default 0, in .conllu 1)."""
    label: str | int = "tags"
    """Column of the tags; in CoNLL files its number from 0 (default: the last, in .conllu 3)."""
    label_names: list[str] | None = Field(default=None, alias="labels")
    """The tags, in order; default: those of the training rows, sorted."""
    id: str | None = None
    """Column with unique ids; default: the sentence's number, from 0."""

    _names: list[str] = PrivateAttr(default_factory=list)

    @property
    def labels(self) -> tuple[str, ...]:
        """As given, else those of the first file, which is train if there is one."""
        if self.label_names is not None:
            return tuple(self.label_names)
        self.loaded(next(iter(self._files())))
        return tuple(self._names)

    def _read_all(self) -> dict[str, Loaded]:
        here = [split for split in self._files() if self._path(split).exists()]
        legal, bad = self.label_names, []
        found: dict[str, tuple[list[Example], list]] = {}  # type: ignore[type-arg]
        for split in here:
            sheet = read_tagged(self._path(split), self.text, self.label, self.id, hidden=split == "test")
            found[split] = tagged_examples(sheet, split == "test", legal), sheet.bad
            legal = legal or tag_set(found[split][0])
            bad += sheet.bad
        if not self.skip_bad_rows:
            refuse(bad)
        if len(legal or ()) < 2:
            raise UserError(f'{self.name}: column "{self.label}" needs 2 tags or more')
        self._names.extend(legal or ())
        return {split: self._finished(split, examples, sheet_bad) for split, (examples, sheet_bad) in found.items()}
