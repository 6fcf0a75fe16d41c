"""Published sets with a tag for every word: `tag/pos` (UD English EWT), `tag/ner` (WNUT-17)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from pydantic import PrivateAttr, field_validator

from encodery.errors import UserError
from encodery.tasks import hub
from encodery.tasks._tag_files import read_tagged, tagged_examples
from encodery.tasks.base import Example, Origin
from encodery.tasks.known import Known
from encodery.tasks.readers import BadRow, Sheet, refuse
from encodery.tasks.rows import Loaded, content_digest, file_digest
from encodery.tasks.sources import Found, data_folder, find
from encodery.tasks.tagged import Tagged

_TYPES = ("corporation", "creative-work", "group", "location", "person", "product")


@dataclass(frozen=True)
class TagSet:
    """A published set: `known` says where its files are, `column` which tags are meant."""

    known: Known
    column: str
    hub_column: str


TABLE: dict[str, TagSet] = {
    "pos": TagSet(
        Known(
            name="ud_ewt",
            room="extra",
            texts=("tokens",),
            labels=(
                "ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM", "PART", "PRON", "PROPN", "PUNCT",
                "SCONJ", "SYM", "VERB", "X",
            ),
            counts={"train": 12544, "dev": 2001, "test": 2077},
            repository="universal-dependencies/universal_dependencies",
            configuration="en_ewt",
            id="sent_id",
        ),
        column="upos",
        hub_column="upos",
    ),
    "ner": TagSet(
        Known(
            name="wnut17",
            room="extra",
            texts=("tokens",),
            labels=("O", *(f"{mark}-{kind}" for kind in _TYPES for mark in "BI")),
            counts={"train": 3394, "dev": 1009, "test": 1287},
            repository="leondz/wnut_17",
            hub_revision="refs/convert/parquet",  # its main branch is a script, which `datasets` no longer runs
            id="id",
        ),
        column="ner",
        hub_column="ner_tags",
    ),
}  # fmt: skip


class Tag(Tagged):
    """A tag for every word: parts of speech, names."""

    parts: ClassVar[Mapping[str, str]] = {
        "pos": "UD English EWT: the part of speech of every word (17 tags)",
        "ner": "WNUT-17: emerging names in short texts, six types (BIO)",
    }

    part: str
    """Which set."""
    revision: str | None = None
    """Commit, tag or branch on the hub; what was used is recorded as a commit."""
    skip_bad_rows: bool = False
    """Go on without rows that cannot be used, instead of refusing the file."""

    _loaded: dict[str, Loaded] = PrivateAttr(default_factory=dict)

    @field_validator("part")
    @classmethod
    def _must_exist(cls, part: str) -> str:
        if part not in TABLE:
            raise ValueError(f"there is no tag/{part}; there are {', '.join(TABLE)}")
        return part

    @property
    def name(self) -> str:
        """`tag/pos`."""
        return f"tag/{self.part}"

    @property
    def known(self) -> Known:
        """Where the set's files are."""
        return TABLE[self.part].known

    @property
    def labels(self) -> tuple[str, ...]:
        """The tags."""
        return self.known.labels

    def splits(self) -> tuple[str, ...]:
        """All three, all with tags."""
        return "train", "dev", "test"

    def has(self, split: str) -> bool:
        """Whether a file of the split lies in the data folder; without a folder the hub is trusted to have it."""
        folder = data_folder(self.data)
        return split in self.splits() and (folder is None or find(self.known, split, folder) is not None)

    def examples(self, split: str) -> Sequence[Example]:
        """All sentences, in file order."""
        return self._load(split).examples

    def origin(self, split: str) -> Origin:
        """Where they come from."""
        return self._load(split).origin

    def bad_rows(self, split: str) -> Sequence[BadRow]:
        """The rows that `skip_bad_rows` left out."""
        return self._load(split).bad

    def _load(self, split: str) -> Loaded:
        if split not in self.splits():
            raise UserError(f'{self.name} has no split "{split}"; it has {", ".join(self.splits())}')
        if split not in self._loaded:
            folder = data_folder(self.data)
            found = find(self.known, split, folder) if folder else None
            where = f" ({folder} has none of its files)" if folder else ""
            self._loaded[split] = self._of_file(split, found) if found else self._of_hub(split, where)
        return self._loaded[split]

    def _of_file(self, split: str, found: Found) -> Loaded:
        id = "sent_id" if self.part == "pos" else None
        sheet = read_tagged(found.path, "tokens", TABLE[self.part].column, id, hidden=False)
        origin = Origin("folder", "", 0, files={found.path.name: file_digest(found.path)}, note=found.note)
        return self._finish(split, sheet, origin)

    def _of_hub(self, split: str, where: str) -> Loaded:
        missing = f"{self.known.name}, split {split}, is not here{where}"
        sheet, commit = hub.rows(self.known, split, self.revision, missing)
        for row in sheet.rows:
            tags = row.values.get(TABLE[self.part].hub_column)
            row.values.update(words=row.values.get("tokens"), tags=tags, id=None)
        return self._finish(split, sheet, Origin("hub", "", 0, revision=commit))

    def _finish(self, split: str, sheet: Sheet, origin: Origin) -> Loaded:
        examples = tagged_examples(sheet, hidden=False, names=self.labels)
        if not self.skip_bad_rows:
            refuse(sheet.bad)
        notes = [*filter(None, [origin.note]), *([f"{len(sheet.bad):,} bad rows skipped"] if sheet.bad else [])]
        official, rows = self.known.counts[split], len(examples)
        of = official if official and rows < official else None
        digest = content_digest(examples)
        origin = replace(origin, digest=digest, rows=rows, of=of, note="; ".join(notes) or None)
        return Loaded(examples, origin, sheet.bad)
