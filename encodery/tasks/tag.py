"""Published sets with a tag for every word: `tag/pos` (UD English EWT), `tag/ner` (WNUT-17)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, cast

from encodery.tasks.base import Example, Origin
from encodery.tasks.forms.tagging import Tagging, read_tagged, tagged_examples
from encodery.tasks.sources import published
from encodery.tasks.sources.published import Published, PublishedSet, find, finished
from encodery.tasks.sources.readers import Sheet
from encodery.tasks.sources.rows import Loaded, file_digest

Tags = tuple[str, ...]
_TYPES = ("corporation", "creative-work", "group", "location", "person", "product")


@dataclass(frozen=True)
class TagSet:
    """A published set: `dataset` says where its files are, `column` which tags are meant, `id` names a sentence."""

    dataset: PublishedSet
    column: str
    hub_column: str
    id: str | None = None


TABLE: dict[str, TagSet] = {
    "pos": TagSet(
        PublishedSet(
            name="ud_ewt",
            parquet_folder="extra",
            texts=("tokens",),
            labels=(
                "ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM", "PART", "PRON", "PROPN", "PUNCT",
                "SCONJ", "SYM", "VERB", "X",
            ),
            counts={"train": 12544, "dev": 2001, "test": 2077},
            repository="universal-dependencies/universal_dependencies",
            configuration="en_ewt",
        ),
        column="upos",
        hub_column="upos",
        id="sent_id",
    ),
    "ner": TagSet(
        PublishedSet(
            name="wnut17",
            parquet_folder="extra",
            texts=("tokens",),
            labels=("O", *(f"{mark}-{kind}" for kind in _TYPES for mark in "BI")),
            counts={"train": 3394, "dev": 1009, "test": 1287},
            repository="leondz/wnut_17",
            hub_revision="refs/convert/parquet",  # its main branch is a script, which `datasets` no longer runs
        ),
        column="ner",
        hub_column="ner_tags",
    ),
}  # fmt: skip


class Tag(Published, Tagging):
    """A tag for every word: parts of speech or named entities."""

    parts: ClassVar[Mapping[str, str]] = {
        "pos": "UD English EWT: the part of speech of every word (17 tags)",
        "ner": "WNUT-17: emerging names in short texts, six types (BIO)",
    }

    table: ClassVar[Mapping[str, PublishedSet]] = {name: one.dataset for name, one in TABLE.items()}
    family: ClassVar[str] = "tag"

    def from_folder(self, split: str, folder: Path) -> Loaded | None:
        file = find(self.dataset, split, folder)
        if not file:
            return None
        sheet = read_tagged(file.path, "tokens", self._set.column, self._set.id, hidden=False)
        origin = Origin("folder", "", 0, files={file.path.name: file_digest(file.path)}, note=file.note)
        return self._finish(split, sheet, origin)

    def from_hub(self, split: str, missing: str) -> Loaded:
        """The hub's rows, whose tags are numbers."""
        sheet, commit = published.rows(self.dataset, split, self.revision, missing)
        for row in sheet.rows:
            tags = row.values.get(self._set.hub_column)
            row.values.update(words=row.values.get("tokens"), tags=tags, id=None)
        return self._finish(split, sheet, Origin("hub", "", 0, revision=commit))

    def columns(self, examples: Sequence[Example]) -> dict[str, list[Any]]:
        """Words and tags, by the names of our files."""
        ids = {self._set.id: [e.id for e in examples]} if self._set.id else {}
        words = [list(e.extra["words"]) for e in examples]
        return ids | {"tokens": words, self._set.column: [list(cast(Tags, e.label)) for e in examples]}

    @property
    def _set(self) -> TagSet:
        return TABLE[self.part]

    def _finish(self, split: str, sheet: Sheet, origin: Origin) -> Loaded:
        examples = tagged_examples(sheet, hidden=False, names=self.labels)
        return finished(examples, sheet.bad, origin, self.dataset.counts[split], self.skip_bad_rows)
