"""What tasks share that stand for a published set: `glue/rte`, `nli/snli`."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from pydantic import PrivateAttr, field_validator

from encodery.errors import UserError
from encodery.tasks.base import Example, Origin
from encodery.tasks.classify import Classification, Form
from encodery.tasks.known import Known
from encodery.tasks.readers import BadRow
from encodery.tasks.rows import Loaded
from encodery.tasks.sources import data_folder, find, load

ORDER = ("train", "dev", "dev_mismatched", "test", "test_mismatched")


class Named(Classification):
    """Base: a subclass brings the table of its sets."""

    table: ClassVar[Mapping[str, Known]]
    room: ClassVar[str]

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

    @property
    def answer_form(self) -> Form:
        """A number where there are no labels."""
        return "single" if self.known.labels else "regression"

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Legal scores."""
        return self.known.bounds

    def splits(self) -> tuple[str, ...]:
        """All published splits."""
        return tuple(split for split in ORDER if split in self.known.counts)

    def has(self, split: str) -> bool:
        """Whether a file of the split lies in the data folder; without a folder the hub is trusted to have it."""
        folder = data_folder(self.data)
        return split in self.splits() and (folder is None or find(self.known, split, folder) is not None)

    def loaded(self, split: str) -> Loaded:
        """The split, read once."""
        if split not in self.splits():
            raise UserError(f'{self.name} has no split "{split}"; it has {", ".join(self.splits())}')
        if split not in self._loaded:
            self._loaded[split] = load(self.known, split, self.data, self.revision, self.skip_bad_rows)
        return self._loaded[split]

    def examples(self, split: str) -> Sequence[Example]:
        """All rows, in file order."""
        return self.loaded(split).examples

    def origin(self, split: str) -> Origin:
        """Where they come from."""
        return self.loaded(split).origin

    def bad_rows(self, split: str) -> Sequence[BadRow]:
        """The rows that `skip_bad_rows` left out."""
        return self.loaded(split).bad
