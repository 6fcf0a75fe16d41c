"""Where the rows of a published set come from: Parquet files, official TSV folders, then the Hugging Face hub."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from encodery.errors import UserError
from encodery.tasks import hub
from encodery.tasks.base import Example, Label, Origin
from encodery.tasks.known import Known, Tsv
from encodery.tasks.readers import Bad, BadRow, Sheet, need_columns, read, refuse, shown
from encodery.tasks.rows import Columns, Loaded, content_digest, file_digest, label_number, must_be_in, to_examples
from encodery.tasks.split import set_aside

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
class Found:
    """A file that holds a split."""

    path: Path
    tsv: Tsv | None = None
    note: str | None = None
    divided: bool = True


def find(known: Known, split: str, folder: Path) -> Found | None:
    """The file of the split: a whole one in any layout, else a part, else a stand-in."""
    places = [folder / known.room, folder]
    spellings = SPELLINGS[split]
    stems = [f"{known.name}_{word}" for word in spellings]
    whole = _first(places, [f"{stem}.parquet" for stem in stems])
    if whole:
        return Found(whole)
    for tsv in known.tsv.get(split, ()):
        path = _first(_tsv_folders(known, places), [tsv.file])
        if path:
            return Found(path, tsv)
    part = _first(places, [f"{stem}_part.parquet" for stem in stems])
    return Found(part) if part else _stand_in(known, split, places)


def _stand_in(known: Known, split: str, places: Sequence[Path]) -> Found | None:
    if split in known.stand_in:
        stem, note = known.stand_in[split]
        path = _first(places, [f"{stem}.parquet"])
        return Found(path, note=note) if path else None
    if known.undivided and split in ("train", "dev"):
        path = _first(places, [f"{known.undivided}.parquet"])
        return Found(path, divided=False, note="our own split, not the published one") if path else None
    return None


def _tsv_folders(known: Known, places: Sequence[Path]) -> list[Path]:
    """A bare folder counts only under the set's own name: every GLUE folder has a train.tsv."""
    inside = [place / name for place in places for name in known.folders]
    return inside + [place for place in places if place.name in known.folders]


def _first(places: Sequence[Path], names: Sequence[str]) -> Path | None:
    return next((place / name for place in places for name in names if (place / name).is_file()), None)


def from_folder(known: Known, split: str, folder: Path, skip_bad_rows: bool) -> Loaded | None:
    """The split from a file of the folder, if it has one."""
    found = find(known, split, folder)
    return _from_file(known, split, found, skip_bad_rows) if found else None


def from_hub(known: Known, split: str, revision: str | None, skip_bad_rows: bool, missing: str) -> Loaded:
    """The split from the hub; `missing` opens the sentence when it cannot be had."""
    sheet, commit = hub.rows(known, split, revision, missing)
    columns = _columns(known, split, sheet, hub_side=True)
    need_columns(sheet, [*columns.texts, *filter(None, [columns.label])])
    return _finish(known, split, sheet, columns, skip_bad_rows, Origin("hub", "", 0, revision=commit))


def _from_file(known: Known, split: str, found: Found, skip_bad_rows: bool) -> Loaded:
    if found.tsv:
        sheet = _only_listed(read(found.path, header=found.tsv.header), found.path.parent, found.tsv)
        columns = Columns(found.tsv.texts, found.tsv.label, extra=_extra(known, sheet))
    else:
        sheet = read(found.path, [*known.texts, "label", known.id, *filter(None, [known.divide_by]), *known.extra])
        columns = _columns(known, split, sheet)
    need_columns(sheet, [*columns.texts, *filter(None, [columns.label])])
    origin = Origin("folder", "", 0, files={found.path.name: file_digest(found.path)}, note=found.note)
    # A file that we divide ourselves has no official count of its own.
    loaded = _finish(known, split if found.divided else "undivided", sheet, columns, skip_bad_rows, origin)
    return loaded if found.divided else _divide(known, split, loaded)


def _only_listed(sheet: Sheet, folder: Path, tsv: Tsv) -> Sheet:
    """Only the rows that a list of ids beside the file takes in (or leaves out)."""
    if tsv.listed:
        name, inside = tsv.listed
        listed = {tuple(row.values.values()) for row in read(folder / name).rows}
        sheet.rows = [row for row in sheet.rows if ((row.values["#1 ID"], row.values["#2 ID"]) in listed) == inside]
    return sheet


def _columns(known: Known, split: str, sheet: Sheet, hub_side: bool = False) -> Columns:
    """Columns of Parquet and hub rows; a row whose id is unknown there gets a name that no official id has."""
    has_id = known.id in sheet.columns
    for place, row in enumerate(sheet.rows):
        value = row.values.get(known.id) if has_id else place
        row.values["id"] = f"row-{place}" if value is None else str(value)
    texts = known.hub_texts if hub_side and known.hub_texts else known.texts
    label = None if split.startswith("test") and "label" not in sheet.columns else "label"
    return Columns(texts, label, "id", known.divide_by, _extra(known, sheet))


def _extra(known: Known, sheet: Sheet) -> tuple[str, ...]:
    """Those columns that this file has."""
    return tuple(name for name in known.extra if name in sheet.columns)


def _finish(known: Known, split: str, sheet: Sheet, columns: Columns, skip_bad_rows: bool, origin: Origin) -> Loaded:
    notes = _skip_short(known, sheet)
    examples = to_examples(sheet, columns, lambda value: label_of(known, split, value))
    if known.skip_unlabelled:
        examples, notes = _skip_unlabelled(examples, notes)
    return finished(examples, sheet.bad, origin, known.counts.get(split), skip_bad_rows, notes)


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


def _skip_short(known: Known, sheet: Sheet) -> list[str]:
    """QQP's official files have a few broken rows; everybody leaves them out, we also say how many."""
    if not known.skip_short:
        return []
    kept = [bad for bad in sheet.bad if " fields instead of " not in bad.why]
    short, sheet.bad = len(sheet.bad) - len(kept), kept
    return [f"{short:,} malformed rows of the official file skipped"] if short else []


def _skip_unlabelled(examples: list[Example], notes: list[str]) -> tuple[list[Example], list[str]]:
    kept = [e for e in examples if e.label is not None]
    gone = len(examples) - len(kept)
    return kept, [*notes, f"{gone:,} rows without a gold label left out"] if gone else notes


def _divide(known: Known, split: str, loaded: Loaded) -> Loaded:
    """Our own dev split of a set that came in one piece: a tenth, always the same."""
    rest, aside = set_aside(loaded.examples, 0.1, seed=0)
    examples = rest if split == "train" else aside
    official = known.counts["train"] if split == "train" else None
    origin = _origin(loaded.origin, examples, official, [loaded.origin.note or ""])
    return Loaded(examples, origin, loaded.bad)


def label_of(known: Known, split: str, value: Any) -> Label:
    """A label in any layout: the hub's number, a name, or a score; -1 and nothing mean hidden, in test sets only."""
    if value is None or value == "" or (isinstance(value, int | float) and value == -1):
        if split.startswith("test") or known.skip_unlabelled:
            return None
        raise Bad("there is no label")
    if not known.labels:
        return _score(known, value)
    if isinstance(value, int) and not isinstance(value, bool):
        if not 0 <= value < len(known.labels):
            raise Bad(f"{value} is no label number; there are 0 to {len(known.labels) - 1}")
        return known.labels[value]
    if not isinstance(value, str):
        raise Bad(f"{shown(value)} is no label")
    return must_be_in(known.aliases.get(value, value), known.labels)


def _score(known: Known, value: Any) -> float | None:
    number = label_number(value)
    if number is not None and known.bounds and not known.bounds[0] <= number <= known.bounds[1]:
        raise Bad(f"{number:g} is not between {known.bounds[0]:g} and {known.bounds[1]:g}")
    return number
