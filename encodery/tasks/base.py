"""A task is the question in text and the mark for an answer. Nothing here knows of tensors."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from encodery.core.options import Options

HIDDEN = -100  # a target that no loss counts: of a label that nobody may see, and of places that are not asked about
Label = str | float | tuple[str, ...] | None
Answer = Mapping[
    str, Any
]  # {"prediction": …, "probabilities": {label: p}} (classification), {"prediction": 3.2} (regression)


@dataclass(frozen=True, slots=True)
class Example:
    """One row: an id that is unique in its split, one or two texts, and the label (None where it is hidden)."""

    id: str
    texts: tuple[str, ...]
    label: Label = None
    group: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


def label_counts(labels: Iterable[Label]) -> Counter[str | float | None]:
    """How many rows have each label; of a row with several, each counts."""
    return Counter(one for label in labels for one in (label if isinstance(label, tuple) else (label,)))


def plain_texts(example: Example) -> tuple[str, ...]:
    """The texts without what makes no other text: case, and how many blanks are between words."""
    return tuple(" ".join(text.split()).casefold() for text in example.texts)


@dataclass(frozen=True, slots=True)
class Features:
    """One sequence that the encoder reads. An example may have several (windows)."""

    example: int  # row number of its example in the split
    ids: Sequence[int]
    types: Sequence[int]
    targets: Mapping[
        str, Any
    ]  # name -> int, float or list of floats; the same names and shapes for all rows of a split
    token_targets: Mapping[str, Sequence[int]] = field(default_factory=dict)  # name -> a number per token
    marks: Mapping[str, Sequence[int]] = field(default_factory=dict)  # the same, but for `decode` and not for the model
    group: int | None = None  # sequences with one group number are never cut apart; None: it stands alone


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the rows of a split came from; goes into run.json and into every table."""

    source: str  # "folder", "hub", "toy"
    digest: str  # of the content: enters the run's identity and the token table's name
    rows: int
    of: int | None = None  # the official number of rows, where only a part of them is here
    files: Mapping[str, str] = field(default_factory=dict)  # file name -> sha256
    revision: str | None = None  # commit on the hub
    note: str | None = None  # what a reader of the figures must know: "NOT the official dev set", "3 rows skipped"

    @property
    def part(self) -> str | None:
        """`part: 35,736 of 392,702`, or None when everything is here."""
        return f"part: {self.rows:,} of {self.of:,}" if self.of and self.of != self.rows else None


class Pieces(Protocol):
    """What a task may ask of a tokenizer (data/tokenizer.py is the real one)."""

    def many(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text, without special tokens."""

    def join(self, a: Sequence[int], b: Sequence[int] | None, max_length: int) -> tuple[list[int], list[int]]:
        """One sequence with special tokens, cut to `max_length`: (ids, types)."""

    def spelled(self, texts: Sequence[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """Token ids of each text, and for each token where it begins and ends in the text, without blanks."""

    def special(self, pair: bool) -> tuple[int, int, int]:
        """How many special tokens are before the first text, between two texts, and at the end."""


class Task(Options):
    """Base of all tasks. Those that classify derive from `classify.Classification`, which brings the lower half."""

    parts: ClassVar[Mapping[str, str]]
    """Part -> one line about it; empty for own files, the part `""` for a task that its file's name names whole.
    Only the one public class of a file has it."""
    labelled: ClassVar[bool] = True
    """False: plain text; `decode` and `score` get sums over all sequences instead of answers."""
    unwritten: ClassVar[tuple[str, ...]] = ("nbest", "chances")
    """Parts of an answer that are too long for the lines of a predictions file."""
    paths: ClassVar[tuple[str, ...]] = ()
    """Keys that name files: in a run's identity their content represents them."""
    told_by_content: ClassVar[tuple[str, ...]] = ()
    """Further keys that only change which rows a split has, which its content tells."""

    also_labels: ClassVar[tuple[tuple[str, ...], ...]] = ()
    """Further sets of labels whose heads may answer; `fold` turns their answers into this task's."""
    free_labels: ClassVar[bool] = False
    """Whether a prediction file may have any label at all."""
    more_ids: ClassVar[bool] = False
    """Whether a prediction file may have rows that are not in the split."""

    metrics_of_models: ClassVar[tuple[str, ...]] = ()
    """Scores that an answer without a model (`simplest`) does not get."""

    variants: ClassVar[Mapping[str, "type[Task]"]] = {}
    """Further classes that the name means, by what they are called in the reference."""

    data: str | None = None
    """Folder with the data files. Default: --data, then ENCODERY_DATA, then GLUE_DIR, then the hub."""

    @classmethod
    def variant(cls, options: Mapping[str, Any]) -> "type[Task]":
        """The class that these options ask for: a name may mean several forms of question."""
        return cls

    @property
    def name(self) -> str:
        """`glue/rte`: what people type."""
        raise NotImplementedError

    @property
    def drawn_as(self) -> str:
        """What the task's random draws (its new head, its noise) go by."""
        return self.name

    def splits(self) -> tuple[str, ...]:
        """The splits this task can have, in the order train, dev…, test…."""
        raise NotImplementedError

    def dev_splits(self) -> list[str]:
        """Those for choosing and reporting that are here."""
        return [split for split in self.splits() if split.startswith("dev") and self.has(split)]

    def no_split(self, split: str) -> str:
        """The sentence on a split that this task cannot have."""
        return f'{self.name} has no split "{split}"; it has {", ".join(self.splits())}'

    @property
    def needed(self) -> tuple[str, ...]:
        """Splits that must be here before anything is trained."""
        return ("train",)

    def has(self, split: str) -> bool:
        """Whether the rows of the split can be had here (without reading them)."""
        return split in self.splits()

    def examples(self, split: str) -> Sequence[Example]:
        """All rows of a split, in file order. A bad row is an error that names file, line and column."""
        raise NotImplementedError

    def raw_rows(self, split: str) -> Mapping[str, Mapping[str, Any]]:
        """All columns that the file of a split has, by example id; empty where rows come from no file of columns."""
        return {}

    def bad_rows(self, split: str) -> Sequence[Any]:
        """The rows (readers.BadRow) that were left out because the task was told to skip bad ones."""
        return ()

    def origin(self, split: str) -> Origin:
        """Where the rows of the split come from."""
        raise NotImplementedError

    @property
    def main_metric(self) -> str:
        """The headline among the scores."""
        return "accuracy"

    def metric_names(self, objective: str | None = None) -> tuple[str, ...]:
        """The scores that a model with this objective gets on dev; empty where it cannot be known before."""
        splits = self.dev_splits()
        if not splits or not self.labelled:
            return ()
        rows = self.examples(splits[0])
        answers = self.simplest(self.examples("train"), rows)
        return (*self.score(answers, rows), *self.metrics_of_models) if answers else ()

    @property
    def labels(self) -> tuple[str, ...]:
        """Label names in id order; empty for regression."""
        raise NotImplementedError

    def encode(self, examples: Sequence[Example], pieces: Pieces, max_length: int) -> Iterator[Features]:
        """Sequences for the encoder. Rows without a label get the target HIDDEN (NaN for regression)."""
        raise NotImplementedError

    def objective(self) -> dict[str, Any]:
        """Kind and options of the objective, as plain data, so that tasks stay free of torch."""
        raise NotImplementedError

    def reading(self) -> dict[str, Any]:
        """Options that change what `encode` gives and are not in the objective: they name the token table."""
        return {}

    def decode(self, rows: Iterable[Mapping[str, Any]], examples: Sequence[Example] = ()) -> dict[str, Answer]:
        """Outputs by sequence ({"id": …, "logits": […], marks…}) to answers by example id."""
        raise NotImplementedError

    @property
    def chooses_thresholds(self) -> bool:
        """Whether thresholds of answers are chosen after training."""
        return False

    def choose_thresholds(self, answers: Mapping[str, Answer], examples: Sequence[Example]) -> dict[str, Any] | None:
        """Thresholds that are best on these rows, as the model's card keeps them; None: there are none to choose."""
        return None

    def decided(self, answers: Mapping[str, Answer], thresholds: Mapping[str, float]) -> dict[str, Answer]:
        """The answers with these thresholds of labels."""
        return dict(answers)

    def fold(self, answer: Answer) -> Answer:
        """The answer of a head with labels of `also_labels`, as this task has it."""
        return answer

    def alarms(self, answers: Mapping[str, Answer], examples: Sequence[Example]) -> list[str]:
        """Sentences about answers that no healthy model gives."""
        return []

    def pages(self, answers: Mapping[str, Answer], examples: Sequence[Example]) -> dict[str, str]:
        """Further files about the answers that people read: ending of the file name -> text."""
        return {}

    def simplest(self, train: Sequence[Example], examples: Sequence[Example]) -> dict[str, Answer]:
        """Answers that need no model (the commonest label), to compare with; empty where there are none."""
        raise NotImplementedError

    def official_files(self, answers: Mapping[str, Answer]) -> dict[str, Any]:
        """Further files that this task's community exchanges: name -> what is written there as JSON."""
        return {}

    def score(self, answers: Mapping[str, Answer], examples: Sequence[Example]) -> dict[str, float]:
        """Named scores; the one called `main_metric` is the headline."""
        raise NotImplementedError
