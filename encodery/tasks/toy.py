"""The toy tasks: small, from a seeded grammar, with known answers. Nobody should quote their scores."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, cast

from pydantic import Field, field_validator

from encodery.core.files import digest
from encodery.errors import UserError
from encodery.tasks.base import Example, Origin, Task
from encodery.tasks.forms.classification import Classification, Form
from encodery.tasks.forms.hans_figures import Heuristics
from encodery.tasks.forms.spans import Spans
from encodery.tasks.forms.tagging import Tagging
from encodery.tasks.toy_grammar import pairs, single, spans
from encodery.tasks.toy_grammar.hans import MOST, hans
from encodery.tasks.toy_grammar.words import TOPICS, Draw

# What all toy tasks share: their parts, and rows drawn from a seeded grammar.


VERSION = 2  # of the grammar: a change of words or rules is a new number, so that nobody trusts an old token table
PATIENCE = 2000  # so many draws in a row without a new row: the grammar has no more
ORDER = ("test", "dev", "train")  # later splits avoid the texts of earlier ones


@dataclass(frozen=True)
class Part:
    """A toy task: `write` draws texts with their label, `solve` finds the label from the texts (or words) alone."""

    about: str
    labels: tuple[str, ...]
    form: str
    write: Callable[[Draw], Any]
    solve: Callable[[Any], Any]

    def draw(self, draw: Draw) -> Example:
        """A row without an id."""
        made = self.write(draw)
        if self.form == "tags":
            return Example("", (" ".join(made),), self.solve(made), extra={"words": made})
        if self.form == "spans":
            texts, label, starts = made
            return Example("", texts, label, extra={"starts": starts})
        return Example("", *made)

    def solved(self, example: Example) -> Any:
        """The right label, from what a model may see."""
        return self.solve(example.extra["words"] if self.form == "tags" else example.texts)

    def own(self, example: Example) -> tuple[str, ...]:
        """The texts that no other split may have: a question may be asked of another text."""
        return example.texts[1:] if self.form == "spans" else example.texts


PARTS = {
    "acceptability": Part(
        "is the sentence grammatical? agreement and word order",
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
    "pos": Part(
        "the part of speech of every word; some words are nouns and verbs",
        spans.POS, "tags", spans.write_pos, spans.solve_pos,
    ),
    "ner": Part(
        "agent, patient and place of an action, as phrases; the voice decides",
        spans.ROLES, "tags", spans.write_roles, spans.solve_roles,
    ),
    "qa": Part(
        "questions whose answer is a word of the text, or is not there",
        (), "spans", spans.write_question, spans.solve_question,
    ),
}  # fmt: skip


class ToyRows(Task):
    """Base: a subclass says which forms of question it answers."""

    forms: ClassVar[tuple[str, ...]]

    part: str
    """Which task."""
    train_rows: int = Field(default=2000, ge=1)
    """Number of training rows."""
    dev_rows: int = Field(default=400, ge=1)
    """Number of dev rows."""
    test_rows: int = Field(default=400, ge=1)
    """Number of test rows."""
    seed: int = Field(default=0, ge=0)
    """Seed of the grammar: another seed gives other rows."""

    @field_validator("part")
    @classmethod
    def _must_exist(cls, part: str) -> str:
        if part not in PARTS:
            raise ValueError(f"there is no toy/{part}; there are {', '.join(PARTS)}")
        if PARTS[part].form not in cls.forms:
            raise ValueError(f"toy/{part} asks for {PARTS[part].form}: use Toy.variant to get its class")
        return part

    @property
    def name(self) -> str:
        """`toy/nli`."""
        return f"toy/{self.part}"

    def splits(self) -> tuple[str, ...]:
        """All three, all with labels."""
        return "train", "dev", "test"

    def examples(self, split: str) -> Sequence[Example]:
        """All rows: no text of one split stands in another, and dev and test do not depend on `train_rows`."""
        if split not in self.splits():
            raise UserError(self.no_split(split))
        return _rows(self.part, self.seed, split, (self.test_rows, self.dev_rows, self.train_rows))

    def origin(self, split: str) -> Origin:
        """The grammar's version, the options and the split decide every row."""
        options = [self.part, self.seed, self.train_rows, self.dev_rows, self.test_rows]
        return Origin("toy", digest([VERSION, *options, split]), len(self.examples(split)))

    def solve(self, example: Example) -> Any:
        """The right label, read off the texts alone."""
        return PARTS[self.part].solved(example)


@lru_cache(maxsize=32)
def _rows(part: str, seed: int, split: str, sizes: tuple[int, int, int]) -> tuple[Example, ...]:
    place = ORDER.index(split)
    before = (_rows(part, seed, earlier, sizes) for earlier in ORDER[:place])
    taken = {text for rows in before for example in rows for text in PARTS[part].own(example)}
    return tuple(_draw_rows(PARTS[part], part, Draw("toy", part, seed, split), split, sizes[place], taken))


def _draw_rows(part: Part, name: str, draw: Draw, split: str, size: int, taken: set[str]) -> list[Example]:
    """Different rows, none of whose texts is taken."""
    rows: dict[tuple[str, ...], Example] = {}
    misses = 0
    while len(rows) < size:
        example = part.draw(draw)
        if example.texts in rows or not taken.isdisjoint(part.own(example)):
            misses += 1
            if misses > PATIENCE:
                raise UserError(
                    f"toy/{name}: the grammar has only about {len(rows)} rows for {split}; ask for fewer {split}_rows"
                )
            continue
        misses = 0
        rows[example.texts] = replace(example, id=f"{split}-{len(rows)}")
    return list(rows.values())


# The toy tasks that ask for tags or for a stretch of the text, and the small HANS.


class ToyTags(ToyRows, Tagging):
    """toy/pos and toy/ner: a tag for every word."""

    forms: ClassVar[tuple[str, ...]] = ("tags",)

    @property
    def labels(self) -> tuple[str, ...]:
        return PARTS[self.part].labels


class ToyQa(ToyRows, Spans):
    """toy/qa: questions about a text; a quarter of them have no answer."""

    forms: ClassVar[tuple[str, ...]] = ("spans",)


class ToyHans(Heuristics):
    """toy/hans: hypotheses made of words of the premise only, for models trained on toy/nli."""

    part: str = "hans"
    """Which task."""
    rows: int = Field(default=1200, ge=12, le=MOST)
    """Number of pairs, spread evenly over the twelve subcases."""
    seed: int = Field(default=0, ge=0)
    """Seed of the grammar: another seed gives other rows."""

    @property
    def name(self) -> str:
        """`toy/hans`."""
        return "toy/hans"

    def splits(self) -> tuple[str, ...]:
        return ("dev",)

    def examples(self, split: str) -> Sequence[Example]:
        if split != "dev":
            raise UserError(f'toy/hans has no split "{split}"; it has dev, and is for evaluation only')
        return hans(self.seed, self.rows)

    def origin(self, split: str) -> Origin:
        """The grammar's version and the options decide every row."""
        return Origin("toy", digest([VERSION, "hans", self.seed, self.rows, split]), len(self.examples(split)))


class Toy(ToyRows, Classification):
    """Small tasks generated from a grammar, for tests and examples."""

    parts: ClassVar[dict[str, str]] = {
        **{name: part.about for name, part in PARTS.items()},
        "hans": "hypotheses made of words of the premise only, for models trained on toy/nli",
    }
    variants: ClassVar[Mapping[str, type[Task]]] = {"tags": ToyTags, "spans": ToyQa, "hans": ToyHans}
    forms: ClassVar[tuple[str, ...]] = ("single", "multilabel", "regression")

    @classmethod
    def variant(cls, options: Mapping[str, Any]) -> type[Task]:
        """Tags, spans and the small HANS are classes of their own."""
        if options.get("part") == "hans":
            return ToyHans
        part = PARTS.get(str(options.get("part")))
        return cls.variants.get(part.form, cls) if part else cls

    @property
    def labels(self) -> tuple[str, ...]:
        """Label names in id order."""
        return PARTS[self.part].labels

    @property
    def answer_form(self) -> Form:
        return cast(Form, PARTS[self.part].form)

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Similarity goes from 0 to 5."""
        return (0.0, 5.0) if self.answer_form == "regression" else None

    @property
    def scale(self) -> float:
        """Points are learned as parts of 1."""
        return 5.0 if self.answer_form == "regression" else 1.0
