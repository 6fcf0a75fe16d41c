"""Anyone's own files: one or two text columns and a label, several labels or a number."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import ConfigDict, Field, PrivateAttr, model_validator

from encodery.errors import UserError
from encodery.tasks.base import Example, Label, Origin
from encodery.tasks.classify import Classification, Form
from encodery.tasks.readers import Bad, BadRow, Sheet, need_columns, read, refuse, shown
from encodery.tasks.rows import (
    Columns,
    Loaded,
    content_digest,
    file_digest,
    label_name,
    label_number,
    must_be_in,
    to_examples,
)
from encodery.tasks.split import set_aside


class Table(Classification):
    """Own files (jsonl, csv, tsv, Parquet) with named columns."""

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True, serialize_by_alias=True)
    parts: ClassVar[Mapping[str, str]] = {}
    paths: ClassVar[tuple[str, ...]] = ("train", "dev", "test", "root")

    form: Literal["single", "pair", "multilabel", "regression"] = "single"
    """What is asked: a label of one text or of a pair, several labels, or a number."""
    train: str | None = None
    """File with the training rows."""
    dev: str | None = None
    """File with the dev rows; without it a part of train is set aside."""
    test: str | None = None
    """File with the test rows; its labels may be absent."""
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
    group: str | None = None
    """Column whose equal values stay together when rows are set aside."""
    dev_fraction: float = Field(default=0.1, gt=0, lt=1)
    """How much of train is set aside when there is no dev file."""
    split_seed: int = Field(default=0, ge=0)
    """Another number, another part set aside."""
    called: str | None = Field(default=None, alias="name", pattern=r"^(table/)?[A-Za-z0-9._-]+$")
    """The task is called table/<name>; default: the name of the training file."""
    root: str | None = None
    """Folder that the paths start from; default: the folder of the config, or where the command runs."""
    skip_bad_rows: bool = False
    """Go on without rows that cannot be used, instead of refusing the file."""

    _sheets: dict[str, Loaded] = PrivateAttr(default_factory=dict)
    _names: list[str] = PrivateAttr(default_factory=list)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if not self._files():
            raise ValueError("a table needs a file: give train, dev or test")
        if self.form == "pair" and self.text2 is None:
            raise ValueError("form pair needs text2, the column of the second text")
        if self.form == "single" and self.text2 is not None:
            raise ValueError("text2 is given, so the form is pair")
        if self.form == "regression" and self.label_names is not None:
            raise ValueError("a regression has no labels")
        return self

    @property
    def name(self) -> str:
        """`table/reviews`."""
        called = self.called or Path(next(iter(self._files().values()))).stem
        return f"table/{called.removeprefix('table/')}"

    @property
    def answer_form(self) -> Form:
        """A pair asks for one label, as a single text does."""
        return "single" if self.form == "pair" else self.form

    @property
    def labels(self) -> tuple[str, ...]:
        """As given, else those of the first file, which is train if there is one, sorted."""
        if self.form == "regression":
            return ()
        if self.label_names is not None:
            return tuple(map(str, self.label_names))
        self._load(next(iter(self._files())))
        return tuple(self._names)

    def splits(self) -> tuple[str, ...]:
        """Those with a file, and dev wherever there is something to train on."""
        files = self._files()
        return tuple(s for s in ("train", "dev", "test") if s in files or (s == "dev" and "train" in files))

    @property
    def needed(self) -> tuple[str, ...]:
        """Every file that was named: a mistyped dev file must not mean no dev set."""
        return tuple(self._files()) or ("train",)

    def has(self, split: str) -> bool:
        """Whether the file is here; a dev part that is set aside needs the training file."""
        file = split if split in self._files() else "train"
        return split in self.splits() and self._path(file).is_file()

    def examples(self, split: str) -> Sequence[Example]:
        """All rows, in file order."""
        return self._load(split).examples

    def origin(self, split: str) -> Origin:
        """Where they come from."""
        return self._load(split).origin

    def bad_rows(self, split: str) -> Sequence[BadRow]:
        """The rows that `skip_bad_rows` left out."""
        return self._load(split).bad

    def _files(self) -> dict[str, str]:
        given = {"train": self.train, "dev": self.dev, "test": self.test}
        return {split: path for split, path in given.items() if path is not None}

    def _path(self, split: str) -> Path:
        return Path(self.root or "").expanduser() / Path(self._files()[split]).expanduser()

    def _load(self, split: str) -> Loaded:
        """All files at once, so that one error can name the bad rows of all of them."""
        if split in self._files() and not self._path(split).exists():
            raise UserError(self._why_not(split))
        if not self._sheets:
            self._sheets.update(self._read_all())
        if split not in self._sheets:
            raise UserError(self._why_not(split))
        return self._sheets[split]

    def _why_not(self, split: str) -> str:
        if split in self._files():
            return f"{self.name}: the file of split {split}, {self._path(split)}, does not exist"
        return f'{self.name} has no split "{split}"; it has {", ".join(self.splits())}'

    def _read_all(self) -> dict[str, Loaded]:
        """A file that is not here is an error only when its rows are asked for."""
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
        found = {split: self._loaded(split, sheets[split], rows[split]) for split in sheets}
        return self._with_dev(found) if "train" in found and self.dev is None else found

    def _enough(self, names: list[str]) -> list[str]:
        least = {"regression": 0, "multilabel": 1}.get(self.form, 2)
        if len(names) < least:
            have = f"only {shown(names[0])}" if names else "none"
            raise UserError(f'{self.name}: column "{self.label}" needs {least} labels or more, and there is {have}')
        return names

    def _loaded(self, split: str, sheet: Sheet, examples: list[Example]) -> Loaded:
        path = self._path(split)
        note = f"{len(sheet.bad):,} bad rows skipped" if sheet.bad else None
        if not examples:
            raise UserError(f"{path}: has no rows that can be used")
        files = {path.name: file_digest(path)}
        origin = Origin("folder", content_digest(examples), len(examples), files=files, note=note)
        return Loaded(examples, origin, sheet.bad)

    def _with_dev(self, found: dict[str, Loaded]) -> dict[str, Loaded]:
        whole = found["train"]
        rest, aside = set_aside(whole.examples, self.dev_fraction, self.split_seed)
        by = f" by {self.group}" if self.group else ""
        note = f"{self.dev_fraction:g} of {self._path('train').name} set aside{by}, split_seed {self.split_seed}"
        notes = "; ".join(filter(None, [whole.origin.note, note]))
        return found | {
            "train": replace(whole, examples=rest, origin=_renewed(whole.origin, rest, whole.origin.note)),
            "dev": Loaded(aside, _renewed(whole.origin, aside, notes)),
        }

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


def _renewed(origin: Origin, examples: Sequence[Example], note: str | None) -> Origin:
    return replace(origin, digest=content_digest(examples), rows=len(examples), note=note)
