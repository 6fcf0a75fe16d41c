"""The toy tasks that ask for tags or for a stretch of the text."""

from typing import ClassVar

from encodery.tasks._toy_rows import PARTS, ToyRows
from encodery.tasks.spans import Spans
from encodery.tasks.tagged import Tagged


class ToyTags(ToyRows, Tagged):
    """toy/pos and toy/ner: a tag for every word."""

    forms: ClassVar[tuple[str, ...]] = ("tags",)

    @property
    def labels(self) -> tuple[str, ...]:
        """The tags."""
        return PARTS[self.part].labels


class ToyQa(ToyRows, Spans):
    """toy/qa: a quarter of the questions has no answer."""

    forms: ClassVar[tuple[str, ...]] = ("spans",)
