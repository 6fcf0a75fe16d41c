"""Several worker processes that make shards; a thread for each waits for its answers."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import asdict
from itertools import chain, islice
from pathlib import Path
from queue import Queue
from typing import Any

import encodery
from encodery.data.worker import Batch, Job, Worker
from encodery.errors import RunFailed, UserError

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
            running.add(pool.submit(_one, idle, batch))
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
    paths = [str(Path(encodery.__file__).parent.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    process = subprocess.Popen(
        [sys.executable, "-m", "encodery.data.worker"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,  # Ctrl-C is the parent's to handle
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )  # fmt: skip
    _send(process, job.plain())
    return process


def _send(process: Process, value: dict[str, Any]) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(value).encode() + b"\n")
    process.stdin.flush()


def _one(idle: "Queue[Process]", batch: Batch) -> Batch:
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
