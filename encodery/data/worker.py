"""Makes shards: `python -m encodery.data.worker` reads jobs from stdin and answers on stdout, a line of JSON each.

A process of its own that ends with its parent (stdin closes) and inherits nothing; it never imports torch.
"""

import gc
import json
import os
import sys
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from encodery.data import segments, shards
from encodery.data.decontaminate import Benchmark
from encodery.data.pieces import Template
from encodery.data.quick import Quick
from encodery.errors import EncoderyError
from encodery.tasks.corpus import Corpus

CHUNK = 100_000  # characters tokenised at once
NAMED = 20  # contaminated documents that the report names


@dataclass(frozen=True)
class Job:
    """All that a worker must know, as plain data."""

    folder: str
    tokenizer: str  # as tokenizer.json
    single: dict[str, Any]
    pair: dict[str, Any]
    corpus: dict[str, Any]
    max_length: int
    small: bool  # token ids fit into 16 bits
    sentences: dict[str, list[str]]

    def plain(self) -> dict[str, Any]:
        """For the pipe."""
        return asdict(self)


@dataclass(frozen=True)
class Batch:
    """The documents of one shard, with their numbers in the corpus, and what was counted while they were read."""

    shard: int
    documents: list[tuple[int, str]]
    counts: dict[str, int]

    @property
    def characters(self) -> int:
        """Of all documents."""
        return self.counts["characters"]


class Worker:
    """Tokenises, builds and writes shards."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.corpus = Corpus.model_validate_json(json.dumps(job.corpus))
        full, order, keep = self.corpus.blocks == "full", self.corpus.order_preserving, bool(self.corpus.keep_overflow)
        self.form = segments.Form(job.max_length, _template(job.single), _template(job.pair), full, keep, order)
        self.benchmark = Benchmark(job.sentences, self.corpus.decontaminate_words)

    @cached_property
    def pieces(self) -> Quick:
        """Of the tokenizers library alone: transformers would cost a second."""
        return Quick(self.job.tokenizer)

    def make(self, batch: Batch) -> int:
        """Write the shard of a batch; the characters that are done with it."""
        with _no_collector():
            return self._make(batch)

    def _make(self, batch: Batch) -> int:
        flats = {split: shards.Flat(self.job.small, self.form.full) for split in shards.SPLITS}
        counts: Counter[str] = Counter(batch.counts)
        dirty: list[list[Any]] = []
        for split in shards.SPLITS:
            for key in ("documents", "text_tokens"):
                counts[f"{split}_{key}"] = 0
        sides: dict[str, list[tuple[int, list[Sequence[int]]]]] = {split: [] for split in shards.SPLITS}
        for number, split, lines in self._tokens(self._kept(batch, counts, dirty)):
            counts[f"{split}_documents"] += 1
            counts[f"{split}_text_tokens"] += sum(map(len, lines))
            if self.form.full:
                sides[split].append((number, lines))
            else:
                flats[split].add(segments.electra(lines, number, self.corpus.seed, self.form))
        for split in shards.SPLITS if self.form.full else ():
            flats[split].add(segments.full(sides[split], self.form))
        path = Path(self.job.folder, "shards", shards.name(batch.shard))
        kept = {f"{split}_kept_tokens": flat.text for split, flat in flats.items()}
        shards.write(path, flats, {**counts, **kept, "contaminated": dirty})
        return batch.characters

    def _kept(self, batch: Batch, counts: Counter[str], dirty: list[list[Any]]) -> Iterator[tuple[int, str, list[str]]]:
        """(number, split, lines) of the documents that stay."""
        for number, text in batch.documents:
            lines = self.corpus.lines(text, counts)
            if not lines:
                counts["empty"] += 1
                continue
            whole = "\n".join(lines)
            if found := self.benchmark.find(whole):
                dirty.append([number, *found])
                continue
            yield number, self.corpus.split_of(whole), lines

    def _tokens(
        self, documents: Iterator[tuple[int, str, list[str]]]
    ) -> Iterator[tuple[int, str, list[Sequence[int]]]]:
        """Lines become token ids, many at once."""
        held: list[tuple[int, str, list[str]]] = []
        size = 0
        for document in documents:
            held.append(document)
            size += sum(map(len, document[2]))
            if size >= CHUNK:
                yield from self._encoded(held)
                held, size = [], 0
        yield from self._encoded(held)

    def _encoded(self, held: list[tuple[int, str, list[str]]]) -> Iterator[tuple[int, str, list[Sequence[int]]]]:
        flat = [line for _, _, lines in held for line in lines]
        found = iter(self.pieces.many(flat))
        for number, split, lines in held:
            yield number, split, list(islice(found, len(lines)))


@contextmanager
def _no_collector() -> Iterator[None]:
    """Millions of small lists and no cycles: Python's collector would walk through all of them again and again."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def _template(plain: dict[str, Any]) -> Template:
    """A template that went through JSON, where tuples are lists."""
    return Template(**{key: tuple(value) for key, value in plain.items()})


def serve() -> None:
    """Answer until the parent closes the pipe or dies."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the processes are the parallelism
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever else prints must not stand between the answers
    worker: Worker | None = None
    for line in sys.stdin.buffer:
        asked = json.loads(line)
        try:
            if worker is None:
                worker = Worker(Job(**asked))
                continue
            answer: dict[str, Any] = {"done": worker.make(Batch(**asked))}
        except EncoderyError as error:
            answer = {"error": str(error), "code": error.exit_code}
        except Exception:  # the parent says it
            answer = {"error": traceback.format_exc(), "code": None}
        print(json.dumps(answer), file=out, flush=True)


if __name__ == "__main__":
    serve()
