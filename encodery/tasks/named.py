"""What tasks share that stand for a published set: `glue/rte`, `tag/pos`, `squad/v2`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from pydantic import field_validator

from encodery.errors import UserError
from encodery.tasks._read import Read
from encodery.tasks.base import Example
from encodery.tasks.classify import Classification, Form
from encodery.tasks.known import Known
from encodery.tasks.rows import Loaded
from encodery.tasks.sources import data_folder, find, from_folder, from_hub

ORDER = ("train", "dev", "dev_mismatched", "test", "test_mismatched")


class OnHub(Read):
    """Base of one published set: from the data folder, else from the hub."""

    room: ClassVar[str]

    revision: str | None = None
    """Commit, tag or branch on the hub; what was used is recorded as a commit."""

    @property
    def known(self) -> Known:
        """What is known of the set."""
        raise NotImplementedError

    def splits(self) -> tuple[str, ...]:
        """All published splits."""
        return tuple(split for split in ORDER if split in self.known.counts)

    def has(self, split: str) -> bool:
        """Whether a file of the split lies in the data folder; without a folder the hub is trusted to have it."""
        folder = data_folder(self.data)
        return split in self.splits() and (folder is None or self.lies_in(split, folder))

    def loaded(self, split: str) -> Loaded:
        """The split, read once: from the data folder, else from the hub."""
        if split not in self.splits():
            raise UserError(f'{self.name} has no split "{split}"; it has {", ".join(self.splits())}')
        if split not in self._loaded:
            folder = data_folder(self.data)
            found = self.from_folder(split, folder) if folder else None
            where = f" ({folder} has none of its files)" if folder else ""
            missing = f"{self.known.name}, split {split}, is not here{where}"
            self._loaded[split] = found or self.from_hub(split, missing)
        return self._loaded[split]

    # What a kind of set does its own way

    def lies_in(self, split: str, folder: Path) -> bool:
        """Whether the folder has a file of the split."""
        return find(self.known, split, folder) is not None

    def is_ours(self, split: str, folder: Path) -> bool:
        """Whether what lies there is a split of our own making instead of the published one."""
        found = find(self.known, split, folder)
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

    table: ClassVar[Mapping[str, Known]]

    part: str
    """Which set."""

    @field_validator("part")
    @classmethod
    def _must_exist(cls, part: str) -> str:
        name = part.lower().replace("-", "")
        if name not in cls.table:
            raise ValueError(f"there is no {cls.room}/{part}; there are {', '.join(cls.table)}")
        return name

    @property
    def known(self) -> Known:
        """The set's row in the table."""
        return self.table[self.part]

    @property
    def name(self) -> str:
        """`glue/rte`."""
        return f"{self.room}/{self.part}"

    @property
    def labels(self) -> tuple[str, ...]:
        """Label names in the order of the hub."""
        return self.known.labels


class Named(Published, Classification):
    """Base of the sets with a label, or a number, for each text or pair."""

    @property
    def answer_form(self) -> Form:
        """A number where there are no labels."""
        return "single" if self.known.labels else "regression"

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Legal scores."""
        return self.known.bounds

    def from_folder(self, split: str, folder: Path) -> Loaded | None:
        """Parquet or the official tab-separated files."""
        return from_folder(self.known, split, folder, self.skip_bad_rows)

    def from_hub(self, split: str, missing: str) -> Loaded:
        """The hub's rows."""
        return from_hub(self.known, split, self.revision, self.skip_bad_rows, missing)

    def columns(self, examples: Sequence[Example]) -> dict[str, list[Any]]:
        """Id, texts, and the label as the hub numbers it (-1: hidden)."""
        ids: list[Any] = [e.id for e in examples]
        found = {self.known.id: [int(id) for id in ids] if all(id.isdecimal() for id in ids) else ids}
        found |= {name: [e.texts[place] for e in examples] for place, name in enumerate(self.known.texts)}
        return found | {"label": [self._number(e.label) for e in examples]}

    def _number(self, label: Any) -> int | float:
        if self.known.labels:
            return -1 if label is None else self.known.labels.index(label)
        return -1.0 if label is None else float(label)
