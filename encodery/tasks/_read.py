"""Tasks whose splits are read from files once and then kept."""

from collections.abc import Sequence

from pydantic import PrivateAttr

from encodery.tasks.base import Example, Origin, Task
from encodery.tasks.readers import BadRow
from encodery.tasks.rows import Loaded


class Read(Task):
    """Base: a subclass says in `loaded` how a split is read, and keeps it in `_loaded`."""

    skip_bad_rows: bool = False
    """Go on without rows that cannot be used, instead of refusing the file."""

    _loaded: dict[str, Loaded] = PrivateAttr(default_factory=dict)

    def loaded(self, split: str) -> Loaded:
        """The split with where it comes from and what was left out."""
        raise NotImplementedError

    def examples(self, split: str) -> Sequence[Example]:
        """All rows, in file order."""
        return self.loaded(split).examples

    def origin(self, split: str) -> Origin:
        """Where they come from."""
        return self.loaded(split).origin

    def bad_rows(self, split: str) -> Sequence[BadRow]:
        """The rows that `skip_bad_rows` left out."""
        return self.loaded(split).bad
