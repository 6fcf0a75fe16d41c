"""The toy tasks that ask for tags or for a stretch of the text, and the small HANS."""

import hashlib
import json
from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from encodery.errors import UserError
from encodery.tasks._heuristics import Heuristics
from encodery.tasks._toy_rows import PARTS, VERSION, ToyRows
from encodery.tasks.base import Example, Origin
from encodery.tasks.grammar.hans import MOST, hans
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


class ToyHans(Heuristics):
    """toy/hans: hypotheses of the premise's words only, for a model of toy/nli."""

    part: str = "hans"
    """Which task."""
    rows: int = Field(default=1200, ge=12, le=MOST)
    """Pairs, as many of each of the twelve subcases as can be."""
    seed: int = Field(default=0, ge=0)
    """Other numbers draw other rows from the same grammar."""

    @property
    def name(self) -> str:
        """`toy/hans`."""
        return "toy/hans"

    def splits(self) -> tuple[str, ...]:
        """Evaluation only."""
        return ("dev",)

    def examples(self, split: str) -> Sequence[Example]:
        """All rows."""
        if split != "dev":
            raise UserError(f'toy/hans has no split "{split}"; it has dev, and is for evaluation only')
        return hans(self.seed, self.rows)

    def origin(self, split: str) -> Origin:
        """The grammar's version and the options decide every row."""
        key = json.dumps([VERSION, "hans", self.seed, self.rows, split])
        return Origin("toy", hashlib.sha256(key.encode()).hexdigest(), len(self.examples(split)))
