"""Makes shards: `python -m encodery.data.corpus.workers` reads jobs from stdin and answers on stdout, in lines of JSON.

A process of its own that ends with its parent (stdin closes) and inherits nothing; it never imports torch.
"""

import gc
import json
import os
import subprocess
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from queue import Queue
from typing import Any

from encodery.data.corpus import segments, shards
from encodery.data.corpus.decontaminate import Benchmark
from encodery.data.corpus.fast_wordpiece import Quick
from encodery.data.tokenizer import Template
from encodery.errors import EncoderyError, RunFailed, UserError
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

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Batch:
    """The documents of one shard, with their numbers in the corpus, and what was counted while they were read."""

    shard: int
    documents: list[tuple[int, str]]
    counts: dict[str, int]

    @property
    def characters(self) -> int:
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
            document = "\n".join(lines)
            if found := self.benchmark.find(document):
                dirty.append([number, *found])
                continue
            yield number, self.corpus.split_of(document), lines

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


# Several worker processes that make shards; a thread for each waits for its answers.


Process = subprocess.Popen[bytes]
Maker = Callable[[Job, Iterable[Batch]], Iterator[Batch]]  # yields each batch when its shard is on the disk
Workers = int | Maker | None  # so many processes here (None: one per core), or somebody elsewhere


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def made_by(workers: Workers, job: Job, batches: Iterable[Batch]) -> Iterator[Batch]:
    """Make the shards of all batches, here or elsewhere."""
    return workers(job, batches) if callable(workers) else make_all(job, batches, workers or cores())


def make_all(job: Job, batches: Iterable[Batch], workers: int) -> Iterator[Batch]:
    """Make the shards of all batches; yields each batch when its shard is on the disk, in any order."""
    flow = iter(batches)
    ahead = list(islice(flow, 2))
    if workers == 1 or len(ahead) < 2:  # not worth a process
        yield from _alone(job, chain(ahead, flow))
    else:
        yield from _crew(job, chain(ahead, flow), workers)


def _alone(job: Job, batches: Iterable[Batch]) -> Iterator[Batch]:
    worker = Worker(job)
    for batch in batches:
        with _one_thread():
            worker.make(batch)
        yield batch


@contextmanager
def _one_thread() -> Iterator[None]:
    """The tokenizers library looks at this variable in every call."""
    name = "TOKENIZERS_PARALLELISM"
    before = os.environ.get(name)
    os.environ[name] = "false"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _crew(job: Job, batches: Iterable[Batch], workers: int) -> Iterator[Batch]:
    """At most one batch more than there are workers is held in memory."""
    started: list[Process] = []
    idle: Queue[Process] = Queue()
    pool = ThreadPoolExecutor(workers)
    try:
        for _ in range(workers):
            started.append(_start(job))
            idle.put(started[-1])
        running: set[Future[Batch]] = set()
        for batch in batches:
            running.add(pool.submit(_run_batch, idle, batch))
            if len(running) > workers:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        for future in running:
            yield future.result()
    finally:
        for process in started:
            process.kill()
            process.wait()
        pool.shutdown(cancel_futures=True)


def _start(job: Job) -> Process:
    paths = [str(Path(__file__).parents[3]), *filter(None, [os.environ.get("PYTHONPATH")])]
    process = subprocess.Popen(
        [sys.executable, "-m", "encodery.data.corpus.workers"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,  # Ctrl-C is the parent's to handle
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )  # fmt: skip
    _send(process, job.to_dict())
    return process


def _send(process: Process, value: dict[str, Any]) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(value).encode() + b"\n")
    process.stdin.flush()


def _run_batch(idle: "Queue[Process]", batch: Batch) -> Batch:
    process = idle.get()
    try:
        assert process.stdout is not None
        _send(process, asdict(batch))
        line = process.stdout.readline()
    except BrokenPipeError:
        line = b""
    finally:
        idle.put(process)  # also a dead one: who waits for it must not wait for ever
    if not line:
        raise RunFailed(
            f"a worker died while it made shard {batch.shard} (signal or lack of memory, exit {process.wait()}); "
            "run the same command again, with fewer --workers if memory was short"
        )
    answer = json.loads(line)
    if "error" in answer:
        raise (UserError if answer["code"] == UserError.exit_code else RunFailed)(answer["error"])
    return batch
