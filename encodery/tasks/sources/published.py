"""Where the rows of a published set come from: Parquet files, official TSV folders, then the Hugging Face hub."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from pydantic import field_validator

from encodery.core.text import counted, kind_and_line
from encodery.errors import EncoderyError, RunFailed, UserError
from encodery.tasks.base import Example, Label, Origin
from encodery.tasks.forms.classification import Classification, Form
from encodery.tasks.sources.readers import Bad, BadRow, Row, Sheet, need_columns, read, refuse, shown
from encodery.tasks.sources.rows import (
    Columns,
    Loaded,
    Read,
    content_digest,
    file_digest,
    label_number,
    must_be_in,
    rows_by_id,
    set_aside,
    to_examples,
)

# What is known of a published set: a row of the tables in glue.py, nli.py, tag.py and squad.py.


@dataclass(frozen=True)
class Tsv:
    """An official tab-separated file: its name, and the names of its columns (`header`: they are not in the file)."""

    file: str
    texts: tuple[str, ...]
    label: str | None = None
    header: tuple[str, ...] | None = None
    listed: tuple[str, bool] | None = None  # only rows whose two ids are (or are not) in the file of this name


@dataclass(frozen=True)
class PublishedSet:
    """A published set: how its rows look in every layout."""

    name: str  # how its Parquet files begin
    texts: tuple[str, ...]  # columns in Parquet and, unless `hub_texts` says otherwise, on the hub
    labels: tuple[str, ...]  # in the order of the hub's label ids; empty: a number
    counts: Mapping[str, int | None]  # split -> official number of rows
    repository: str
    configuration: str | None = None
    hub_splits: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # where they are not the usual ones
    hub_texts: tuple[str, ...] = ()
    hub_revision: str | None = None
    parquet_folder: str = "glue"  # folder of its Parquet files
    folders: tuple[str, ...] = ()  # official TSV folder, in all usual spellings
    tsv: Mapping[str, tuple[Tsv, ...]] = field(default_factory=dict)
    id: str = "idx"
    bounds: tuple[float, float] | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)  # other spellings of label names
    skip_short: bool = False  # the official file has malformed rows, which everybody skips
    skip_unlabelled: bool = False  # rows on which annotators did not agree
    stand_in: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # split -> (Parquet stem, its note)
    undivided: str | None = None  # Parquet stem of a file without splits
    divide_by: str | None = None  # column whose equal values stay on one side of our own split
    extra: tuple[str, ...] = ()  # columns that are kept where a file has them, for looking at the rows


# Published sets from the Hugging Face hub, through `datasets`, at a commit that is recorded.


USUAL = {
    "train": ("train",),
    "dev": ("validation",),
    "dev_mismatched": ("validation_mismatched",),
    "test": ("test",),
    "test_mismatched": ("test_mismatched",),
}
ADVICE = (
    "Put its files into a folder and name it with --data or ENCODERY_DATA (docs/glue.md, docs/own-data.md: layouts)."
)


def rows(dataset: PublishedSet, split: str, revision: str | None, missing: str) -> tuple[Sheet, str]:
    """The rows of a split and the commit they came from. `missing` opens the sentence if the hub cannot be reached."""
    commit = _commit(dataset, revision, missing)
    names = dataset.hub_splits.get(split, USUAL[split])
    sheet = Sheet(f"hub:{dataset.repository}/{dataset.configuration or ''}:{split}")
    for name in names:
        data = _load(dataset, name, commit, missing)
        sheet.columns = tuple(data.column_names)
        sheet.rows += [Row(i, dict(values)) for i, values in enumerate(data, len(sheet.rows) + 1)]
    return sheet, commit


def _commit(dataset: PublishedSet, revision: str | None, missing: str) -> str:
    """The commit that a branch or tag stands for now."""
    from huggingface_hub import HfApi

    from encodery.core.hub_requests import asked_again

    wanted = revision or dataset.hub_revision
    try:
        info = asked_again(lambda: HfApi().dataset_info(dataset.repository, revision=wanted, timeout=10))
    except Exception as error:  # the hub's client raises a zoo: offline, DNS, time-out, proxy, 401, 404
        raise _sentence(dataset, missing, error) from error
    return str(info.sha)


def _load(dataset: PublishedSet, name: str, commit: str, missing: str) -> Any:
    from datasets import load_dataset

    from encodery.core.hub_requests import asked_again

    try:
        return asked_again(lambda: load_dataset(dataset.repository, dataset.configuration, split=name, revision=commit))
    except Exception as error:  # as above, and whatever a broken download gives
        raise _sentence(dataset, missing, error) from error


def _sentence(dataset: PublishedSet, missing: str, error: Exception) -> EncoderyError:
    from encodery.core.hub_requests import ADVICE as LATER
    from encodery.core.hub_requests import out_of_order

    reason = kind_and_line(error)
    if out_of_order(error):
        return RunFailed(f"{missing}: the hub ({dataset.repository}) says {reason}, {LATER}")
    return UserError(f"{missing}, and the hub ({dataset.repository}) could not provide it ({reason}). {ADVICE}")


# How a split may be called in file names; the first is ours.
SPELLINGS = {
    "train": ("train",),
    "dev": ("dev", "dev_matched", "validation", "validation_matched", "val"),
    "dev_mismatched": ("dev_mismatched", "validation_mismatched"),
    "test": ("test", "test_matched"),
    "test_mismatched": ("test_mismatched",),
}


def data_folder(data: str | None) -> Path | None:
    """The folder to look in: the option, ENCODERY_DATA, GLUE_DIR; one that does not exist is an error."""
    given = {"data": data, "ENCODERY_DATA": os.environ.get("ENCODERY_DATA"), "GLUE_DIR": os.environ.get("GLUE_DIR")}
    for name, value in given.items():
        if value:
            folder = Path(value).expanduser()
            if not folder.is_dir():
                raise UserError(f"the data folder {folder} (from {name}) does not exist")
            return folder
    return None


@dataclass(frozen=True)
class SplitFile:
    """A file that holds a split."""

    path: Path
    tsv: Tsv | None = None
    note: str | None = None
    divided: bool = True


def find(dataset: PublishedSet, split: str, folder: Path) -> SplitFile | None:
    """The file of the split: a whole one in any layout, else a part, else a stand-in."""
    places = [folder / dataset.parquet_folder, folder]
    spellings = SPELLINGS[split]
    stems = [f"{dataset.name}_{word}" for word in spellings]
    whole = _first(places, [f"{stem}.parquet" for stem in stems])
    if whole:
        return SplitFile(whole)
    for tsv in dataset.tsv.get(split, ()):
        path = _first(_tsv_folders(dataset, places), [tsv.file])
        if path:
            return SplitFile(path, tsv)
    part = _first(places, [f"{stem}_part.parquet" for stem in stems])
    return SplitFile(part) if part else _stand_in(dataset, split, places)


def _stand_in(dataset: PublishedSet, split: str, places: Sequence[Path]) -> SplitFile | None:
    if split in dataset.stand_in:
        stem, note = dataset.stand_in[split]
        path = _first(places, [f"{stem}.parquet"])
        return SplitFile(path, note=note) if path else None
    if dataset.undivided and split in ("train", "dev"):
        path = _first(places, [f"{dataset.undivided}.parquet"])
        return SplitFile(path, divided=False, note="our own split, not the published one") if path else None
    return None


def _tsv_folders(known: PublishedSet, places: Sequence[Path]) -> list[Path]:
    """A bare folder counts only under the set's own name: every GLUE folder has a train.tsv."""
    inside = [place / name for place in places for name in known.folders]
    return inside + [place for place in places if place.name in known.folders]


def _first(places: Sequence[Path], names: Sequence[str]) -> Path | None:
    return next((place / name for place in places for name in names if (place / name).is_file()), None)


def from_folder(known: PublishedSet, split: str, folder: Path, skip_bad_rows: bool) -> Loaded | None:
    """The split from a file of the folder, if it has one."""
    found = find(known, split, folder)
    return _from_file(known, split, found, skip_bad_rows) if found else None


def from_hub(dataset: PublishedSet, split: str, revision: str | None, skip_bad_rows: bool, missing: str) -> Loaded:
    """The split from the hub; `missing` opens the sentence when it cannot be had."""
    sheet, commit = rows(dataset, split, revision, missing)
    columns = _columns(dataset, split, sheet, hub_side=True)
    need_columns(sheet, [*columns.texts, *filter(None, [columns.label])])
    return _finish(dataset, split, sheet, columns, skip_bad_rows, Origin("hub", "", 0, revision=commit))


def _from_file(dataset: PublishedSet, split: str, file: SplitFile, skip_bad_rows: bool) -> Loaded:
    if file.tsv:
        sheet = _only_listed(read(file.path, header=file.tsv.header), file.path.parent, file.tsv)
        columns = Columns(file.tsv.texts, file.tsv.label, extra=_extra(dataset, sheet))
    else:
        sheet = read(
            file.path, [*dataset.texts, "label", dataset.id, *filter(None, [dataset.divide_by]), *dataset.extra]
        )
        columns = _columns(dataset, split, sheet)
    need_columns(sheet, [*columns.texts, *filter(None, [columns.label])])
    origin = Origin("folder", "", 0, files={file.path.name: file_digest(file.path)}, note=file.note)
    # A file that we divide ourselves has no official count of its own.
    loaded = _finish(dataset, split if file.divided else "undivided", sheet, columns, skip_bad_rows, origin)
    return loaded if file.divided else _divide(dataset, split, loaded)


def _only_listed(sheet: Sheet, folder: Path, tsv: Tsv) -> Sheet:
    """Only the rows that a list of ids beside the file takes in (or leaves out)."""
    if tsv.listed:
        name, inside = tsv.listed
        listed = {tuple(row.values.values()) for row in read(folder / name).rows}
        sheet.rows = [row for row in sheet.rows if ((row.values["#1 ID"], row.values["#2 ID"]) in listed) == inside]
    return sheet


def _columns(dataset: PublishedSet, split: str, sheet: Sheet, hub_side: bool = False) -> Columns:
    """Columns of Parquet and hub rows; a row whose id is unknown there gets a name that no official id has."""
    has_id = dataset.id in sheet.columns
    for place, row in enumerate(sheet.rows):
        value = row.values.get(dataset.id) if has_id else place
        row.values["id"] = f"row-{place}" if value is None else str(value)
    texts = dataset.hub_texts if hub_side and dataset.hub_texts else dataset.texts
    label = None if split.startswith("test") and "label" not in sheet.columns else "label"
    return Columns(texts, label, "id", dataset.divide_by, _extra(dataset, sheet))


def _extra(known: PublishedSet, sheet: Sheet) -> tuple[str, ...]:
    """Those columns that this file has."""
    return tuple(name for name in known.extra if name in sheet.columns)


def _finish(
    dataset: PublishedSet, split: str, sheet: Sheet, columns: Columns, skip_bad_rows: bool, origin: Origin
) -> Loaded:
    notes = _skip_short(dataset, sheet)
    examples = to_examples(sheet, columns, lambda value: label_of(dataset, split, value))
    if dataset.skip_unlabelled:
        examples, notes = _skip_unlabelled(examples, notes)
    return finished(examples, sheet.bad, origin, dataset.counts.get(split), skip_bad_rows, notes)


def finished(
    examples: list[Example],
    bad: Sequence[BadRow],
    origin: Origin,
    official: int | None,
    skip_bad_rows: bool,
    notes: Sequence[str] = (),
) -> Loaded:
    """A split with all that must be said of it; bad rows are refused unless they were to be skipped."""
    if not skip_bad_rows:
        refuse(bad)
    said = [*filter(None, [origin.note]), *notes, *([f"{len(bad):,} bad rows skipped"] if bad else [])]
    return Loaded(examples, _origin(origin, examples, official, said), list(bad))


def _origin(start: Origin, examples: Sequence[Example], official: int | None, notes: Sequence[str]) -> Origin:
    rows = len(examples)
    if official and rows > official:
        notes = [*notes, f"{rows:,} rows, more than the official {official:,}: another release?"]
    of = official if official and rows < official else None
    return replace(start, digest=content_digest(examples), rows=rows, of=of, note="; ".join(notes) or None)


def _skip_short(known: PublishedSet, sheet: Sheet) -> list[str]:
    """QQP's official files have a few broken rows; everybody leaves them out, we also say how many."""
    if not known.skip_short:
        return []
    kept = [bad for bad in sheet.bad if " instead of " not in bad.why]
    short, sheet.bad = len(sheet.bad) - len(kept), kept
    return [f"{short:,} malformed rows of the official file skipped"] if short else []


def _skip_unlabelled(examples: list[Example], notes: list[str]) -> tuple[list[Example], list[str]]:
    kept = [e for e in examples if e.label is not None]
    gone = len(examples) - len(kept)
    return kept, [*notes, f"{counted(gone, 'row')} without a gold label left out"] if gone else notes


def _divide(dataset: PublishedSet, split: str, loaded: Loaded) -> Loaded:
    """Our own dev split of a set that came in one piece: a tenth, always the same."""
    rest, aside = set_aside(loaded.examples, 0.1, seed=0)
    examples = rest if split == "train" else aside
    official = dataset.counts["train"] if split == "train" else None
    origin = _origin(loaded.origin, examples, official, [loaded.origin.note or ""])
    return Loaded(examples, origin, loaded.bad)


def label_of(dataset: PublishedSet, split: str, value: Any) -> Label:
    """A label in any layout: the hub's number, a name, or a score; -1 and nothing mean hidden, in test sets only."""
    if value is None or value == "" or (isinstance(value, int | float) and value == -1):
        if split.startswith("test") or dataset.skip_unlabelled:
            return None
        raise Bad("there is no label")
    if not dataset.labels:
        return _score(dataset, value)
    if isinstance(value, int) and not isinstance(value, bool):
        if not 0 <= value < len(dataset.labels):
            raise Bad(f"{value} is not a label number; there are 0 to {len(dataset.labels) - 1}")
        return dataset.labels[value]
    if not isinstance(value, str):
        raise Bad(f"{shown(value)} is not a label")
    return must_be_in(dataset.aliases.get(value, value), dataset.labels)


def _score(known: PublishedSet, value: Any) -> float | None:
    number = label_number(value)
    if number is not None and known.bounds and not known.bounds[0] <= number <= known.bounds[1]:
        raise Bad(f"{number:g} is not between {known.bounds[0]:g} and {known.bounds[1]:g}")
    return number


# What tasks share that stand for a published set: `glue/rte`, `tag/pos`, `squad/v2`.


ORDER = ("train", "dev", "dev_mismatched", "test", "test_mismatched")


class OnHub(Read):
    """Base of one published set: from the data folder, else from the hub."""

    family: ClassVar[str]

    revision: str | None = None
    """Commit, tag or branch on the hub. The run records the commit that it resolved to."""

    @property
    def dataset(self) -> PublishedSet:
        """What is known of the set."""
        raise NotImplementedError

    def splits(self) -> tuple[str, ...]:
        return tuple(split for split in ORDER if split in self.dataset.counts)

    def has(self, split: str) -> bool:
        """Whether a file of the split lies in the data folder; without a folder the hub is trusted to have it."""
        folder = data_folder(self.data)
        return split in self.splits() and (folder is None or self.lies_in(split, folder))

    def loaded(self, split: str) -> Loaded:
        """The split, read once: from the data folder, else from the hub."""
        if split not in self.splits():
            raise UserError(self.no_split(split))
        if split not in self._loaded:
            folder = data_folder(self.data)
            found = self.from_folder(split, folder) if folder else None
            where = f" ({folder} has none of its files)" if folder else ""
            missing = f"{self.dataset.name}, split {split}, is not here{where}"
            self._loaded[split] = found or self.from_hub(split, missing)
        return self._loaded[split]

    # What a kind of set does its own way

    def lies_in(self, split: str, folder: Path) -> bool:
        """Whether the folder has a file of the split."""
        return find(self.dataset, split, folder) is not None

    def is_ours(self, split: str, folder: Path) -> bool:
        """Whether what lies there is a split of our own making instead of the published one."""
        found = find(self.dataset, split, folder)
        return found is not None and not found.divided

    def from_folder(self, split: str, folder: Path) -> Loaded | None:
        """The split as it lies in a folder, if it does."""
        raise NotImplementedError

    def from_hub(self, split: str, missing: str) -> Loaded:
        """The split as it is on the hub; `missing` opens the sentence when it cannot be had."""
        raise NotImplementedError

    def columns(self, examples: Sequence[Example]) -> dict[str, list[Any]]:
        """Examples in the Parquet layout that `from_folder` reads."""
        raise NotImplementedError


class Published(OnHub):
    """Base: a subclass brings the table of its sets, and how their rows are read and written."""

    table: ClassVar[Mapping[str, PublishedSet]]

    part: str
    """Which set."""

    @field_validator("part")
    @classmethod
    def _must_exist(cls, part: str) -> str:
        name = part.lower().replace("-", "")
        if name not in cls.table:
            raise ValueError(f"there is no {cls.family}/{part}; there are {', '.join(cls.table)}")
        return name

    @property
    def dataset(self) -> PublishedSet:
        """The set's row in the table."""
        return self.table[self.part]

    @property
    def name(self) -> str:
        """`glue/rte`."""
        return f"{self.family}/{self.part}"

    @property
    def labels(self) -> tuple[str, ...]:
        """Label names in the order of the hub."""
        return self.dataset.labels


class Named(Published, Classification):
    """Base of the sets with a label, or a number, for each text or pair."""

    @property
    def answer_form(self) -> Form:
        """A number where there are no labels."""
        return "single" if self.dataset.labels else "regression"

    @property
    def bounds(self) -> tuple[float, float] | None:
        return self.dataset.bounds

    def from_folder(self, split: str, folder: Path) -> Loaded | None:
        """Parquet or the official tab-separated files."""
        return from_folder(self.dataset, split, folder, self.skip_bad_rows)

    def raw_rows(self, split: str) -> Mapping[str, Mapping[str, Any]]:
        """All columns of the split's file, or of its rows on the hub."""
        folder = data_folder(self.data)
        file = find(self.dataset, split, folder) if folder else None
        if file is None:
            sheet, _ = rows(self.dataset, split, self.revision, f"{self.dataset.name}, split {split}, is not here")
            return rows_by_id(sheet, _columns(self.dataset, split, sheet, hub_side=True).id)
        if file.tsv:
            return rows_by_id(_only_listed(read(file.path, header=file.tsv.header), file.path.parent, file.tsv), None)
        sheet = read(file.path)
        return rows_by_id(sheet, _columns(self.dataset, split, sheet).id)

    def from_hub(self, split: str, missing: str) -> Loaded:
        return from_hub(self.dataset, split, self.revision, self.skip_bad_rows, missing)

    def columns(self, examples: Sequence[Example]) -> dict[str, list[Any]]:
        """Id, texts, and the label as the hub numbers it (-1: hidden)."""
        ids: list[Any] = [e.id for e in examples]
        found = {self.dataset.id: [int(id) for id in ids] if all(id.isdecimal() for id in ids) else ids}
        found |= {name: [e.texts[place] for e in examples] for place, name in enumerate(self.dataset.texts)}
        return found | {"label": [self._number(e.label) for e in examples]}

    def _number(self, label: Any) -> int | float:
        if self.dataset.labels:
            return -1 if label is None else self.dataset.labels.index(label)
        return -1.0 if label is None else float(label)
