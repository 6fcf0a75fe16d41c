"""The toy tasks: small, from a seeded grammar, with known answers. Nobody should quote their scores."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from pydantic import Field, field_validator

from encodery.errors import UserError
from encodery.tasks.base import Example, Label, Origin
from encodery.tasks.classify import Classification, Form
from encodery.tasks.grammar import pairs, single
from encodery.tasks.grammar.corpus import documents
from encodery.tasks.grammar.words import TOPICS, Draw, Made, vocabulary

__all__ = ["Toy", "documents", "vocabulary"]

VERSION = (
    1  # of the grammar: any change of its words or rules is a new number, so that nobody trusts an old token table
)
PATIENCE = 2000  # so many draws in a row without a new row: the grammar has no more


@dataclass(frozen=True)
class Part:
    """A toy task: `write` draws texts with their label, `solve` finds the label from the texts alone."""

    about: str
    labels: tuple[str, ...]
    form: Form
    write: Callable[[Draw], Made]
    solve: Callable[[Sequence[str]], Label]


PARTS = {
    "acceptability": Part(
        "is the sentence right? agreement and word order",
        ("unacceptable", "acceptable"), "single", single.write_acceptability, single.solve_acceptability,
    ),
    "sentiment": Part(
        "negative or positive; negation and contrast decide",
        ("negative", "positive"), "single", single.write_sentiment, single.solve_sentiment,
    ),
    "topic": Part(
        "0 to 3 topics of a text (several labels)",
        tuple(TOPICS), "multilabel", single.write_topic, single.solve_topic,
    ),
    "paraphrase": Part(
        "do two sentences say the same? voice, synonyms, exchanged roles",
        ("not_equivalent", "equivalent"), "single", pairs.write_paraphrase, pairs.solve_paraphrase,
    ),
    "similarity": Part(
        "how much two sentences share, 0 to 5 (a number)",
        (), "regression", pairs.write_similarity, pairs.solve_similarity,
    ),
    "nli": Part(
        "entailment, neutral or contradiction",
        ("entailment", "neutral", "contradiction"), "single", pairs.write_nli, pairs.solve_nli,
    ),
}  # fmt: skip


class Toy(Classification):
    """Small tasks from a seeded grammar, with known answers."""

    parts: ClassVar[dict[str, str]] = {name: part.about for name, part in PARTS.items()}

    part: str
    """Which task."""
    train_rows: int = Field(default=2000, ge=1)
    """Rows to train on."""
    dev_rows: int = Field(default=400, ge=1)
    """Rows to look at."""
    test_rows: int = Field(default=400, ge=1)
    """Rows to report on."""
    seed: int = Field(default=0, ge=0)
    """Other numbers draw other rows from the same grammar."""

    @field_validator("part")
    @classmethod
    def _must_exist(cls, part: str) -> str:
        if part not in PARTS:
            raise ValueError(f"there is no toy/{part}; there are {', '.join(PARTS)}")
        return part

    @property
    def name(self) -> str:
        """`toy/nli`."""
        return f"toy/{self.part}"

    @property
    def labels(self) -> tuple[str, ...]:
        """Label names in id order."""
        return PARTS[self.part].labels

    @property
    def answer_form(self) -> Form:
        """One label, several, or a number."""
        return PARTS[self.part].form

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Similarity goes from 0 to 5."""
        return (0.0, 5.0) if self.answer_form == "regression" else None

    @property
    def scale(self) -> float:
        """Points are learned as parts of 1."""
        return 5.0 if self.answer_form == "regression" else 1.0

    def splits(self) -> tuple[str, ...]:
        """All three, all with labels."""
        return "train", "dev", "test"

    def examples(self, split: str) -> Sequence[Example]:
        """All rows: no text of one split stands in another, and dev and test do not depend on `train_rows`."""
        if split not in self.splits():
            raise UserError(f'{self.name} has no split "{split}"; it has {", ".join(self.splits())}')
        return _rows(self.part, self.seed, split, (self.test_rows, self.dev_rows, self.train_rows))

    def origin(self, split: str) -> Origin:
        """The grammar's version, the options and the split decide every row."""
        options = [self.part, self.seed, self.train_rows, self.dev_rows, self.test_rows]
        key = json.dumps([VERSION, *options, split])
        return Origin("toy", hashlib.sha256(key.encode()).hexdigest(), len(self.examples(split)))

    def solve(self, example: Example) -> Label:
        """The right label, read off the texts alone."""
        return PARTS[self.part].solve(example.texts)


ORDER = ("test", "dev", "train")  # later splits avoid the texts of earlier ones


@lru_cache(maxsize=32)
def _rows(part: str, seed: int, split: str, sizes: tuple[int, int, int]) -> tuple[Example, ...]:
    place = ORDER.index(split)
    before = (_rows(part, seed, earlier, sizes) for earlier in ORDER[:place])
    taken = {text for rows in before for example in rows for text in example.texts}
    return tuple(_draw_rows(PARTS[part], part, Draw("toy", part, seed, split), split, sizes[place], taken))


def _draw_rows(part: Part, name: str, draw: Draw, split: str, size: int, taken: set[str]) -> list[Example]:
    """Different rows, none of whose texts is taken."""
    rows: dict[tuple[str, ...], Example] = {}
    misses = 0
    while len(rows) < size:
        texts, label = part.write(draw)
        if texts in rows or not taken.isdisjoint(texts):
            misses += 1
            if misses > PATIENCE:
                raise UserError(
                    f"toy/{name}: the grammar has only about {len(rows)} rows for {split}; ask for fewer {split}_rows"
                )
            continue
        misses = 0
        rows[texts] = Example(f"{split}-{len(rows)}", texts, label)
    return list(rows.values())
