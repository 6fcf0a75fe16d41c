"""HANS (McCoy, Pavlick and Linzen 2019): pairs on which three heuristics of inference fail.

Official files: heuristics_evaluation_set.txt (dev) and heuristics_train_set.txt (train), or the same as .jsonl; also
Parquet files hans_dev, hans_train and hans_eval_regenerated (drawn again from the authors' templates).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from encodery.errors import UserError
from encodery.tasks.base import Example, Origin
from encodery.tasks.forms.hans_figures import NO, REGENERATED, YES, Heuristics
from encodery.tasks.sources import published
from encodery.tasks.sources.published import OnHub, PublishedSet, finished
from encodery.tasks.sources.readers import Bad, Row, Sheet, need_columns, read, shown
from encodery.tasks.sources.rows import Loaded, file_digest, good_rows, text_of

OFFICIAL = {"train": "heuristics_train_set", "dev": "heuristics_evaluation_set"}
PARQUET = {"train": ("hans_train",), "dev": ("hans_dev", "hans_validation", "hans_eval_regenerated")}
FOLDERS = ("", "hans", "HANS")
KNOWN = PublishedSet(
    name="hans", texts=("premise", "hypothesis"), labels=(YES, NO), counts={"train": 30000, "dev": 30000},
    repository="jhu-cogsci/hans", parquet_folder="hans",
)  # fmt: skip
KINDS = ("heuristic", "subcase", "template")


class Hans(OnHub, Heuristics):
    """HANS: pairs on which word overlap misleads, for models trained on MNLI or similar."""

    parts: ClassVar[Mapping[str, str]] = {"": "HANS: pairs on which word overlap misleads (for models trained on MNLI)"}
    family: ClassVar[str] = "hans"

    @property
    def name(self) -> str:
        """`hans`."""
        return "hans"

    @property
    def dataset(self) -> PublishedSet:
        """dev is the evaluation set; train is for augmentation."""
        return KNOWN

    def lies_in(self, split: str, folder: Path) -> bool:
        """Whether the folder has a file of the split."""
        return _path(split, folder) is not None

    def is_ours(self, split: str, folder: Path) -> bool:
        """Whether the rows are drawn anew."""
        path = _path(split, folder)
        return path is not None and "regenerated" in path.stem

    def from_folder(self, split: str, folder: Path) -> Loaded | None:
        """The published file, or Parquet."""
        path = _path(split, folder)
        return self._of_file(path) if path else None

    def from_hub(self, split: str, missing: str) -> Loaded:
        """The hub's rows, which must have the published counts."""
        sheet, commit = published.rows(KNOWN, split, self.revision, missing)
        return self._finish(sheet, Origin("hub", "", 0, revision=commit), official=True)

    def columns(self, examples: Sequence[Example]) -> dict[str, list[Any]]:
        """Id, texts, the label as the hub numbers it, and what kind of pair it is."""
        found: dict[str, list[Any]] = {"pairID": [e.id for e in examples]}
        found |= {name: [e.texts[place] for e in examples] for place, name in enumerate(KNOWN.texts)}
        found["label"] = [KNOWN.labels.index(str(e.label)) for e in examples]
        return found | {name: [e.extra[name] for e in examples] for name in KINDS if name in examples[0].extra}

    def _of_file(self, path: Path) -> Loaded:
        sheet = read(path)
        official = path.stem in OFFICIAL.values()
        note = REGENERATED if "regenerated" in path.stem else None
        origin = Origin("folder", "", 0, files={path.name: file_digest(path)}, note=note)
        return self._finish(sheet, origin, official)

    def _finish(self, sheet: Sheet, origin: Origin, official: bool) -> Loaded:
        """Examples; the published file must have its counts, others get a note where they differ."""
        examples = to_examples(sheet)
        wrong = miscounted(examples)
        notes = [f"not as many rows as HANS has: {wrong}"] if wrong else []
        loaded = finished(examples, sheet.bad, origin, None, self.skip_bad_rows, notes)
        if wrong and official and not self.skip_bad_rows:
            raise UserError(f"{sheet.file}: not the published HANS: {wrong}. Fetch it again.")
        return loaded


def _path(split: str, folder: Path) -> Path | None:
    names = [f"{OFFICIAL[split]}.txt", f"{OFFICIAL[split]}.jsonl", *(f"{stem}.parquet" for stem in PARQUET[split])]
    places = (folder / inner / name for name in names for inner in FOLDERS)
    return next((place for place in places if place.is_file()), None)


def to_examples(sheet: Sheet) -> list[Example]:
    """Rows of any layout; the hub's copy has no ids, so they are numbered as the published ones are."""
    first, second = ("sentence1", "sentence2") if "sentence1" in sheet.columns else ("premise", "hypothesis")
    label = "gold_label" if "gold_label" in sheet.columns else "label"
    need_columns(sheet, [first, second, label, "heuristic", "subcase"])
    return good_rows(sheet, lambda place, row: _example(place, row, first, second, label), "pairID")


def _example(place: int, row: Row, first: str, second: str, label: str) -> Example:
    values = row.values
    texts = text_of(values, first), text_of(values, second)
    id = text_of(values, "pairID") if "pairID" in values else f"ex{place}"
    extra = {name: text_of(values, name) for name in KINDS if name in values}
    return Example(id, texts, _label(values.get(label), label), extra=extra)


def _label(value: object, column: str) -> str:
    if value in (YES, NO):
        return str(value)
    if isinstance(value, int) and value in (0, 1):
        return (YES, NO)[value]
    raise Bad(f"{shown(value)} is neither {YES} nor {NO}", column)


def miscounted(examples: Sequence[Example]) -> str | None:
    """What differs from 30,000 pairs, half of each label, 5,000 for a heuristic and label, 1,000 for a subcase."""
    labels = Counter(str(e.label) for e in examples)
    cells = Counter(f"{e.extra['heuristic']}/{e.label}" for e in examples)
    subcases = Counter(str(e.extra["subcase"]) for e in examples)
    wanted = ((labels, 2, 15000, "labels"), (cells, 6, 5000, "heuristics"), (subcases, 30, 1000, "subcases"))
    wrong = [f"{len(examples):,} rows instead of 30,000"] if len(examples) != 30000 else []
    for found, kinds, rows, what in wanted:
        odd = [f"{count:,} of {name}" for name, count in found.items() if count != rows]
        if len(found) != kinds:
            wrong.append(f"{len(found)} {what} instead of {kinds}")
        elif odd:
            wrong.append(f"{', '.join(odd[:3])} instead of {rows:,}")
    return "; ".join(wrong) or None
