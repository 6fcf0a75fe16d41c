"""What a model will see before anything is trained: rows, lengths, labels, doubles, the first batch."""

import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from encodery.config.load import Resolved
from encodery.config.schema import Entry
from encodery.data import rng
from encodery.data.batches import AllRows, Batch, Batches, InputForm, MicroBatcher, describe, texts_of
from encodery.data.token_table import token_table
from encodery.data.tokenizer import TokenizerPieces
from encodery.errors import UserError
from encodery.inference.open_model import pick_device
from encodery.models.encoder import choose_layout, encoder_config, input_form, new_config
from encodery.models.model import Model
from encodery.models.tokenizer import load_tokenizer
from encodery.objectives.electra import written
from encodery.objectives.parts.masking import mask
from encodery.tasks.base import Example, Label, Task
from encodery.tasks.forms.tagging import Tagging
from encodery.training.build import build_parts, find_inputs, token_budget
from encodery.training.loop import steps_in_all
from encodery.training.task_data import Split, training_data

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# A few corrupted rows of a pretraining, for a person to look at: original, masked, sampled, label, probability.


# Colours of a terminal: what was asked about, what a sample replaced, what the model noticed, what it took for one.
MASKED, REPLACED, FOUND, ALARM, PLAIN = "\033[33m", "\033[31m", "\033[32m", "\033[35m", "\033[0m"


@dataclass(frozen=True)
class Row:
    """One sequence, token by token."""

    original: list[str]
    shown: list[str]
    asked: list[bool]
    read: list[str]  # what the discriminator reads; empty without one
    chances: list[float]  # that a token was replaced

    def lines(self, colour: bool) -> Iterator[str]:
        """Three or four lines: text, what is shown, what is sampled, and how sure the model is."""
        yield "    original  " + " ".join(self.original)
        shown = [_paint(t, MASKED, colour, a) for t, a in zip(self.shown, self.asked, strict=True)]
        yield "    shown     " + " ".join(shown)
        if self.read:
            yield "    sampled   " + " ".join(self._sampled(colour))
            yield "    replaced  " + "  ".join(self._judged(colour))

    def _sampled(self, colour: bool) -> Iterator[str]:
        for before, now, asked in zip(self.original, self.read, self.asked, strict=True):
            text = f"{before}→{now}" if before != now else now
            yield _paint(text, REPLACED if before != now else MASKED, colour, asked)

    def _judged(self, colour: bool) -> Iterator[str]:
        """Every replaced token with the model's probability of that, then every original one that it suspects."""
        for before, now, chance in zip(self.original, self.read, self.chances, strict=True):
            if before != now:
                yield _paint(f"{now} {chance:.0%}", FOUND if chance > 0.5 else REPLACED, colour)
            elif chance > 0.5:
                yield _paint(f"({now} {chance:.0%})", ALARM, colour)


def _paint(text: str, colour: str, wanted: bool, this: bool = True) -> str:
    return f"{colour}{text}{PLAIN}" if wanted and this else text


@torch.no_grad()
def rows(model: Model, batches: Batches, tokenizer: "PreTrainedTokenizerBase", count: int) -> list[Row]:
    """The first rows of the first step, as the objective sees them."""
    table, texts = texts_of(batches.table, batches.rows_at(0))
    noise = rng.key(batches.noise, "noise", 0)
    batches_of_rows = [batches.batcher.batch(table, np.array([row]), batches.task, 0) for row in texts[:count]]
    was_training = model.training
    model.eval()
    try:
        return [_row(model, replace(batch, noise=noise), tokenizer) for batch in batches_of_rows]
    finally:
        model.train(was_training)


def _row(model: Model, batch: Batch, tokenizer: "PreTrainedTokenizerBase") -> Row:
    objective = model.objective(batch.task)
    masked = mask(batch, objective.options.masking, objective.vocabulary)
    true = batch.inputs["input_ids"]
    asked = torch.zeros(true.numel(), dtype=torch.bool)
    asked[masked.cells] = True
    original, shown = (_words(tokenizer, batch.tokens(ids)) for ids in (true, masked.ids))
    outputs = model.outputs(batch)
    if "sample" not in outputs:
        return Row(original, shown, asked[batch.layout.cells].tolist(), [], [])
    read = _words(tokenizer, batch.tokens(written(batch, masked, outputs["sample"])))
    return Row(original, shown, asked[batch.layout.cells].tolist(), read, outputs["logits"].sigmoid().tolist())


def _words(tokenizer: "PreTrainedTokenizerBase", ids: torch.Tensor) -> list[str]:
    words: list[str] = tokenizer.convert_ids_to_tokens(ids.tolist())
    return words


def describe_corruption(
    model: Model, batches: Batches, tokenizer: "PreTrainedTokenizerBase", count: int
) -> Iterator[str]:
    """For `encodery inspect`; in colour at a terminal."""
    yield "corrupted rows of the first step (asked positions yellow, replaced ones red)"
    for number, row in enumerate(rows(model, batches, tokenizer, count), start=1):
        yield f"  row {number}"
        yield from row.lines(sys.stdout.isatty())


SAMPLE = 20_000  # rows whose full length is measured
BAR = 40  # characters of the longest bar


@dataclass(frozen=True)
class View:
    """A run's data as its model would read them; no weights are loaded."""

    resolved: Resolved
    task: Task
    entry: Entry
    tokenizer: "PreTrainedTokenizerBase"
    pieces: TokenizerPieces
    form: InputForm
    layout: Any
    max_length: int


def view(resolved: Resolved) -> View:
    """Tokenizer, task and layout of a config."""
    if len(resolved.tasks) != 1:
        names = ", ".join(task.name for task, _ in resolved.tasks)
        raise UserError(f"tasks: {len(resolved.tasks)} tasks given; name one with --head: {names}")
    (task, entry), options = resolved.tasks[0], resolved.config.model
    inputs = find_inputs(resolved)
    tokenizer = load_tokenizer(options, inputs.tokenizer, inputs.model, toy=task.name.startswith("toy/"))
    if inputs.model is None:
        assert options.new is not None
        net = new_config(options.new, tokenizer)
    else:
        net = encoder_config(inputs.model.path)
    form = input_form(net)
    wanted = entry.max_length or resolved.config.train.max_length
    length = min(wanted, net.max_position_embeddings - form.first_position)
    layout = choose_layout(net.model_type, resolved.config.train.layout)
    return View(resolved, task, entry, tokenizer, TokenizerPieces(tokenizer), form, layout, length)


def only(resolved: Resolved, name: str) -> Resolved:
    """The config with one of its tasks."""
    pairs = [pair for pair in resolved.tasks if pair[0].name == name]
    if not pairs:
        have = ", ".join(task.name for task, _ in resolved.tasks)
        raise UserError(f"--head {name}: is none of this run's tasks: {have}")
    return replace(resolved, tasks=pairs)


def describe_run(resolved: Resolved, split: str, rows: int) -> Iterator[str]:
    """Everything, line by line."""
    seen = view(resolved)
    if split not in seen.task.splits():
        raise UserError(f'{seen.task.name} has no split "{split}"; it has {", ".join(seen.task.splits())}')
    if not seen.task.labelled:
        yield from corpus_lines(resolved, seen, split, rows)
        return
    here = {name: seen.task.examples(name) for name in seen.task.splits() if name == split or seen.task.has(name)}
    yield from data_lines(seen.task, here)
    yield from label_lines(seen.task, here)
    yield from double_lines(here)
    table = _split(seen, split, here[split])
    yield from length_lines(seen, table)
    yield from row_lines(seen, table, rows)
    if seen.task.has("train"):
        yield from batch_lines(seen)


def corpus_lines(resolved: Resolved, seen: View, split: str, rows: int) -> Iterator[str]:
    """Plain text: its blocks, and a few of them as the objective corrupts them."""
    built = build_parts(resolved, find_inputs(resolved))
    yield from data_lines(seen.task, {name: () for name in seen.task.splits() if seen.task.has(name)})
    blocks = built.split(split)
    lengths = np.asarray(blocks.table.lengths)
    tokens = int(lengths.sum())
    shape = f"{len(lengths):,} of {lengths.mean():.1f} tokens (longest {lengths.max()})"
    yield f"blocks of {split}: {shape}, {tokens:,} tokens in all"
    stream = replace(built.batches.stream(seen.task.name), table=blocks.table, rows=AllRows(len(lengths)))
    yield from describe_corruption(built.model, stream, seen.tokenizer, rows)
    yield from batch_lines(seen)


def _split(seen: View, name: str, examples: Sequence[Example]) -> Split:
    return Split(name, examples, token_table(seen.task, name, seen.pieces, seen.max_length, examples))


def data_lines(task: Task, here: dict[str, Sequence[Example]]) -> Iterator[str]:
    """Where the rows come from."""
    yield task.name
    for name, examples in here.items():
        origin = task.origin(name)
        more = "".join(f"  WARNING {text}" for text in (origin.part, origin.note) if text)
        yield f"  {name}: {len(examples) or origin.rows:,} rows from {origin.source}{more}"


def label_lines(task: Task, here: dict[str, Sequence[Example]]) -> Iterator[str]:
    """How often each label stands in each split."""
    yield "labels"
    for name, examples in here.items():
        labels = [example.label for example in examples if example.label is not None]
        if not labels:
            yield f"  {name}: hidden"
        elif not task.labels and not isinstance(labels[0], float):
            yield f"  {name}: {len(labels):,} answers, {sum(label == () for label in labels):,} of them: there is none"
        elif not task.labels:
            numbers = np.asarray(labels, dtype=float)
            yield f"  {name}: from {numbers.min():g} to {numbers.max():g}, mean {numbers.mean():.3f}"
        else:
            counts = Counter(one for label in labels for one in (label if isinstance(label, tuple) else (label,)))
            total = sum(counts.values()) if isinstance(task, Tagging) else len(labels)
            shares = (f"{label} {counts[label]:,} ({counts[label] / total:.1%})" for label in task.labels)
            yield f"  {name}: " + "  ".join(shares)


def double_lines(here: dict[str, Sequence[Example]]) -> Iterator[str]:
    """Texts that stand twice, within a split and across."""
    yield "doubles"
    texts: dict[str, set[tuple[str, ...]]] = {}
    for name, examples in here.items():
        labels: dict[tuple[str, ...], list[Label]] = defaultdict(list)
        for example in examples:
            labels[example.texts].append(example.label)
        texts[name] = set(labels)
        again = [found for found in labels.values() if len(found) > 1]
        unequal = sum(len(set(found)) > 1 for found in again)
        yield f"  {name}: {len(again):,} texts occur more than once, {unequal:,} of them with different labels"
    for name in texts:
        if name != "train" and "train" in texts:
            yield f"  train and {name} share {len(texts['train'] & texts[name]):,} texts"


def length_lines(seen: View, split: Split) -> Iterator[str]:
    """How long the sequences are, before anything is cut."""
    lengths, sample = full_lengths(seen, split.examples), min(len(split.examples), SAMPLE)
    of = f"{sample:,} rows drawn of {len(split.examples):,}" if sample < len(split.examples) else f"{sample:,} rows"
    cut = int((lengths > seen.max_length).sum())
    marks = {"shortest": lengths.min(), "median": np.median(lengths), "95 %": np.quantile(lengths, 0.95)}
    spelled = ", ".join(f"{name} {value:.0f}" for name, value in marks.items())
    yield f"lengths of {split.name} in tokens ({of}): {spelled}, longest {lengths.max()}"
    yield f"  cut at max_length {seen.max_length}: {cut:,} ({cut / len(lengths):.1%})"
    counts, edges = np.histogram(lengths, bins=min(10, max(1, int(lengths.max() - lengths.min()))))
    for count, low, high in zip(counts, edges, edges[1:], strict=False):
        yield f"  {low:6.0f} to {high:6.0f}  {'#' * round(BAR * count / counts.max()):{BAR}}  {count:,}"
    unknown = seen.tokenizer.unk_token_id
    if unknown is not None:
        share = float(np.mean(np.asarray(split.table.ids) == unknown))
        yield f"  unknown pieces ({seen.tokenizer.unk_token}): {share:.2%}"


def full_lengths(seen: View, examples: Sequence[Example]) -> np.ndarray:
    """Tokens of each sequence if nothing were cut; of a part of the rows where there are many."""
    if len(examples) > SAMPLE:
        examples = [examples[i] for i in rng.choose(0, "inspect", len(examples), SAMPLE)]
    return np.asarray([len(row.ids) for row in seen.task.encode(examples, seen.pieces, 1 << 30)])


def row_lines(seen: View, split: Split, rows: int) -> Iterator[str]:
    """The first rows as the model reads them, special tokens included."""
    table = split.table
    yield f"rows of {split.name}"
    for row in range(min(rows, len(table))):
        ids = table.ids[table.starts[row] : table.starts[row + 1]]
        example = split.examples[int(table.example[row])]
        label = "hidden" if example.label is None else str(example.label)
        target = ", ".join(f"{name} {values[row].tolist()}" for name, values in table.targets.items())
        yield f"  id {example.id}  {label} ({target})  {len(ids)} tokens"
        yield f"    {seen.tokenizer.decode(ids.tolist(), skip_special_tokens=False)}"
        here = slice(table.starts[row], table.starts[row + 1])
        for name, values in table.token_targets.items():
            yield f"    {name}: {' '.join(map(str, values[here].tolist()))}"


def batch_lines(seen: View) -> Iterator[str]:
    """How the first step lies in memory."""
    config = seen.resolved.config
    train, _, rows = training_data(seen.task, seen.entry, config, seen.pieces, seen.max_length)
    budget = token_budget(config, [seen.task], pick_device(config.device))
    batcher = MicroBatcher(seen.layout, seen.form, budget, config.train.micro_batch)
    seeds = config.seed
    batches = Batches(seen.task.name, train.table, rows, config.train.batch_size, seeds.data, seeds.init, batcher)
    micro = batches.at(0)
    sizes = describe(micro)
    total = steps_in_all(batches, config.train.epochs, config.train.max_steps)
    yield f"first batch ({seen.layout}): {sizes['sequences']} sequences, {sizes['tokens']:,} tokens"
    yield f"  {sizes['cells']:,} cells, {sizes['cells'] - sizes['tokens']:,} of them padding"
    for number, batch in enumerate(micro, start=1):
        shape = " × ".join(str(n) for n in batch.inputs["input_ids"].shape)
        yield f"  micro-batch {number}: {len(batch)} sequences as {shape}"
    yield f"  {len(rows):,} rows: {batches.steps_per_epoch:,} steps per epoch, {total:,} in all"
