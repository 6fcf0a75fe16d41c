"""The data card: rows, labels, lengths, what is cut, what stands twice, and what train and dev share."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from encodery.core.redact import without_paths
from encodery.core.text import counted, short
from encodery.errors import UserError
from encodery.report.page import near_duplicates
from encodery.report.page.chart import Chart, Section, Series, spread
from encodery.report.page.data import PageData, task_names
from encodery.report.page.html import Html, choice, figure, join, table, tag
from encodery.report.records import Record
from encodery.runs.directory import RunDir
from encodery.tasks.base import Example, Task, label_counts

SAMPLE = 2000  # rows of a split whose length is measured
BINS = 30
LABELS = 12


@dataclass(frozen=True)
class Split:
    """One split and what can be counted in it."""

    name: str
    examples: Sequence[Example]
    origin: str

    @cached_property
    def labels(self) -> Counter[str]:
        """How often each label stands."""
        known = label_counts(one.label for one in self.examples if one.label is not None)
        return Counter({str(label): count for label, count in known.items()})

    @cached_property
    def texts(self) -> Counter[tuple[str, ...]]:
        """How often each text (or pair) stands."""
        return Counter(example.texts for example in self.examples)

    @property
    def doubles(self) -> int:
        """Rows whose text stood before."""
        return len(self.examples) - len(self.texts)

    @cached_property
    def sample(self) -> list[Example]:
        return spread(self.examples, SAMPLE)


def section(page: PageData) -> Section | None:
    """A card for each task."""
    charts: list[Chart] = []
    panels = []
    for number, (name, record) in enumerate(_one_of_each_task(page).items()):
        task = page.task(record, name)
        splits = _splits(page, task, record) if task and task.labelled else []
        if task and splits:
            body, drawn = _card(f"data-{number}", task, splits, record, _counting(page, record))
            alike = near_duplicates.card(
                page, f"data-{number}", task.name, [(one.name, one.examples) for one in splits]
            )
            panels.append((task.name, join(body, alike)))
            charts += drawn
    return Section("data", "Data", choice("data-task", "Task", panels), charts) if panels else None


def _one_of_each_task(page: PageData) -> dict[str, Record]:
    """The first run of each task, one with a model before others: its tokenizer counts the tokens. No plain text."""
    first: dict[str, Record] = {}
    for record in sorted(page.records, key=lambda one: not (one.path / "model" / "tokenizer.json").is_file()):
        for name in task_names(record):
            if name and name != "toy/corpus" and name.partition("/")[0] != "corpus":
                first.setdefault(name, record)
    return first


def _splits(page: PageData, task: Task, record: Record) -> list[Split]:
    splits = []
    for name in task.splits():
        try:
            if not task.has(name):
                continue
            origin = task.origin(name)
            said = "; ".join(filter(None, [origin.source, origin.part, origin.note]))
            known = record.digests.get(f"{task.name}:{name}", record.digests.get(name, origin.digest))
            if known != origin.digest:
                said += "; not the rows that the run used"
            splits.append(Split(name, task.examples(name), without_paths(said)))
        except (UserError, OSError) as error:
            page.remark(f"{task.name}:{name}: no data card, because {without_paths(short(str(error), 200))}")
    return splits


def _counting(page: PageData, record: Record) -> Any:
    """Counts tokens with the run's tokenizer; None if there is none or it is damaged, which the page says."""
    run = RunDir(record.path)
    file = run.model / "tokenizer.json"
    if not file.is_file():
        return None
    reason = run.done.damage_of(file) if run.is_done else None
    try:
        if reason is None:
            return _tokens(file)
    except Exception as error:  # tokenizers has no class of its own for a file that it cannot read
        reason = f"{file} is damaged: {short(str(error), 200)}"
    page.remark(f"{record.path.name}: lengths are counted in words, because {without_paths(reason)}")
    return None


def _card(id: str, task: Task, splits: Sequence[Split], record: Record, tokens: Any) -> tuple[Html, list[Chart]]:
    lengths, limit, unit = measured(splits, record, tokens)
    header = ["split", "rows", "doubles", "also in train", "median length", "longest"]
    header += ["cut"] if limit else []
    rows = [_line(split, splits, lengths.get(split.name), limit) for split in splits]
    caption = f"{task.name}: splits; lengths in {unit}" + (f", cut at {limit}" if limit else "")
    facts = table([*header, "from"], rows, id=f"{id}-splits", caption=caption, numbers=header[1:])
    charts = [one for one in (_balance(id, task, splits), _lengths(id, task, lengths, unit, limit)) if one]
    return join(facts, tag("div", *map(figure, charts), class_="grid")), charts


def _line(split: Split, splits: Sequence[Split], lengths: Any, limit: int | None) -> list[str]:
    train = next((one for one in splits if one.name == "train"), None)
    shared = sum(text in train.texts for text in split.texts) if train and train is not split else None
    cells = [split.name, f"{len(split.examples):,}", f"{split.doubles:,}", "" if shared is None else f"{shared:,}"]
    cells += ["", ""] if lengths is None else [f"{np.median(lengths):.0f}", f"{lengths.max():,}"]
    if limit:
        cells.append("" if lengths is None else f"{np.mean(lengths > limit):.1%}")
    return [*cells, split.origin]


def measured(splits: Sequence[Split], record: Record, tokens: Any) -> tuple[dict[str, Any], int | None, str]:
    """Lengths by split, in the run's own tokens where its tokenizer is there, else in words; where texts are cut."""
    limit = record.settings.get("tasks.0.max_length") or record.settings.get("train.max_length")
    count, unit, limit = (tokens, "tokens", limit) if tokens else (_words, "words", None)
    known = {split.name: np.asarray(count(split.sample), dtype=np.int64) for split in splits if split.examples}
    return known, int(limit) if limit else None, unit


def _words(examples: Sequence[Example]) -> list[int]:
    return [sum(len(text.split()) for text in example.texts) for example in examples]


def _tokens(file: Path) -> Any:
    """Counts pieces with the special tokens, before anything is cut."""
    from tokenizers import Tokenizer  # not at the top: a page without data cards must not wait for it

    tokenizer = Tokenizer.from_file(str(file))
    tokenizer.no_truncation()
    tokenizer.no_padding()

    def count(examples: Sequence[Example]) -> list[int]:
        rows: list[Any] = [one.texts[0] if len(one.texts) == 1 else one.texts[:2] for one in examples]
        return [len(found.ids) for found in tokenizer.encode_batch(rows)]

    return count


def _balance(id: str, task: Task, splits: Sequence[Split]) -> Chart | None:
    """The share of each label in each split."""
    names = [name for name, _ in sum((split.labels for split in splits), Counter[str]()).most_common(LABELS)]
    if not task.labels or not names:
        return None
    ordered = [label for label in task.labels if label in names]
    series = []
    for split in splits:
        total = sum(split.labels.values())
        if total:
            shares = [split.labels[label] / total for label in ordered]
            text = [counted(split.labels[label], "row") for label in ordered]
            series.append(Series(split.name, ordered, shares, kind="bars", text=text))
    return Chart(f"{id}-labels", f"Labels of {task.name}", "", "share", series) if series else None


def _lengths(id: str, task: Task, lengths: dict[str, Any], unit: str, limit: int | None) -> Chart | None:
    if not lengths:
        return None
    top = max(float(np.quantile(found, 0.995)) for found in lengths.values())
    width = max(1, round(top / BINS))  # whole numbers of tokens, or a comb appears
    edges = np.arange(0, max(top, 2.0) + width, width) - 0.5
    middle = ((edges[1:] + edges[:-1]) / 2).tolist()
    series = []
    for name, found in lengths.items():
        counts, _ = np.histogram(np.minimum(found, edges[-1]), bins=edges)
        series.append(Series(name, middle, (counts / len(found)).tolist()))
    note = f"Texts are cut at {limit} tokens." if limit else ""
    return Chart(f"{id}-lengths", f"Lengths of {task.name}", unit, "share of rows", series, note=note)
