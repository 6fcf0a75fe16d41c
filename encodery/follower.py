"""A run directory as seen by a process that must not write: of several processes only the first one does."""

from typing import Any

from encodery.rundir import RunDir


class Follower(RunDir):
    """Reads as ever; what would write does nothing."""

    def clean(self) -> None:
        """The first process does it."""

    def forget(self) -> None:
        """The first process does it."""

    def update_info(self, **fields: Any) -> None:
        """The first process does it."""

    def record(self, step: int, **values: Any) -> None:
        """The first process does it."""

    def rewind_metrics(self, step: int) -> None:
        """The first process does it."""

    def log(self, line: str) -> None:
        """The first process does it."""

    def sync(self) -> None:
        """The first process does it."""
