"""Anyone's own files: one or two text columns and a label, several labels or a number."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, PrivateAttr, model_validator

from encodery.errors import UserError
from encodery.tasks._folds import Strata, bins
from encodery.tasks._own import Own
from encodery.tasks._rank_table import RankTable
from encodery.tasks._scored import Scored
from encodery.tasks._span_table import SpanTable
from encodery.tasks._tag_table import TagTable
from encodery.tasks.base import Example, Label, Task
from encodery.tasks.classify import Form
from encodery.tasks.readers import Bad, Sheet, need_columns, read, refuse, shown
from encodery.tasks.rows import (
    Columns,
    Loaded,
    label_name,
    label_number,
    must_be_in,
    to_examples,
)


class Table(Own, Scored):
    """Own files (jsonl, csv, tsv, Parquet) with named columns."""

    parts: ClassVar[Mapping[str, str]] = {}
    variants: ClassVar[Mapping[str, type[Task]]] = {"tags": TagTable, "spans": SpanTable, "ranking": RankTable}

    form: Literal["single", "pair", "multilabel", "regression"] = "single"
    """What is asked: a label of one text or of a pair, several labels, or a number. The forms tags, spans and ranking
    have keys of their own."""
    text: str = "text"
    """Column of the text."""
    text2: str | None = None
    """Column of the second text, for pairs."""
    label: str = "label"
    """Column of the label; for multilabel a list (jsonl, Parquet) or a text with separators."""
    label_names: list[str | int] | None = Field(default=None, alias="labels")
    """The labels, in order; default: those of the training rows, sorted."""
    label_separator: str | None = None
    """Multilabel: what stands between two labels of a row; default in csv and tsv: a comma."""
    id: str | None = None
    """Column with unique ids; default: the row's number, from 0."""
    window_stride: int | None = Field(default=None, ge=1)
    """Long texts (of a pair: the second) are read in windows of max_length that begin so many pieces apart, and the
    answers are pooled; default: they are cut."""
    pool: Literal["mean", "max"] = "mean"
    """How the logits of a text's windows become one answer."""
    group: str | None = None
    """Column whose equal values stay together when rows are set aside."""
    _names: list[str] = PrivateAttr(default_factory=list)

    @classmethod
    def variant(cls, options: Mapping[str, Any]) -> type[Task]:
        """Tags, spans and ranking are classes of their own."""
        return cls.variants.get(str(options.get("form")), cls)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.form == "pair" and self.text2 is None:
            raise ValueError("form pair needs text2, the column of the second text")
        if self.form == "single" and self.text2 is not None:
            raise ValueError("text2 is given, so the form is pair")
        if self.form == "regression" and self.label_names is not None:
            raise ValueError("a regression has no labels")
        return self

    @property
    def answer_form(self) -> Form:
        """A pair asks for one label, as a single text does."""
        return "single" if self.form == "pair" else self.form

    @property
    def windows(self) -> int | None:
        """How far apart the windows of a long text begin."""
        return self.window_stride

    @property
    def pooling(self) -> str:
        """Mean or max."""
        return self.pool

    @property
    def labels(self) -> tuple[str, ...]:
        """As given, else those of the first file, which is train if there is one, sorted."""
        if self.form == "regression":
            return ()
        if self.label_names is not None:
            return tuple(map(str, self.label_names))
        self.loaded(next(iter(self._files())))
        return tuple(self._names)

    def _read_all(self) -> dict[str, Loaded]:
        sheets = {split: self._sheet(split) for split in self._files() if self._path(split).exists()}
        rows: dict[str, list[Example]] = {}
        legal = None if self.label_names is None else list(map(str, self.label_names))
        for split, sheet in sheets.items():
            rows[split] = to_examples(sheet, self._columns(split, sheet), self._label_reader(split, legal))
            if legal is None and self.form != "regression":
                legal = label_set(rows[split])
        if not self.skip_bad_rows:
            refuse([row for sheet in sheets.values() for row in sheet.bad])
        self._names.extend(self._enough(legal or []))
        return {split: self._finished(split, rows[split], sheets[split].bad) for split in sheets}

    def _enough(self, names: list[str]) -> list[str]:
        least = {"regression": 0, "multilabel": 1}.get(self.form, 2)
        if len(names) < least:
            have = f"only {shown(names[0])}" if names else "none"
            raise UserError(f'{self.name}: column "{self.label}" needs {least} labels or more, and there is {have}')
        self._require_fitting_labels(names)
        return names

    def _strata(self, examples: Sequence[Example]) -> tuple[Strata, int]:
        """Labels; of numbers bins of neighbours. A single label must be in every fold, one of several in two."""
        if self.form == "regression":
            return bins([float(e.label) for e in examples], self.folds or 2), 0  # type: ignore[arg-type]
        if self.form == "multilabel":
            return [tuple(e.label) for e in examples], 2  # type: ignore[arg-type]
        return [(str(e.label),) for e in examples], self.folds or 2

    def _sheet(self, split: str) -> Sheet:
        path = self._path(split)
        texts = [self.text, *filter(None, [self.text2])]
        wanted = [*texts, self.label, *filter(None, [self.id, self.group])]
        sheet = read(path, wanted)
        need_columns(sheet, texts + ([self.id] if self.id else []))
        if split != "test":
            need_columns(sheet, [self.label])
        if split == "train" and self.group:
            need_columns(sheet, [self.group])
        if not sheet.rows and not sheet.bad:
            raise UserError(f"{path}: has no rows")
        return sheet

    def _columns(self, split: str, sheet: Sheet) -> Columns:
        """The group matters only where rows are set aside, in train; the label may be absent, in test."""
        label = self.label if self.label in sheet.columns else None
        group = self.group if split == "train" else None
        return Columns((self.text, *filter(None, [self.text2])), label, self.id, group)

    def _label_reader(self, split: str, legal: Sequence[str] | None) -> Callable[[Any], Label]:
        """How a label is read. Only in test may it be absent; only legal ones count, as soon as they are known."""
        read_one = self._plain_reader(self._path(split).suffix.lower())

        def label(value: Any) -> Label:
            found = read_one(value)
            if found is None and split != "test":
                raise Bad("there is no label")
            if legal is not None and self.form != "regression":
                for name in (found,) if isinstance(found, str) else found or ():  # type: ignore[union-attr]
                    must_be_in(name, legal)
            return found

        return label

    def _plain_reader(self, suffix: str) -> Callable[[Any], Label]:
        if self.form == "regression":
            return label_number
        if self.form != "multilabel":
            return label_name
        separator = self.label_separator or ("," if suffix in (".csv", ".tsv", ".txt") else None)
        return lambda value: label_list(value, separator)


def label_list(value: Any, separator: str | None) -> tuple[str, ...] | None:
    """Several labels: a list, or a text with separators. An empty list is an answer too; null is not."""
    if value is None:
        return None
    if isinstance(value, str) and separator:
        value = [word.strip() for word in value.split(separator) if word.strip()]
    if not isinstance(value, list):
        raise Bad(f"{shown(value)} is no list of labels (for a text with separators give label_separator)")
    names = [label_name(one) for one in value]
    for name, count in Counter(names).items():
        if name is None:
            raise Bad("one of the labels is empty")
        if count > 1:
            raise Bad(f"the label {shown(name)} stands twice")
    return tuple(map(str, names))


def label_set(examples: Sequence[Example]) -> list[str]:
    """All labels that occur: whole numbers in their order, else alphabetically."""
    found: set[str] = set()
    for example in examples:
        found.update([example.label] if isinstance(example.label, str) else example.label or ())  # type: ignore[arg-type]
    numbers = all(name.removeprefix("-").isdecimal() for name in found)
    return sorted(found, key=lambda name: (int(name) if numbers else 0, name))
