"""Anyone's own files: one or two text columns and a label, several labels or a number."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any, ClassVar, Literal, Self, get_args

from pydantic import Field, PrivateAttr, field_validator, model_validator

from encodery.core.text import counted
from encodery.errors import UserError
from encodery.tasks.base import Example, Label, Task
from encodery.tasks.forms.classification import Form
from encodery.tasks.forms.own_classification import Scored
from encodery.tasks.forms.ranking import Ranking
from encodery.tasks.forms.spans import Spans, read_squad
from encodery.tasks.forms.tagging import Tagging, read_tagged, tag_set, tagged_examples
from encodery.tasks.sources.candidates import are_candidates, right_one
from encodery.tasks.sources.folds import Strata, bins
from encodery.tasks.sources.infer_table import infer
from encodery.tasks.sources.labels import matched
from encodery.tasks.sources.own_files import Own
from encodery.tasks.sources.readers import Bad, Sheet, known_encoding, need_columns, read, refuse, shown
from encodery.tasks.sources.rows import (
    Columns,
    Loaded,
    good_rows,
    label_name,
    label_number,
    must_be_in,
    name_of,
    rows_by_id,
    text_of,
    to_examples,
)

# `{kind: table, form: ranking}`: anyone's own files with a text, several candidates and the right one.


class RankTable(Own, Ranking):
    """Your own files (jsonl, Parquet) with a text, a list of candidates, and the correct one: its index from 0, its
    letter (A, B, …) or its text."""

    form: Literal["ranking"] = "ranking"
    """Choose the best of several texts."""
    text: str = "text"
    """Text column."""
    candidates: str = "candidates"
    """Column with the list of candidates, at least two."""
    label: str = "label"
    """Column with the correct candidate: its index from 0, its letter, its text, or a list of zeros with a single 1."""
    id: str | None = None
    """Column with unique ids. Default: the row number, from 0."""
    group: str | None = None
    """Rows with the same value in this column stay on the same side of an automatic split."""

    def _read_all(self) -> dict[str, Loaded]:
        by_split: dict[str, tuple[list[Example], Sheet]] = {}
        for split in self._files():
            if self._path(split).exists():
                sheet = read(self._path(split))
                need_columns(sheet, [self.text, self.candidates, *([] if split == "test" else [self.label])])
                by_split[split] = self._rows(split, sheet), sheet
        if not self.skip_bad_rows:
            refuse([row for _, sheet in by_split.values() for row in sheet.bad])
        return {split: self._finished(split, examples, sheet.bad) for split, (examples, sheet) in by_split.items()}

    def _rows(self, split: str, sheet: Sheet) -> list[Example]:
        hidden = split == "test" and all(row.values.get(self.label) is None for row in sheet.rows)
        return good_rows(sheet, lambda place, row: self._example(hidden, place, row.values), self.id)

    def _example(self, hidden: bool, number: int, values: dict[str, Any]) -> Example:
        texts = values.get(self.candidates)
        if not are_candidates(texts):
            raise Bad(f"{shown(texts)} is not a list of two texts or more", self.candidates)
        label = right_one(values.get(self.label), texts, self.label)
        if label is None and not hidden:
            raise Bad("the correct candidate is not given", self.label)
        id = name_of(values, self.id) if self.id else str(number)
        group = name_of(values, self.group) if self.group else None
        return Example(id, (text_of(values, self.text), *texts), label, group)


# `{kind: table, form: spans}`: anyone's own questions with answers in a text.


class SpanTable(Own, Spans):
    """Your own files in SQuAD's JSON layout, or jsonl and Parquet with id, context, question, answer_text,
    answer_start."""

    form: Literal["spans"] = "spans"
    """Find the answer to a question in a text."""

    @property
    def unanswerable(self) -> bool:
        """Whether one of the files has a question without an answer."""
        return any(e.label == () for split in self.splits() if self.has(split) for e in self.examples(split))

    @property
    def _set_aside_by(self) -> str | None:
        """Articles stay whole when a part of train is set aside."""
        return "title"

    def _read_all(self) -> dict[str, Loaded]:
        here = [split for split in self._files() if self._path(split).exists()]
        by_split = {split: read_squad(self._path(split), hidden=split == "test") for split in here}
        if not self.skip_bad_rows:
            refuse([row for _, sheet in by_split.values() for row in sheet.bad])
        return {split: self._finished(split, examples, sheet.bad) for split, (examples, sheet) in by_split.items()}


# `{kind: table, form: tags}`: anyone's own files with a tag for every word.


class TagTable(Own, Tagging):
    """Your own files with a tag for every word: CoNLL columns, or jsonl and Parquet with a list of words and a list of
    tags."""

    form: Literal["tags"] = "tags"
    """Predict a tag for every word."""
    text: str | int = "tokens"
    """Column of the words; in CoNLL files its index from 0 (default: 0, in .conllu 1)."""
    label: str | int = "tags"
    """Column of the tags; in CoNLL files its index from 0 (default: the last, in .conllu 3)."""
    label_names: list[str] | None = Field(default=None, alias="labels")
    """The tags, in order. Default: those of the training rows, sorted."""
    id: str | None = None
    """Column with unique ids. Default: the sentence number, from 0."""
    encoding: str | None = None
    """Encoding of text files, such as cp1252 or utf-16. Default: UTF-8."""

    _names: list[str] = PrivateAttr(default_factory=list)

    @field_validator("encoding")
    @classmethod
    def _known_encoding(cls, given: str | None) -> str | None:
        return known_encoding(given)

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
        by_split: dict[str, tuple[list[Example], list]] = {}  # type: ignore[type-arg]
        for split in here:
            sheet = read_tagged(
                self._path(split), self.text, self.label, self.id, hidden=split == "test", encoding=self.encoding
            )
            hidden = split == "test" and all(row.values.get("tags") is None for row in sheet.rows)
            by_split[split] = tagged_examples(sheet, hidden, legal), sheet.bad
            legal = legal or tag_set(by_split[split][0])
            bad += sheet.bad
        if not self.skip_bad_rows:
            refuse(bad)
        if len(legal or ()) < 2:
            raise UserError(f'{self.name}: column "{self.label}" needs at least 2 tags')
        self._names.extend(legal or ())
        return {split: self._finished(split, examples, sheet_bad) for split, (examples, sheet_bad) in by_split.items()}


class Table(Own, Scored):
    """Your own files (jsonl, csv, tsv, Parquet) with named columns."""

    parts: ClassVar[Mapping[str, str]] = {}
    variants: ClassVar[Mapping[str, type[Task]]] = {"tags": TagTable, "spans": SpanTable, "ranking": RankTable}

    form: Literal["single", "pair", "multilabel", "regression"] = "single"
    """What to predict. single or pair: a label of one text or of a pair; multilabel: any number of labels; regression:
    a number. The forms tags, spans and ranking have keys of their own. With text2 and no form: pair."""
    text: str = "text"
    """Text column."""
    text2: str | None = None
    """Second text column, for pairs."""
    label: str | list[str] = "label"
    """Label column. For multilabel: a column of lists (jsonl, Parquet) or of labels joined by a separator, or a list of
    columns of 0 and 1, one per label."""
    label_names: list[str | int] | dict[str | int, str | int] | None = Field(default=None, alias="labels")
    """The labels, in order; or new names for them, such as {0: entailment, 1: neutral}. Labels with the same new name
    are merged, and labels without one stay as they are. Default: those of the training rows, sorted. Case and spaces
    are ignored where a row's label is unambiguous."""
    label_separator: str | None = None
    """multilabel: separator between the labels of a row. Default in csv and tsv: a comma."""
    id: str | None = None
    """Column with unique ids. Default: the row number, from 0."""
    window_stride: int | None = Field(default=None, ge=1)
    """Read long texts (in pairs, the second text) in windows of max_length tokens that start this many
    tokens apart, and pool the predictions. Default: truncate."""
    pool: Literal["mean", "max"] = "mean"
    """How the logits of a text's windows are combined."""
    group: str | None = None
    """Rows with the same value in this column stay on the same side of an automatic split."""
    standardise: bool = False
    """regression: the model learns (label - mean) / standard deviation, both of the training rows; answers and scores
    have the labels' own scale. Switched on for a data file whose numbers are far from 0 to 10."""
    delimiter: str | None = None
    """Column delimiter of csv, tsv and txt files: one character, such as ";", or tab. Default: a comma in csv, a tab in
    the others."""
    encoding: str | None = None
    """Encoding of text files, such as cp1252 or utf-16. Default: UTF-8."""
    _names: list[str] = PrivateAttr(default_factory=list)
    _unused: dict[str, None] = PrivateAttr(default_factory=dict)  # labels that the config renames and no row has
    _texts_only: bool = PrivateAttr(default=False)
    _lacking: str | None = PrivateAttr(default=None)
    _moments: dict[str, tuple[float, float]] = PrivateAttr(default_factory=dict)  # by the digest of the training rows

    @classmethod
    def of_file(
        cls, file: str, folder: Path, given: Mapping[str, Any], flag: str = "--tasks.{}"
    ) -> tuple[dict[str, Any], list[str]]:
        """The settings that a file amounts to, with those that were given, and remarks; paths start from the folder."""
        if (kind := given.get("kind", "table")) != "table" or "train" in given:
            raise UserError(f"tasks: a file ({file}) goes with neither kind: {kind} nor train; leave one of them out")
        cls._refuse_misspelt(given, flag)  # before the question which column it is, which would hide it
        path = Path(file) if folder.resolve() == Path.cwd() else folder / file
        found = infer(path.expanduser(), {key: value for key, value in given.items() if key != "kind"}, flag=flag)
        return {"kind": "table", "train": file, **found.options}, found.remarks

    @classmethod
    def _refuse_misspelt(cls, given: Mapping[str, Any], flag: str) -> None:
        kinds = (cls, *cls.variants.values())
        keys = {field.alias or name for kind in kinds for name, field in kind.model_fields.items()}
        for key in given:
            if key not in keys | {"kind"} and (near := get_close_matches(key, keys, n=1)):
                raise UserError(f"{flag.format(key)}: unknown key of task table; did you mean {flag.format(near[0])}?")

    def without_labels(self, lacking: str | None = None) -> Self:
        """The task, for which no labels of its file are read; `lacking` is the column that should hold them."""
        self._texts_only, self._lacking = True, lacking
        return self

    @property
    def unread(self) -> bool:
        """Whether no labels of its file are read."""
        return self._texts_only

    @property
    def lacking(self) -> str | None:
        """The column that holds the labels of a run, and that this file does not have."""
        return self._lacking

    @classmethod
    def variant(cls, options: Mapping[str, Any]) -> type[Task]:
        """Tags, spans and ranking are classes of their own."""
        return cls.variants.get(str(options.get("form")), cls)

    @model_validator(mode="before")
    @classmethod
    def _two_texts_are_a_pair(cls, given: Any) -> Any:
        """Where a second text is named and no form."""
        if isinstance(given, Mapping) and given.get("text2") is not None and "form" not in given:
            return {**given, "form": "pair"}
        return given

    @field_validator("form", mode="before")
    @classmethod
    def _one_of_all_forms(cls, given: Any) -> Any:
        forms = (*get_args(cls.model_fields["form"].annotation), *cls.variants)
        if given not in forms:
            raise ValueError(f"expected {', '.join(forms[:-1])} or {forms[-1]}")
        return given

    @field_validator("delimiter")
    @classmethod
    def _one_character(cls, given: str | None) -> str | None:
        given = {"tab": "\t", "\\t": "\t"}.get(given, given) if given is not None else None
        if given is not None and (len(given) != 1 or not given.isascii() or given in '"\n\r'):
            raise ValueError("expected one character, such as ; or tab")
        return given

    @field_validator("encoding")
    @classmethod
    def _known_encoding(cls, given: str | None) -> str | None:
        return known_encoding(given)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if isinstance(self.label, list) and self.form != "multilabel":
            raise ValueError("several label columns are several labels: form multilabel")
        if isinstance(self.label, list) and len(set(self.label)) < max(2, len(self.label)):
            raise ValueError("label: expected two different columns or more")
        if self.form == "pair" and self.text2 is None:
            raise ValueError("form pair needs text2, the column of the second text")
        if self.form == "single" and self.text2 is not None:
            raise ValueError(
                "form single reads one text, and text2 names a second: write form: pair, or leave text2 out"
            )
        if self.form == "regression" and self.label_names is not None:
            raise ValueError("a regression has no labels")
        if self.standardise and self.form != "regression":
            raise ValueError("standardise: is for form regression")
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
        return self.pool

    @property
    def scale(self) -> float:
        """The standard deviation of the training rows' labels, where they are standardised."""
        return self._mean_and_sd[1]

    @property
    def shift(self) -> float:
        """Their mean."""
        return self._mean_and_sd[0]

    @property
    def _mean_and_sd(self) -> tuple[float, float]:
        if not self.standardise or "train" not in self.splits():
            return 0.0, 1.0
        rows = self.loaded("train")
        if rows.origin.digest not in self._moments:
            numbers = [float(e.label) for e in rows.examples if isinstance(e.label, int | float)]
            mean = fmean(numbers)
            self._moments[rows.origin.digest] = mean, pstdev(numbers, mean) or 1.0
        return self._moments[rows.origin.digest]

    @property
    def labels(self) -> tuple[str, ...]:
        """As given, else those of the first file, which is train if there is one, sorted."""
        if self.form == "regression":
            return ()
        if isinstance(self.label_names, list):
            return tuple(map(str, self.label_names))
        self.loaded(next(iter(self._files())))
        return tuple(self._names)

    def _read_all(self) -> dict[str, Loaded]:
        sheets = {split: self._sheet(split) for split in self._files() if self._path(split).exists()}
        rows: dict[str, list[Example]] = {}
        self._unused.update(dict.fromkeys(self._new_names))
        legal = list(map(str, self.label_names)) if isinstance(self.label_names, list) else None
        if legal is None and isinstance(self.label, list) and not self._new_names:
            legal = self.label  # a column that is never marked is a label all the same
        for split, sheet in sheets.items():
            columns = self._columns(split, sheet)
            hidden = split == "test" and not self._any_label(split, sheet, columns.label)
            rows[split] = to_examples(sheet, columns, self._label_reader(split, legal, hidden))
            if legal and not rows[split] and not self.skip_bad_rows:
                self._refuse_other_labels(sheet, columns.label, legal)
            if legal is None and self.form != "regression":
                named = list(dict.fromkeys(self._new_names.values()))
                legal = named + [name for name in label_set(rows[split]) if name not in named]
        if not self.skip_bad_rows:
            refuse([row for sheet in sheets.values() for row in sheet.bad])
        if self.train or any(example.label is not None for part in rows.values() for example in part):
            self._names.extend(self._enough(legal or []))
        return {split: self._finished(split, rows[split], sheets[split].bad) for split in sheets}

    @property
    def _new_names(self) -> dict[str, str]:
        """What the config calls the labels of the files."""
        given = self.label_names if isinstance(self.label_names, dict) else {}
        return {str(old): str(new) for old, new in given.items()}

    @property
    def unused_names(self) -> list[str]:
        """Labels that the config renames and that no row of any file has: probably misspelled."""
        self.loaded(next(iter(self._files())))
        return list(self._unused)

    def _enough(self, names: list[str]) -> list[str]:
        least = {"regression": 0, "multilabel": 1}.get(self.form, 2 if self.train or self.dev else 1)
        if len(names) < least:
            have = f"only {shown(names[0])}" if names else "none"
            raise UserError(
                f'{self.name}: column "{self.label}" needs at least {counted(least, "label")}, and has {have}'
            )
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
        others = [*filter(None, [self.text2, self.id])]
        labels = self.label if isinstance(self.label, list) else [self.label]
        wanted = [self.text, *others, *labels, *filter(None, [self.group])]
        sheet = read(path, wanted, delimiter=self.delimiter, encoding=self.encoding)
        need_columns(sheet, [self.text], self._advice("text", split))
        need_columns(sheet, others)
        if split != "test" or (isinstance(self.label, list) and set(labels) & set(sheet.columns)):
            need_columns(sheet, labels, self._advice("label", split))
        if isinstance(self.label, list) and set(labels) <= set(sheet.columns):
            join_marks(sheet, labels)
        if split == "train" and self.group:
            need_columns(sheet, [self.group])
        if not sheet.rows and not sheet.bad:
            raise UserError(f"{path}: has no rows")
        return sheet

    def _advice(self, key: str, split: str) -> str:
        """What to write where a column has its usual name because no other was given."""
        if key in self.model_fields_set:
            return ""
        other = f", or file: {self.train} in place of kind and train, which recognises the columns"
        return f". Write {key}: COLUMN{other if split == 'train' else ''}"

    def raw_rows(self, split: str) -> Mapping[str, Mapping[str, Any]]:
        """All columns of the file; it is read once more, since examples keep only what a model is asked."""
        path = self._path(self.source_of(split))
        sheet = read(path, delimiter=self.delimiter, encoding=self.encoding)
        return rows_by_id(sheet, self.id)

    def _columns(self, split: str, sheet: Sheet) -> Columns:
        """The group matters only where rows are set aside, in train; the label may be absent, in test."""
        column = MARKS if isinstance(self.label, list) else self.label
        label = column if column in sheet.columns and not self._texts_only else None
        group = self.group if split == "train" else None
        return Columns((self.text, *filter(None, [self.text2])), label, self.id, group)

    def _any_label(self, split: str, sheet: Sheet, column: str | None) -> bool:
        """Whether a row of the file has a label: then a row without one is a bad row."""
        read_one = self._plain_reader(self._path(split).suffix.lower())
        return column is not None and any_given((row.values.get(column) for row in sheet.rows), read_one)

    def _label_reader(self, split: str, legal: Sequence[str] | None, hidden: bool) -> Callable[[Any], Label]:
        """How a label is read. Only where all are `hidden` may it be absent; legal ones count, once they are known."""
        read_one, new_names = self._plain_reader(self._path(split).suffix.lower()), self._new_names

        def renamed(name: str) -> str:
            if new_names and (key := matched(name, list(new_names))) is not None:
                self._unused.pop(key, None)
                name = new_names[key]
            return name if legal is None else must_be_in(name, legal)

        def label(value: Any) -> Label:
            answer = read_one(value)
            if answer is None and not hidden:
                raise Bad("there is no label")
            if isinstance(answer, tuple):
                return tuple(dict.fromkeys(renamed(str(name)) for name in answer))  # two may have become one
            return renamed(answer) if isinstance(answer, str) else answer

        return label

    def _refuse_other_labels(self, sheet: Sheet, column: str | None, legal: Sequence[str]) -> None:
        """A file that has none of the labels is one mistake, not one in each row."""
        if column is None or self.form not in ("single", "pair"):
            return
        values = (row.values.get(column) for row in sheet.rows)
        there = list(dict.fromkeys(str(value) for value in values if value not in (None, "")))
        if not there or any(matched(name, [*legal, *self._new_names]) is not None for name in there):
            return
        spelt = list({" ".join(name.split()).casefold(): name.strip() for name in reversed(there)}.values())[::-1][:3]
        if self.train:
            rename = "labels: {" + ", ".join(f"{name}: …" for name in spelt) + "}"
        else:
            rename = "--rename-labels " + ",".join(f"{name}=…" for name in spelt)
        where = f'{sheet.file}, lines {sheet.rows[0].line} to {sheet.rows[-1].line}, column "{column}"'
        raise UserError(
            f"{where}: none is one of the labels {_listed(legal)}; there are {_listed(there)}. "
            f"If they mean the same, say which is which ({rename}); if the labels are in another column, name it "
            f"({'label: NAME' if self.train else '--label-column NAME'})."
        )

    def _plain_reader(self, suffix: str) -> Callable[[Any], Label]:
        if self.form == "regression":
            return label_number
        if self.form != "multilabel":
            return label_name
        if isinstance(self.label, list):
            return marked_labels
        separator = self.label_separator or ("," if suffix in (".csv", ".tsv", ".txt") else None)
        return lambda value: label_list(value, separator)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(shown, names[:5])) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def any_given(values: Iterable[Any], read_one: Callable[[Any], Label]) -> bool:
    """Whether one of the values is a label, be it a wrong one."""
    for value in values:
        try:
            if read_one(value) is not None:
                return True
        except Bad:
            return True
    return False


MARKS = "several label columns"  # what their values are called together
_YES, _NO = ("1", "1.0", "true"), ("0", "0.0", "false")


def join_marks(sheet: Sheet, labels: Sequence[str]) -> None:
    """Columns of 0 and 1 become one column, which holds the cells by name."""
    sheet.columns = (*sheet.columns, MARKS)
    for row in sheet.rows:
        row.values[MARKS] = {name: row.values.get(name) for name in labels}


def marked_labels(cells: Mapping[str, Any] | None) -> tuple[str, ...] | None:
    """The labels whose column has a 1; None where no column has a value."""
    if cells is None or all(value in (None, "") for value in cells.values()):
        return None
    plain = {name: str(value).strip().lower() for name, value in cells.items()}
    wrong = next((name for name, value in plain.items() if value not in (*_YES, *_NO)), None)
    if wrong is not None:
        raise Bad(f'column "{wrong}": {shown(cells[wrong])} is neither 0 nor 1')
    return tuple(name for name, value in plain.items() if value in _YES)


def label_list(value: Any, separator: str | None) -> tuple[str, ...] | None:
    """Several labels: a list, or a text with separators. An empty list is an answer too; null is not."""
    if value is None:
        return None
    if isinstance(value, str) and separator:
        value = [word.strip() for word in value.split(separator) if word.strip()]
    if not isinstance(value, list):
        raise Bad(f"{shown(value)} is not a list of labels (for a text with separators give label_separator)")
    names = [label_name(one) for one in value]
    for name, count in Counter(names).items():
        if name is None:
            raise Bad("one of the labels is empty")
        if count > 1:
            raise Bad(f"the label {shown(name)} appears twice")
    return tuple(map(str, names))


def label_set(examples: Sequence[Example]) -> list[str]:
    """All labels that occur: whole numbers in their order, else alphabetically."""
    labels: set[str] = set()
    for example in examples:
        labels.update([example.label] if isinstance(example.label, str) else example.label or ())  # type: ignore[arg-type]
    numbers = all(name.removeprefix("-").isdecimal() for name in labels)
    return sorted(labels, key=lambda name: (int(name) if numbers else 0, name))
