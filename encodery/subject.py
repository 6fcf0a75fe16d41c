"""One task of a run with its rows: tables, the part that is trained on, what the checkpoint is chosen on."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from encodery import chosen, predict, pretrain, world
from encodery.cards import longest_of
from encodery.data.balance import Balance, classes_of
from encodery.data.batches import AllRows, Batches, Cutter
from encodery.data.blocks import Tick, corpus_table
from encodery.data.finish import loss_lines
from encodery.data.pieces import TokenizerPieces
from encodery.data.sampling import Sampler
from encodery.data.share import Share
from encodery.data.tokens import TokenTable, token_table
from encodery.errors import UserError
from encodery.metric_table import among
from encodery.models.encoder import Encoder
from encodery.schema import Config, Entry
from encodery.tasks.base import Example, Task
from encodery.tasks.classify import Classification, double_unordered
from encodery.tasks.split import set_aside


@dataclass(frozen=True)
class Split:
    """The rows of a split and their tokens."""

    name: str
    examples: Sequence[Example]
    table: TokenTable


@dataclass(frozen=True)
class Subject:
    """One task of a run, with its rows."""

    task: Task
    entry: Entry
    train: Split
    rows: np.ndarray | AllRows  # of the training table, the ones that are trained on
    choice: Split | None  # what the checkpoint is chosen on: dev, or a part of train that was held out
    pieces: TokenizerPieces
    max_length: int
    sampler: Sampler | None = None  # rows are drawn by scores

    @property
    def name(self) -> str:
        """The task's name."""
        return self.task.name

    def split(self, name: str) -> Split:
        """Any split of the task, tokenised."""
        if self.choice and self.choice.name == name:
            return self.choice
        return named_split(self.task, name, self.pieces, self.max_length)

    def stream(self, config: Config, cutter: Cutter) -> Batches:
        """Its batches."""
        task, entry, table = self.task, self.entry, self.train.table
        size = entry.batch_size or config.train.batch_size
        used = self.rows if isinstance(self.rows, np.ndarray) else None
        weights = chosen.weights(task, entry, table, used, self.sampler)
        share = Share(world.rank(), world.size())
        seeds = config.seed.data, config.seed.init
        return Batches(
            task.name, table, self.rows, size, *seeds, cutter, weights,
            share=share, balance=self.balance, sampler=self.sampler,
        )  # fmt: skip

    @property
    def balance(self) -> Balance | None:
        """The classes that are drawn equally often, if the entry says so."""
        if self.entry.sampling == "uniform":
            return None
        rows: Any = self.rows
        return Balance(classes_of(np.asarray(self.train.table.targets["label"][rows])))


def make_subject(
    task: Task, entry: Entry, config: Config, pieces: TokenizerPieces, encoder: Encoder, notes: list[str],
    tick: Tick | None,
) -> Subject:  # fmt: skip
    """A task's tables, and what can be refused now; a length that the encoder does not have is noted."""
    wanted = entry.max_length or config.train.max_length
    length = min(wanted, longest_of(encoder))
    note = f"max_length {wanted} is more than this encoder has positions for: {length} it is"
    if length < wanted and note not in notes:
        notes.append(note)
    notes.extend(chosen.warnings(task, entry))
    train, choice, rows = training_data(task, entry, config, pieces, length, tick)
    notes += [f"{task.name}: {line}" for line in corpus_notes(task, train)]
    check_evaluation(task, entry, config, train, choice)
    sampler = chosen.sampler(task, entry, train.table, rows) if isinstance(rows, np.ndarray) else None
    if sampler:
        notes.append(f"rows of {task.name} are drawn by the scores of {entry.sample_by}: {sampler}")
    subject = Subject(task, entry, train, rows, choice, pieces, length, sampler)
    if entry.sampling == "balanced":
        check_sampling(task, config)
        notes += sampling_notes(subject)
    return subject


def check_sampling(task: Task, config: Config) -> None:
    """Refuse what does not go with classes that are drawn equally often."""
    if not isinstance(task, Classification) or task.answer_form == "regression":
        raise UserError(f"tasks.sampling: balanced needs labels of texts, which {task.name} does not have")
    if config.train.dynamics in (True, "train"):
        raise UserError("tasks.sampling: balanced does not see every row in an epoch; use train.dynamics: eval")
    if config.method["kind"] == "importance":
        raise UserError("tasks.sampling: method importance draws its own rows; use balanced with another method")


def sampling_notes(subject: Subject) -> list[str]:
    """What balanced sampling does to the rows of the rarest class."""
    sizes = [len(members) for members in subject.balance.classes] if subject.balance else []
    few, many = min(sizes), max(sizes)
    seen = (
        f"a row of the rarest ({few:,} rows) comes {many / few:.3g} times as often as one of the commonest ({many:,})"
    )
    notes = [f"{subject.name}: balanced sampling over {len(sizes)} classes: {seen}"]
    if subject.entry.objective.get("class_weights"):
        notes.append(f"{subject.name}: class_weights come on top of balanced sampling: the classes are balanced twice")
    return notes


def corpus_data(
    task: Task, entry: Entry, config: Config, pieces: TokenizerPieces, length: int, tick: Tick | None
) -> tuple[Split, Split | None, np.ndarray | AllRows]:
    """The blocks of a corpus; what needs labels or single examples is refused."""
    if config.train.holdout or entry.double_unordered:
        raise UserError(
            f"{task.name}: plain text has no examples to hold out or to turn round; use held_out of the task"
        )
    train = named_split(task, "train", pieces, length, tick)
    dev = first_dev(task) if config.train.evaluate != "never" else None
    choice = named_split(task, dev, pieces, length) if dev else None
    rows = pretrain.training_blocks(task, entry, train.table, config.seed.data)
    return train, choice if choice and len(choice.table) else None, rows


def corpus_notes(task: Task, train: Split) -> list[str]:
    """What a person must know of a corpus before the first step: text that was lost, and a dev split without text."""
    if task.labelled:
        return []
    report = report_of(train)
    notes = list(loss_lines(report))
    if "dev" in task.splits() and not report["made"]["dev"]["blocks"]:
        documents = report["made"]["train"]["documents"]
        notes.append(
            f"none of its {documents:,} documents is held out, so there are no dev scores; raise held_out to have some"
        )
    return notes


def report_of(split: Split) -> dict[str, Any]:
    """What the preparation of a corpus counted."""
    table: Any = split.table
    report: dict[str, Any] = table.report
    return report


def training_data(
    task: Task, entry: Entry, config: Config, pieces: TokenizerPieces, length: int, tick: Tick | None = None
) -> tuple[Split, Split | None, np.ndarray | AllRows]:
    """The training table, what the checkpoint is chosen on, and the table rows to train on."""
    if not task.labelled:
        return corpus_data(task, entry, config, pieces, length, tick)
    (examples, aside), choice = training_examples(task, entry, config), None
    if config.train.holdout:
        choice = Split("holdout", aside, token_table(task, "holdout", pieces, length, aside))
    elif config.train.evaluate != "never" and (dev := first_dev(task)):
        choice = named_split(task, dev, pieces, length)
    train = Split("train", examples, token_table(task, "train", pieces, length, examples))
    return train, choice, train.table.rows_of(chosen.rows(task, entry, examples, config.seed.data))


def training_examples(task: Task, entry: Entry, config: Config) -> tuple[Sequence[Example], Sequence[Example]]:
    """The examples that a run draws its rows from, and those that it holds out."""
    examples, aside = task.examples("train"), list[Example]()
    if not examples:
        raise UserError(f"{task.name}: the training set is empty")
    if config.train.holdout:
        examples, aside = set_aside(examples, config.train.holdout, config.seed.data)
    if entry.double_unordered:  # after the hold-out, so that no pair is on both sides
        if not isinstance(task, Classification):
            raise UserError(f"tasks.double_unordered: {task.name} asks for no label of a pair")
        examples = double_unordered(examples)
    return examples, aside


def trained_on(task: Task, entry: Entry, config: Config) -> list[Example]:
    """The rows that a run is trained on: without its hold-out, cut down by subset, fraction and count."""
    examples, _ = training_examples(task, entry, config)
    return [examples[i] for i in chosen.rows(task, entry, examples, config.seed.data)]


def check_evaluation(task: Task, entry: Entry, config: Config, train: Split, choice: Split | None) -> None:
    """Refuse now what could not be done at the end."""
    options = config.train
    if options.select == "each" and config.model.tune == "lora":
        raise UserError("train.select: each needs weights of several steps, and adapters are merged once; use best")
    for key, asked in (
        (f"select: {options.select}", options.select != "last"),
        ("patience:", options.patience is not None),
    ):
        if asked and (choice is None or options.evaluate == "never"):
            raise UserError(
                f"train.{key} needs scores on the way: set train.evaluate, and train.holdout where there is no dev set"
            )
    if task.chooses_thresholds and choice is None:
        raise UserError(
            f"tasks.threshold: it is chosen on scored rows, and {task.name} has none: set train.evaluate (end is "
            "enough), and train.holdout where there is no dev set"
        )
    if choice and options.select_metric and task.labelled:
        known = (*predict.majority(task, train.examples, choice.examples), *task.metrics_of_models)
        if among(options.select_metric, known) not in known:
            raise UserError(
                f"train.select_metric: {task.name} has no {options.select_metric}; it has {', '.join(known)}"
            )
    for split in entry.evaluate_on or []:
        if split not in task.splits() or not task.has(split):
            there = ", ".join(s for s in task.splits() if task.has(s))
            raise UserError(f"tasks.evaluate_on: {task.name} has no {split} here; it has {there}")
        if task.labelled and any(example.label is None for example in task.examples(split)):
            raise UserError(f"tasks.evaluate_on: the labels of {task.name}:{split} are hidden, so it cannot be scored")
        if not task.labelled and not report_of(train)["made"][split]["blocks"]:
            raise UserError(f"tasks.evaluate_on: no document of {task.name} is in {split}; raise held_out")


def first_dev(task: Task) -> str | None:
    """The dev split that scores during training are taken on."""
    return next((s for s in task.splits() if s.startswith("dev") and task.has(s)), None)


def named_split(task: Task, name: str, pieces: TokenizerPieces, length: int, tick: Tick | None = None) -> Split:
    """A split with its tokens; of plain text only the tokens."""
    if not task.labelled:
        return Split(name, (), corpus_table(task, name, pieces, length, tick))  # type: ignore[arg-type]
    rows = task.examples(name)
    return Split(name, rows, token_table(task, name, pieces, length, rows))
