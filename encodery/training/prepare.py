"""Preparing ahead of training: the tokens of a run's corpus or task, in a folder or in the cache."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from encodery.config.load import Resolved
from encodery.core.files import read_json
from encodery.data.corpus.blocks import OnProgress
from encodery.data.corpus.prepare import corpus_table, loss_lines, prepare
from encodery.data.corpus.workers import Workers
from encodery.data.token_table import token_table
from encodery.data.tokenizer import TokenizerPieces
from encodery.errors import UserError
from encodery.models import locate
from encodery.models.tokenizer import load_tokenizer
from encodery.tasks.corpus import Corpus


@dataclass(frozen=True)
class Prepared:
    """What came out."""

    folder: Path
    report: dict[str, Any] | None  # of a corpus


def tokenizer_of(resolved: Resolved) -> Any:
    """The tokenizer that the run would use; no weights are looked at."""
    options = resolved.config.model
    name = options.tokenizer or options.name
    own = locate.resolve_tokenizer(name, resolved.folder) if name and name != "toy" else None
    toy = all(task.name.startswith("toy/") for task, _ in resolved.tasks)
    return load_tokenizer(options, own, None, toy=toy)


def prepare_run(resolved: Resolved, out: Path | None, workers: Workers, on_progress: OnProgress) -> Iterator[Prepared]:
    """The tokens of every task of a run, where training will look for them (or, for a corpus, in `out`)."""
    if out is not None and (len(resolved.tasks) != 1 or not isinstance(resolved.tasks[0][0], Corpus)):
        raise UserError("-o is for one corpus; other tasks are kept in the cache")
    pieces = TokenizerPieces(tokenizer_of(resolved))
    for task, entry in resolved.tasks:
        length = entry.max_length or resolved.config.train.max_length
        if not isinstance(task, Corpus):
            for split in (one for one in task.splits() if task.has(one)):
                folder = token_table(task, split, pieces, length).folder
                assert folder is not None  # only tables of raw input lie in memory
                yield Prepared(folder, None)
        elif out is not None:
            yield Prepared(out, prepare(out, task, pieces, length, on_progress, workers))
        else:
            folder = corpus_table(task, "train", pieces, length, on_progress, workers).folder
            yield Prepared(folder, read_json(folder / "report.json"))


def report_lines(report: dict[str, Any]) -> Iterator[str]:
    """A preparation, for people."""
    read, left = report["read"], report["left_out"]
    yield f"read: {read['documents']:,} documents, {read['characters']:,} characters"
    said = {
        "bad rows": read["bad_rows"],
        "empty documents": left["empty_documents"],
        "duplicate documents": left["duplicate_documents"],
        "duplicate lines": left["duplicate_lines"],
    }
    said |= {f"documents with a sentence of {task}": n for task, n in left["contaminated_documents"].items()}
    shown = [f"{count:,} {what}" for what, count in said.items() if count]
    if shown:
        yield f"left out: {', '.join(shown)}"
    for split, made in report["made"].items():
        if made["blocks"]:
            kept = made["text_tokens_kept"] / made["text_tokens_read"]
            yield (
                f"{split}: {made['blocks']:,} blocks of {made['documents']:,} documents, {made['tokens']:,} tokens "
                f"({made['full_blocks'] / made['blocks']:.1%} of the blocks full; {kept:.1%} of the text kept)"
            )
    yield from loss_lines(report)
