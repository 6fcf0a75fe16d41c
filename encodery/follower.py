"""A run directory as seen by a process that must not write: of several processes only the first one does."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from encodery.rundir import RunDir

if TYPE_CHECKING:
    from encodery.tasks.base import Answer, Task


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

    def rewind_metrics(self, step: int) -> int:
        """The first process does it."""
        return 0

    def log(self, line: str) -> None:
        """The first process does it."""

    def sync(self) -> None:
        """The first process does it."""

    def write_scores(self, scores: Mapping[str, Any]) -> None:
        """The first process does it."""

    def write_answers(
        self, task: "Task", split: str, answers: "Mapping[str, Answer]", pages: Mapping[str, str] | None = None
    ) -> Path:
        """The first process does it."""
        return self.predictions_path(task.name, split)
