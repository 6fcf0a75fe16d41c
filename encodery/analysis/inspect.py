"""What a model will see before anything is trained: rows, lengths, labels, doubles, the first batch."""

import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from encodery.config.load import Resolved
from encodery.config.schema import Entry
from encodery.core.text import counted
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
from encodery.tasks.base import Example, Label, Task, label_counts
from encodery.tasks.forms.tagging import Tagging
from encodery.training.build import build_parts, find_inputs, token_budget
from encodery.training.loop import steps_in_all
from encodery.training.task_data import Split, spelling_line, training_data

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
    yield "corrupted rows of the first step (predicted positions yellow, replaced ones red)"
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
        raise UserError(f"--head {name}: is not a task of this run; it has {have}")
    return replace(resolved, tasks=pairs)


Record = dict[str, Any]


def describe_run(resolved: Resolved, split: str, rows: int) -> Iterator[str]:
    """Everything, line by line."""
    seen = _viewed(resolved, split)
    if not seen.task.labelled:
        yield from corpus_lines(resolved, seen, split, rows)
        return
    here = _here(seen, split)
    yield from data_lines(data_records(seen.task, here), seen.task.name)
    yield from label_lines(seen.task, here)
    yield from double_lines(here)
    table = _split(seen, split, here[split])
    yield from length_lines(seen, table)
    yield from row_lines(seen, table, rows)
    if seen.task.has("train"):
        yield from batch_lines(first_batch(seen), seen.layout)


def run_records(resolved: Resolved, split: str, rows: int) -> dict[str, list[Record]]:
    """The same as records, for tables and programs."""
    seen = _viewed(resolved, split)
    if not seen.task.labelled:
        built = build_parts(resolved, find_inputs(resolved))
        own = {name: () for name in seen.task.splits() if seen.task.has(name)}
        lengths = np.asarray(built.split(split).table.lengths)
        blocks = {"split": split, "blocks": len(lengths), "tokens": int(lengths.sum()), "longest": int(lengths.max())}
        return {"data": data_records(seen.task, own), "blocks": [blocks], "first batch": [first_batch(seen).record()]}
    here = _here(seen, split)
    table = _split(seen, split, here[split])
    sections = {
        "data": data_records(seen.task, here),
        "labels": [record for name, examples in here.items() for record in label_records(seen.task, name, examples)],
        "doubles": double_records(here),
        "lengths": [{"split": split, **length_record(seen, table)}],
        "rows": [record for record, _ in row_records(seen, table, rows)],
        "first batch": [first_batch(seen).record()] if seen.task.has("train") else [],
    }
    return {title: records for title, records in sections.items() if records}


def _viewed(resolved: Resolved, split: str) -> View:
    seen = view(resolved)
    if split not in seen.task.splits():
        raise UserError(seen.task.no_split(split))
    return seen


def _here(seen: View, split: str) -> dict[str, Sequence[Example]]:
    return {name: seen.task.examples(name) for name in seen.task.splits() if name == split or seen.task.has(name)}


def corpus_lines(resolved: Resolved, seen: View, split: str, rows: int) -> Iterator[str]:
    """Plain text: its blocks, and a few of them as the objective corrupts them."""
    built = build_parts(resolved, find_inputs(resolved))
    own: dict[str, Sequence[Example]] = {name: () for name in seen.task.splits() if seen.task.has(name)}
    yield from data_lines(data_records(seen.task, own), seen.task.name)
    blocks = built.split(split)
    lengths = np.asarray(blocks.table.lengths)
    tokens = int(lengths.sum())
    shape = f"{len(lengths):,} of {lengths.mean():.1f} tokens (longest {lengths.max()})"
    yield f"blocks of {split}: {shape}, {tokens:,} tokens in all"
    stream = replace(built.batches.stream(seen.task.name), table=blocks.table, rows=AllRows(len(lengths)))
    yield from describe_corruption(built.model, stream, seen.tokenizer, rows)
    yield from batch_lines(first_batch(seen), seen.layout)


def _split(seen: View, name: str, examples: Sequence[Example]) -> Split:
    return Split(name, examples, token_table(seen.task, name, seen.pieces, seen.max_length, examples))


def data_records(task: Task, here: Mapping[str, Sequence[Example]]) -> list[Record]:
    """Where the rows come from."""
    origins = {name: task.origin(name) for name in here}
    return [
        {"split": name, "rows": len(here[name]) or origin.rows, "source": origin.source}
        | {"warning": origin.part or "", "note": origin.note or ""}
        for name, origin in origins.items()
    ]


def data_lines(records: Sequence[Record], task: str) -> Iterator[str]:
    """Each split, its rows and where they come from, as lines."""
    yield task
    for one in records:
        more = f"  WARNING {one['warning']}" if one["warning"] else ""
        more += f" ({one['note']})" if one["note"] else ""
        yield f"  {one['split']}: {one['rows']:,} rows from {one['source']}{more}"


def label_records(task: Task, split: str, examples: Sequence[Example]) -> list[Record]:
    """How often each label occurs in a split: counts and shares; of numbers their range."""
    labels = [example.label for example in examples if example.label is not None]
    if not labels:
        return [{"split": split, "label": None, "rows": 0}]
    if not task.labels and not isinstance(labels[0], float):
        none = sum(label == () for label in labels)
        return [
            {"split": split, "label": "an answer", "rows": len(labels) - none},
            {"split": split, "label": "none", "rows": none},
        ]
    if not task.labels:
        numbers = np.asarray(labels, dtype=float)
        low, high, mean = float(numbers.min()), float(numbers.max()), float(numbers.mean())
        return [{"split": split, "rows": len(labels), "from": low, "to": high, "mean": mean}]
    counts = label_counts(labels)
    total = sum(counts.values()) if isinstance(task, Tagging) else len(labels)
    return [
        {"split": split, "label": label, "rows": counts[label], "share": counts[label] / total} for label in task.labels
    ]


def visible(label: str) -> str:
    """In quotes where spaces at an end could not be seen."""
    return label if label == label.strip() else f'"{label}"'


def label_lines(task: Task, here: Mapping[str, Sequence[Example]]) -> Iterator[str]:
    """The labels and their shares in each split, as lines."""
    yield "labels"
    for name, examples in here.items():
        records = label_records(task, name, examples)
        first = records[0]
        if "from" in first:
            yield f"  {name}: from {first['from']:g} to {first['to']:g}, mean {first['mean']:.3f}"
        elif first["label"] is None:
            yield f"  {name}: hidden"
        elif "share" in first:
            yield f"  {name}: " + "  ".join(f"{visible(r['label'])} {r['rows']:,} ({r['share']:.1%})" for r in records)
        else:
            total = sum(record["rows"] for record in records)
            yield f"  {name}: {total:,} questions, {records[1]['rows']:,} of them without an answer"
    if warning := spelling_line(task, here.get("train", ())):
        yield warning


def double_records(here: Mapping[str, Sequence[Example]]) -> list[Record]:
    """Texts that occur twice, within a split and across."""
    records: list[Record] = []
    texts: dict[str, set[tuple[str, ...]]] = {}
    for name, examples in here.items():
        labels: dict[tuple[str, ...], list[Label]] = defaultdict(list)
        for example in examples:
            labels[example.texts].append(example.label)
        texts[name] = set(labels)
        again = [found for found in labels.values() if len(found) > 1]
        unequal = sum(len(set(found)) > 1 for found in again)
        records.append({"split": name, "texts": len(again), "different labels": unequal})
    return [
        one
        if one["split"] == "train" or "train" not in texts
        else one | {"also in train": len(texts["train"] & texts[one["split"]])}
        for one in records
    ]


def double_lines(here: Mapping[str, Sequence[Example]]) -> Iterator[str]:
    """Texts that occur more than once, as lines."""
    yield "doubles"
    records = double_records(here)
    for one in records:
        unequal = f"{one['different labels']:,} of them with different labels"
        yield f"  {one['split']}: {_texts(one['texts'])} more than once, {unequal}"
    for one in records:
        if "also in train" in one:
            yield f"  train and {one['split']} share {counted(one['also in train'], 'text')}"


def _texts(count: int) -> str:
    return f"{counted(count, 'text')} {'occurs' if count == 1 else 'occur'}"


def length_record(seen: View, split: Split) -> Record:
    """How long the sequences are, before anything is cut."""
    lengths = full_lengths(seen, split.examples)
    return {
        "rows": len(lengths), "shortest": int(lengths.min()), "median": float(np.median(lengths)),
        "95 %": float(np.quantile(lengths, 0.95)), "longest": int(lengths.max()), "max_length": seen.max_length,
        "cut": int((lengths > seen.max_length).sum()), "unknown": _unknown(seen, split),
    }  # fmt: skip


def _unknown(seen: View, split: Split) -> float | None:
    """The share of pieces that the tokenizer does not know."""
    if (unknown := seen.tokenizer.unk_token_id) is None:
        return None
    return float(np.mean(np.asarray(split.table.ids) == unknown))


def length_lines(seen: View, split: Split) -> Iterator[str]:
    """The same for people, with a histogram."""
    about, lengths = length_record(seen, split), full_lengths(seen, split.examples)
    sample, whole = about["rows"], len(split.examples)
    of = f"{sample:,} rows drawn of {whole:,}" if sample < whole else f"{sample:,} rows"
    spelled = ", ".join(f"{name} {about[name]:.0f}" for name in ("shortest", "median", "95 %"))
    yield f"lengths of {split.name} in tokens ({of}): {spelled}, longest {about['longest']}"
    yield f"  cut at max_length {seen.max_length}: {about['cut']:,} ({about['cut'] / sample:.1%})"
    counts, edges = np.histogram(lengths, bins=min(10, max(1, int(lengths.max() - lengths.min()))))
    for count, low, high in zip(counts, edges, edges[1:], strict=False):
        yield f"  {low:6.0f} to {high:6.0f}  {'#' * round(BAR * count / counts.max()):{BAR}}  {count:,}"
    if about["unknown"] is not None:
        yield f"  unknown tokens ({seen.tokenizer.unk_token}): {about['unknown']:.2%}"


def full_lengths(seen: View, examples: Sequence[Example]) -> np.ndarray:
    """Tokens of each sequence if nothing were cut; of a part of the rows where there are many."""
    if len(examples) > SAMPLE:
        examples = [examples[i] for i in rng.choose(0, "inspect", len(examples), SAMPLE)]
    return np.asarray([len(row.ids) for row in seen.task.encode(examples, seen.pieces, 1 << 30)])


def row_records(seen: View, split: Split, rows: int) -> Iterator[tuple[Record, dict[str, list[Any]]]]:
    """The first rows as the model reads them, special tokens included, and what is asked of each token."""
    table = split.table
    for row in range(min(rows, len(table))):
        here = slice(table.starts[row], table.starts[row + 1])
        ids = table.ids[here]
        example = split.examples[int(table.example[row])]
        label = "hidden" if example.label is None else str(example.label)
        target = ", ".join(f"{name} {values[row].tolist()}" for name, values in table.targets.items())
        text = seen.tokenizer.decode(ids.tolist(), skip_special_tokens=False)
        record = {"id": example.id, "label": label, "target": target, "tokens": len(ids), "text": text}
        yield record, {name: values[here].tolist() for name, values in table.token_targets.items()}


def row_lines(seen: View, split: Split, rows: int) -> Iterator[str]:
    """The first rows and what the model sees of them, as lines."""
    yield f"rows of {split.name}"
    for one, targets in row_records(seen, split, rows):
        yield f"  id {one['id']}  {one['label']} ({one['target']})  {one['tokens']} tokens"
        yield f"    {one['text']}"
        for name, values in targets.items():
            yield f"    {name}: {' '.join(map(str, values))}"


@dataclass(frozen=True)
class FirstBatch:
    """How the first step is laid out in memory."""

    rows: int
    sizes: Mapping[str, int]
    micro: Sequence[Batch]
    steps_per_epoch: int
    steps: int

    def record(self) -> Record:
        """As data."""
        padding = self.sizes["cells"] - self.sizes["tokens"]
        sizes = {key: int(self.sizes[key]) for key in ("sequences", "tokens")}
        steps = {"steps per epoch": self.steps_per_epoch, "steps": self.steps}
        return {**sizes, "padding": int(padding), "micro-batches": len(self.micro), "rows": self.rows, **steps}


def first_batch(seen: View) -> FirstBatch:
    """The first step of the training that the config asks for."""
    config = seen.resolved.config
    train, _, rows = training_data(seen.task, seen.entry, config, seen.pieces, seen.max_length)
    budget = token_budget(config, [seen.task], pick_device(config.device))
    batcher = MicroBatcher(seen.layout, seen.form, budget, config.train.micro_batch)
    seeds = config.seed
    batches = Batches(seen.task.name, train.table, rows, config.train.batch_size, seeds.data, seeds.init, batcher)
    micro = batches.at(0)
    total = steps_in_all(batches, config.train.epochs, config.train.max_steps)
    return FirstBatch(len(rows), describe(micro), micro, batches.steps_per_epoch, total)


def batch_lines(first: FirstBatch, layout: Any) -> Iterator[str]:
    """The first batch and how it is laid out, as lines."""
    sizes = first.sizes
    yield f"first batch ({layout}): {counted(sizes['sequences'], 'sequence')}, {sizes['tokens']:,} tokens"
    yield f"  {sizes['cells']:,} cells, {sizes['cells'] - sizes['tokens']:,} of them padding"
    for number, batch in enumerate(first.micro, start=1):
        shape = " × ".join(str(n) for n in batch.inputs["input_ids"].shape)
        yield f"  micro-batch {number}: {counted(len(batch), 'sequence')} as {shape}"
    yield f"  {counted(first.rows, 'row')}: {counted(first.steps_per_epoch, 'step')} per epoch, {first.steps:,} in all"
