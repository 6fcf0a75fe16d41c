"""One task of a run with its rows: tables, the part that is trained on, what the checkpoint is chosen on."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from encodery.config.schema import Config, Entry
from encodery.core.text import counted
from encodery.data import subset
from encodery.data.balance import Balance, RowRange, classes_of, quotas_of
from encodery.data.batches import AllRows, Batches, MicroBatcher, Share
from encodery.data.sampling import Sampler
from encodery.data.subset import training_rows
from encodery.data.token_table import TokenTable, token_table
from encodery.data.tokenizer import TokenizerPieces
from encodery.distributed import comm
from encodery.errors import AFTER_ALARM, UserError
from encodery.inference import outputs
from encodery.inference.model_card import longest_of
from encodery.models.encoder import Encoder
from encodery.tasks.base import Example, Task, label_counts, plain_texts
from encodery.tasks.forms.classification import Classification, double_unordered
from encodery.tasks.forms.metric_table import among
from encodery.tasks.forms.tagging import Tagging
from encodery.tasks.sources.labels import alike, spelling_warning
from encodery.tasks.sources.own_files import Own
from encodery.tasks.sources.readers import BadRow
from encodery.tasks.sources.rows import set_aside

HOLDOUT = "holdout"  # the split that train.holdout cuts from train

if TYPE_CHECKING:
    from encodery.data.corpus.blocks import OnProgress


@dataclass(frozen=True)
class Split:
    """The rows of a split and their tokens."""

    name: str
    examples: Sequence[Example]
    table: TokenTable


@dataclass(frozen=True)
class TaskData:
    """One task of a run, with its rows."""

    task: Task
    entry: Entry
    train: Split
    rows: np.ndarray | AllRows  # of the training table, the ones that are trained on
    choice: Split | None  # what the checkpoint is chosen on: dev, or a part of train that was held out
    pieces: TokenizerPieces
    max_length: int
    positions: int  # of the encoder: no max_length can be more
    sampler: Sampler | None = None  # rows are drawn by scores

    @property
    def name(self) -> str:
        return self.task.name

    @property
    def trained_on(self) -> list[Example]:
        """The examples that the run is trained on, in file order: no others of train teach it anything."""
        rows: Any = self.rows
        return [self.train.examples[int(place)] for place in np.unique(self.train.table.example[rows])]

    def split(self, name: str) -> Split:
        """Any split of the task, tokenised."""
        if self.choice and self.choice.name == name:
            return self.choice
        return named_split(self.task, name, self.pieces, self.max_length)

    def stream(self, config: Config, batcher: MicroBatcher, drawn_as: str) -> Batches:
        task, entry, table = self.task, self.entry, self.train.table
        size = entry.batch_size or config.train.batch_size
        used = self.rows if isinstance(self.rows, np.ndarray) else None
        weights = subset.weights(task, entry, table, used, self.sampler)
        share = Share(comm.rank(), comm.size())
        seeds = config.seed.data, config.seed.init
        return Batches(
            task.name, table, self.rows, size, *seeds, batcher, weights,
            drawn_as=drawn_as, share=share, balance=self.balance, sampler=self.sampler,
        )  # fmt: skip

    @property
    def balance(self) -> Balance | None:
        """The classes that are drawn equally often, or the sources that are drawn by shares, if the entry says so."""
        if shares := getattr(self.task, "shares", None):
            return mixture(self, shares)
        if self.entry.sampling == "uniform":
            return None
        rows: Any = self.rows
        return Balance(classes_of(np.asarray(self.train.table.targets["label"][rows])))


def drawn_names(tasks: Sequence[Task]) -> dict[str, str]:
    """What the draws of each task go by; files without a name of their own are told apart by their place."""
    names, seen = dict[str, str](), Counter[str]()
    for task in tasks:
        seen[task.drawn_as] += 1
        names[task.name] = task.drawn_as + (f" {seen[task.drawn_as]}" if seen[task.drawn_as] > 1 else "")
    return names


def make_task_data(
    task: Task, entry: Entry, config: Config, pieces: TokenizerPieces, encoder: Encoder, notes: list[str],
    on_progress: "OnProgress | None",
) -> TaskData:  # fmt: skip
    """A task's tables, and what can be refused now; a length that the encoder does not have is noted."""
    wanted = entry.max_length or config.train.max_length
    length = min(wanted, longest_of(encoder))
    note = f"max_length {wanted} is more than the positions of this encoder; using {length}"
    if length < wanted and note not in notes:
        notes.append(note)
    notes.extend(subset.warnings(task, entry))
    train, choice, rows = training_data(task, entry, config, pieces, length, on_progress)
    notes += [f"{task.name}: {line}" for line in corpus_notes(task, train)]
    check_evaluation(task, entry, config, train, choice)
    sampler = subset.sampler(task, entry, train.table, rows) if isinstance(rows, np.ndarray) else None
    if sampler:
        notes.append(f"rows of {task.name} are drawn by the scores of {entry.sample_by}: {sampler}")
    task_data = TaskData(task, entry, train, rows, choice, pieces, length, longest_of(encoder), sampler)
    if entry.sampling == "balanced":
        check_sampling(task, config)
        notes += sampling_notes(task_data)
    if getattr(task, "shares", None):
        notes.append(mixture_note(task_data))
    return task_data


def mixture(task_data: TaskData, shares: Sequence[float]) -> Balance:
    """The blocks of each source of a corpus, and how often each comes."""
    table: Any = task_data.train.table
    sources = table.sources()
    if len(sources) != len(shares):
        raise UserError(f"tasks.shares: {len(shares)} numbers, and {task_data.name} has {len(sources)} sources")
    if isinstance(task_data.rows, AllRows):
        members: list[np.ndarray | RowRange] = [RowRange(begin, size) for begin, size in sources]
    else:
        rows = task_data.rows
        members = [np.flatnonzero((rows >= begin) & (rows < begin + size)) for begin, size in sources]
    if empty := [number for number, of_source in enumerate(members) if not len(of_source)]:
        raise UserError(f"tasks.shares: entry {empty[0] + 1} of files has no block to train on; leave it out")
    return Balance(members, quotas_of(shares))


def mixture_note(task_data: TaskData) -> str:
    """What the shares of a corpus make of its sources."""
    balance = task_data.balance
    assert balance is not None
    part = np.array(balance.quotas) / sum(balance.quotas)
    sizes = np.array([len(members) for members in balance.classes])
    passes = part * len(task_data.rows) / sizes
    of_each = [f"{p:.1%} of the blocks, each {n:.3g} times" for p, n in zip(part, passes, strict=True)]
    return f"{task_data.name}: sources by shares, in an epoch: {'; '.join(of_each)}"


def check_sampling(task: Task, config: Config) -> None:
    """Refuse what does not go with classes that are drawn equally often."""
    if not isinstance(task, Classification) or task.answer_form == "regression":
        raise UserError(f"tasks.sampling: balanced needs labels of texts, which {task.name} does not have")
    if config.train.dynamics in (True, "train"):
        raise UserError("tasks.sampling: balanced does not see every row in an epoch; use train.dynamics: eval")


def sampling_notes(task_data: TaskData) -> list[str]:
    """What balanced sampling does to the rows of the rarest class."""
    sizes = [len(members) for members in task_data.balance.classes] if task_data.balance else []
    few, many = min(sizes), max(sizes)
    seen = (
        f"a row of the rarest ({few:,} rows) comes {many / few:.3g} times as often as one of the commonest ({many:,})"
    )
    notes = [f"{task_data.name}: balanced sampling over {len(sizes)} classes: {seen}"]
    if task_data.entry.objective.get("class_weights"):
        notes.append(
            f"{task_data.name}: class_weights come on top of balanced sampling: the classes are balanced twice"
        )
    return notes


def corpus_data(
    task: Task, entry: Entry, config: Config, pieces: TokenizerPieces, length: int, on_progress: "OnProgress | None"
) -> tuple[Split, Split | None, np.ndarray | AllRows]:
    """The blocks of a corpus; what needs labels or single examples is refused."""
    if config.train.holdout or entry.double_unordered:
        raise UserError(f"{task.name}: plain text has no examples to hold out or to reverse; use held_out of the task")
    train = named_split(task, "train", pieces, length, on_progress)
    dev = first_dev(task) if config.train.evaluate != "never" else None
    choice = named_split(task, dev, pieces, length) if dev else None
    rows = training_blocks(task, entry, train.table, config.seed.data)
    return train, choice if choice and len(choice.table) else None, rows


def corpus_notes(task: Task, train: Split) -> list[str]:
    """What a person must know of a corpus before the first step: text that was lost, and a dev split without text."""
    if task.labelled:
        return []
    report = report_of(train)
    from encodery.data.corpus.prepare import loss_lines

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
    task: Task,
    entry: Entry,
    config: Config,
    pieces: TokenizerPieces,
    length: int,
    on_progress: "OnProgress | None" = None,
) -> tuple[Split, Split | None, np.ndarray | AllRows]:
    """The training table, what the checkpoint is chosen on, and the table rows to train on."""
    if not task.labelled:
        return corpus_data(task, entry, config, pieces, length, on_progress)
    (examples, aside), choice = training_examples(task, entry, config), None
    if config.train.holdout:
        choice = Split(HOLDOUT, aside, token_table(task, HOLDOUT, pieces, length, aside))
    elif config.train.evaluate != "never" and (dev := first_dev(task)):
        choice = named_split(task, dev, pieces, length)
    train = Split("train", examples, token_table(task, "train", pieces, length, examples))
    return train, choice, train.table.rows_of(subset.rows(task, entry, examples, config.seed.data))


def training_examples(task: Task, entry: Entry, config: Config) -> tuple[Sequence[Example], Sequence[Example]]:
    """The examples that a run draws its rows from, and those that it holds out."""
    examples, aside = task.examples("train"), list[Example]()
    if not examples:
        raise UserError(f"{task.name}: the training set is empty")
    if config.train.holdout:
        together = getattr(task, "equal_texts", "apart") == "together"
        examples, aside = set_aside(examples, config.train.holdout, config.seed.data, together=together)
    if entry.double_unordered:  # after the hold-out, so that no pair is on both sides
        if not isinstance(task, Classification):
            raise UserError(f"tasks.double_unordered: {task.name} asks for no label of a pair")
        examples = double_unordered(examples)
    return examples, aside


def trained_on(task: Task, entry: Entry, config: Config) -> list[Example]:
    """The rows that a run is trained on: without its hold-out, cut down by subset, fraction and count."""
    examples, _ = training_examples(task, entry, config)
    return [examples[i] for i in subset.rows(task, entry, examples, config.seed.data)]


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
                f"train.{key} needs scores in training: set train.evaluate, and train.holdout where there is no dev set"
            )
    if task.chooses_thresholds and choice is None:
        raise UserError(
            f"tasks.threshold: it is chosen on scored rows, and {task.name} has none: set train.evaluate (end is "
            "enough), and train.holdout where there is no dev set"
        )
    if choice and options.select_metric and task.labelled:
        known = (*outputs.majority(task, train.examples, choice.examples), *task.metrics_of_models)
        if among(options.select_metric, known) not in known:
            raise UserError(
                f"train.select_metric: {task.name} has no {options.select_metric}; it has {', '.join(known)}"
            )
    for split in entry.evaluate_on or []:
        if split == HOLDOUT and task.labelled:
            if not options.holdout:
                raise UserError(
                    f"tasks.evaluate_on: {HOLDOUT} needs train.{HOLDOUT}, the fraction of train to hold out"
                )
            continue
        if split not in task.splits() or not task.has(split):
            there = ", ".join(s for s in task.splits() if task.has(s))
            raise UserError(f"tasks.evaluate_on: {task.name} has no {split} here; it has {there}")
        if task.labelled and any(example.label is None for example in task.examples(split)):
            raise UserError(f"tasks.evaluate_on: the labels of {task.name}:{split} are hidden, so it cannot be scored")
        if not task.labelled and not report_of(train)["made"][split]["blocks"]:
            raise UserError(f"tasks.evaluate_on: no document of {task.name} is in {split}; raise held_out")


def first_dev(task: Task) -> str | None:
    """The dev split that scores during training are taken on."""
    return next(iter(task.dev_splits()), None)


def named_split(
    task: Task, name: str, pieces: TokenizerPieces, length: int, on_progress: "OnProgress | None" = None
) -> Split:
    """A split with its tokens; of plain text only the tokens."""
    if not task.labelled:
        from encodery.data.corpus.prepare import corpus_table  # which tasks with labels do not need

        return Split(name, (), corpus_table(task, name, pieces, length, on_progress))  # type: ignore[arg-type]
    rows = task.examples(name)
    return Split(name, rows, token_table(task, name, pieces, length, rows))


def training_blocks(task: Task, entry: Entry, table: TokenTable, seed: int) -> np.ndarray | AllRows:
    """The blocks to train on; all of them need no list."""
    if not len(table):
        raise UserError(f"{task.name}: the training set is empty")
    if entry.fraction == 1 and entry.count is None:
        return AllRows(len(table))
    return training_rows(np.arange(len(table)), entry.fraction, entry.count, seed)


# What a person should know of the rows before the first step: at most six lines for a run.

SHOWN_LABELS = 8
SHOWN_TASKS = 5
MEASURED = 2000  # sequences of full length whose text is looked at again
UNKNOWN, READ = 0.05, 2_000_000  # share of unknown tokens that is worth a warning, counted in so many


def summary(tasks_data: Sequence[TaskData]) -> list[str]:
    """Rows, labels with shares, cuts, texts on both sides, odd labels; of several tasks a line each."""
    if len(tasks_data) == 1:
        return _one_task(tasks_data[0]) if tasks_data[0].task.labelled else [text_line(tasks_data[0])]
    lines = [f"{rows_line(one)}; {labels_line(one)}{empty_texts(one)}" for one in tasks_data if one.task.labelled]
    more = [f"and {len(lines) - SHOWN_TASKS} more tasks"] if len(lines) > SHOWN_TASKS + 1 else []
    unknown = filter(None, map(unknown_line, tasks_data))
    return [*lines[:SHOWN_TASKS], *(more or lines[SHOWN_TASKS:]), *unknown]


def _one_task(task_data: TaskData) -> list[str]:
    task = task_data.task
    lengths = (line := lengths_line(task_data)) and f"{line}{empty_texts(task_data)}"
    lines = [rows_line(task_data), f"  {labels_line(task_data)}", only_label_line(task_data), lengths]
    lines += [unknown_line(task_data), shared_line(task_data)]
    return [line for line in (*lines, numbers_line(task), spelling_line(task, task_data.train.examples)) if line]


def text_line(task_data: TaskData) -> str:
    """`corpus: 526,217 sequences to train on, 51,053,800 tokens`, of text without labels."""
    table, choice = task_data.train.table, task_data.choice
    held_out = (
        f"; {len(choice.table):,} for {choice.name}, {counted(int(choice.table.lengths.sum()), 'token')}"
        if choice
        else ""
    )
    return f"{task_data.name}: {len(table):,} sequences to train on, {int(table.lengths.sum()):,} tokens{held_out}"


def is_set_aside(task: Task) -> bool:
    """Whether the dev rows are a part of the training file."""
    return isinstance(task, Own) and task.divided


def rows_line(task_data: TaskData) -> str:
    """`table/mails: 900 rows to train on, 100 for dev (0.1 of mails.csv set aside by label, …)`."""
    task, choice = task_data.task, task_data.choice
    count, whole = len(task_data.trained_on), len(task_data.train.examples)
    line = f"{task.name}: {counted(count, 'row')} to train on" + (f" (of {whole:,})" if count < whole else "")
    if choice is None:
        return f"{line}, no dev rows are scored during training"
    origin = task.origin("dev").note if choice.name == "dev" and is_set_aside(task) else None
    how = f" ({origin})" if origin else " (held out of train)" if choice.name == HOLDOUT else ""
    return f"{line}, {len(choice.examples):,} for {choice.name}{how}"


def labels_line(task_data: TaskData) -> str:
    """`labels: no 87.5 %, yes 12.5 %`, the commonest first; of numbers their range."""
    task = task_data.task
    labels = [e.label for e in task_data.trained_on if e.label is not None]
    if labels and isinstance(labels[0], float):
        numbers = np.asarray(labels, dtype=float)
        return f"labels: numbers from {numbers.min():g} to {numbers.max():g}, mean {numbers.mean():.3g}"
    if not task.labels:
        none = sum(label == () for label in labels)
        return f"questions: {len(labels):,}" + (f", {none / len(labels):.1%} of them without an answer" if none else "")
    counts = label_counts(labels)
    total = sum(counts.values()) if isinstance(task, Tagging) else len(labels)
    shares = [f"{_shown(label)} {count / total:.1%}" for label, count in counts.most_common()]
    unseen = [f"{label} 0.0%" for label in task.labels if label not in counts]
    listed = [*shares, *unseen]
    if len(listed) > SHOWN_LABELS + 1:
        listed = [*listed[: SHOWN_LABELS - 1], f"… ({len(listed)} labels)", listed[-1]]
    unused = getattr(task, "unused_names", [])
    odd = f"; tasks.labels renames {', '.join(unused)}, which no row has" if unused else ""
    return f"labels: {', '.join(listed)}{odd}"


def only_label_line(task_data: TaskData) -> str | None:
    """Of a selection that has left one label over."""
    task, labels = task_data.task, {e.label for e in task_data.trained_on}
    if len(labels) > 1 or len(task.labels) < 2 or not isinstance(label := next(iter(labels), None), str):
        return None
    return f"WARNING {task.name}: every row to train on has the label {_shown(label)}: nothing else can be learnt"


def _shown(label: object) -> str:
    """In quotes where blanks around it would not be seen."""
    text = str(label)
    return text if text == text.strip() else f'"{text}"'


def lengths_line(task_data: TaskData) -> str | None:
    """How long the texts are, and how many of them are cut, with what to do about it."""
    task, table, limit = task_data.task, task_data.train.table, task_data.max_length
    if not len(table):
        return None
    middle = int(np.median(table.lengths))
    median = f"  texts: {middle} tokens{' or more' * (middle >= limit)} in the median"
    if any(getattr(task, key, None) is not None for key in ("windows", "stride")):  # then nothing is lost
        return f"{median}, longest sequence {int(table.lengths.max())}"
    full = np.flatnonzero(table.lengths >= limit)
    measured = full[:: max(1, len(full) // MEASURED)]
    rows = [task_data.train.examples[int(table.example[row])] for row in measured]
    longer = sum(len(features.ids) > limit for features in task.encode(rows, task_data.pieces, 1 << 30))
    if not longer:
        return f"{median}, none is cut at max_length {limit}"
    share = longer / len(measured) * len(full) / len(table)
    windows = "tasks.window_stride to read long texts in windows" if hasattr(task, "window_stride") else ""
    cut = f"{median}, {share:.1%} are cut at max_length {limit}"
    if limit < task_data.positions:
        return f"{cut}: set train.max_length higher{', or ' + windows if windows else ''}"
    instead = f"give {windows}, or " if windows else ""
    return f"{cut}, and this encoder has no more positions: {instead}take one that reads longer texts (--model)"


def unknown_line(task_data: TaskData) -> str | None:
    """A warning if the tokenizer knows too few of the texts' pieces: another language, or another script."""
    tokenizer, ids = task_data.pieces.tokenizer, task_data.train.table.ids
    used = (tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id)
    if tokenizer.unk_token_id is None or tokenizer.unk_token_id in used or not len(ids):  # GPT-2's stands for all
        return None
    share = float(np.mean(np.asarray(ids[:READ]) == tokenizer.unk_token_id))
    if share < UNKNOWN:
        return None
    return (
        f"WARNING {task_data.name}: {share:.1%} of the tokens are {tokenizer.unk_token}: this encoder's vocabulary "
        "does not cover these texts, and the model cannot read them. Take one of their language, or a multilingual one "
        "(--model)"
    )


def empty_texts(task_data: TaskData) -> str:
    """`; rows with an empty text: 5 to train on and 1 for dev`; nothing where there is none."""
    choice = task_data.choice
    parts = [("to train on", task_data.trained_on), *([(f"for {choice.name}", choice.examples)] if choice else [])]
    counts = [(sum(any(not text.strip() for text in e.texts) for e in rows), where) for where, rows in parts]
    said = " and ".join(f"{count:,} {where}" for count, where in counts if count)
    return f"; rows with an empty text: {said}" if said else ""


def shared_line(task_data: TaskData) -> str | None:
    """A warning if rows that the model is scored on have a text that it was trained on."""
    choice = task_data.choice
    if choice is None:
        return None
    trained = {plain_texts(example) for example in task_data.trained_on}
    shared = sum(plain_texts(example) in trained for example in choice.examples)
    if not shared:
        return None
    share = f"{shared:,} of {len(choice.examples):,} rows of {choice.name} ({shared / len(choice.examples):.1%})"
    told = f"{share} have a text that is in train too: their scores are optimistic"
    return f"WARNING {task_data.name}: {told}; {AFTER_ALARM}"


def spelling_line(task: Task, train: Sequence[Example]) -> str | None:
    """A warning of labels of own files that are probably one; the commonest spelling is the one to keep."""
    if not isinstance(task, Own):
        return None
    rows = label_counts(e.label for e in train)
    return spelling_warning(task.name, task.labels, {str(name): n for name, n in rows.items()})


def numbers_line(task: Task) -> str | None:
    """A hint where labels are numbers: they may be a quantity, want names, or be one number that is spelled twice."""
    if not isinstance(task, Own) or len(task.labels) < 2 or not all(_WHOLE.fullmatch(label) for label in task.labels):
        return None
    if len(set(map(float, task.labels))) < len(task.labels):
        return _one_number(task.labels)
    low, high = (f(task.labels, key=float) for f in (min, max))
    other = "tasks.form regression reads them as a quantity" if len(task.labels) > 2 else "tasks.labels gives names"
    return f"  labels are the numbers {low} to {high}, each a class of its own; {other}"


def _one_number(labels: Sequence[str]) -> str | None:
    """Labels such as 1 and 01; of 1 and 1.0 the warning of spellings tells."""
    if alike(labels):
        return None
    numbers = [float(label) for label in labels]
    value = next(number for number in numbers if numbers.count(number) > 1)
    first, *others = sorted((label for label in labels if float(label) == value), key=lambda label: (len(label), label))
    merged = ", ".join(f'"{other}": "{first}"' for other in others)
    told = f"  labels {', '.join((first, *others))} are one number, each a class of its own"
    return f"{told}; tasks.labels '{{{merged}}}' merges them"


_WHOLE = re.compile(r"[+-]?\d+(\.0+)?")


# Where the rows came from, for run.json and for the person.

NAMED = 5  # skipped rows that a run names when it begins


def data_of(tasks_data: Sequence[TaskData]) -> dict[str, Any]:
    """Where the rows of each split came from; of several tasks under the task's name, and as TASK:SPLIT."""
    origins = {}
    for task_data in tasks_data:
        splits = [split for split in task_data.task.splits() if task_data.task.has(split)]
        origins[task_data.name] = {split: origin_of(task_data.task, split) for split in splits}
        if "train" in splits and (used := used_of(task_data)):
            origins[task_data.name]["train"]["used"] = used
    if len(tasks_data) == 1:
        return {"data": origins[tasks_data[0].name]}
    flat = {f"{name}:{split}": about for name, splits in origins.items() for split, about in splits.items()}
    return {"data": flat, "data_of": origins}


def skipped_rows(task: Task) -> list[BadRow]:
    """The rows of all splits that skip_bad_rows left out, each once."""
    splits = [s for s in task.splits() if task.has(s)] if getattr(task, "skip_bad_rows", False) else []
    return list(dict.fromkeys(row for split in splits for row in task.bad_rows(split)))


def used_of(task_data: TaskData) -> int | None:
    """How many of the training rows are trained on, where that is a part of them."""
    if not task_data.task.labelled:
        return None
    count = len(task_data.trained_on)
    return count if count < len(task_data.train.examples) else None


def origin_of(task: Task, split: str) -> dict[str, Any]:
    """Where a split came from, as data."""
    origin = task.origin(split)
    return {k: v for k, v in {**asdict(origin), "part": origin.part}.items() if v or k == "rows"}


def data_lines(task: Task) -> list[str]:
    """Loud lines for data that are not whole or not official; what was set aside is a matter of `summary`."""
    found = {s: task.origin(s) for s in task.splits() if not s.startswith("test") and task.has(s)}
    parts = [f"WARNING {task.name}:{s} {o.part}" for s, o in found.items() if o.part]
    loud = {s: o for s, o in found.items() if o.note and not (s == "dev" and is_set_aside(task))}
    notes = [f"WARNING {task.name}:{s} {o.note}" for s, o in loud.items()]
    skipped = skipped_rows(task)
    more = f"; and {len(skipped) - NAMED} more in bad_rows.jsonl" if len(skipped) > NAMED else ""
    names = [f"skipped: {'; '.join(map(str, skipped[:NAMED]))}{more}"] if skipped else []
    return parts + notes + names
