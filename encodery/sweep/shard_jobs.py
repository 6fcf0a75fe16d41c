"""Shards made on other machines: Ray or Slurm call the very function that makes them here, so the bytes are the same.

A task is a line of JSON that names a job file and a shard. The folder must be visible to all machines. A shard is
whole or not there, so a machine that dies loses only what it had in hand, and that is made again elsewhere.
"""

import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from encodery.core import files, slurm
from encodery.data.corpus.workers import Batch, Job, Worker
from encodery.errors import EncoderyError, RunFailed, UserError

RETRIES = 5  # times that a task may lose its machine
AT_ONCE = 64  # Slurm jobs that wait or run
PLACE = ".elsewhere"  # job and shards on their way, in the folder that is made
PAUSE = 0.2


def do(text: str) -> str:
    """A task, wherever it is called: makes one shard; an error comes back as data."""
    task = json.loads(text)
    try:
        {"prepare": _prepare, "embed": _embed}[task["kind"]](Path(task["job"]), task["shard"])
    except EncoderyError as error:
        return json.dumps({"error": str(error), "code": error.exit_code})
    return json.dumps({"shard": task["shard"]})


def _prepare(job: Path, shard: int) -> None:
    """A shard of a corpus; the documents lie in a file beside the job."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    batch = job.with_name(f"{shard}.json")
    _worker(job).make(Batch(**files.read_json(batch)))


@lru_cache(maxsize=1)
def _worker(job: Path) -> Worker:
    return Worker(Job(**files.read_json(job)))


def _embed(job: Path, shard: int) -> None:
    """A piece of embeddings."""
    _embedder(job)(shard)


@lru_cache(maxsize=1)
def _embedder(job: Path) -> Callable[[int], int]:
    from encodery.analysis.embed import remote_embedder

    return remote_embedder(files.read_json(job))


# The engines


class Engine(Protocol):
    """What Ray and Slurm have in common here."""

    def max_running(self) -> int:
        """How many tasks may be under way."""

    def submit(self, text: str) -> Any:
        """Hand a task over."""

    def ended(self, tasks: Sequence[Any]) -> list[Any]:
        """Those that are over."""

    def answer(self, task: Any) -> str:
        """What a task that is over has said; RunFailed if it was lost."""

    def cancel(self, tasks: Sequence[Any]) -> None:
        """Nobody waits for them any more."""


def spread(engine: Engine, texts: Iterable[str]) -> Iterator[int]:
    """Hand tasks out as the engine takes them; yields the number of each shard when it is on the disk, in any order."""
    running: list[Any] = []
    try:
        for text in texts:
            while len(running) >= engine.max_running():
                yield from _gathered(engine, running)
            running.append(engine.submit(text))
        while running:
            yield from _gathered(engine, running)
    finally:
        engine.cancel(running)


def _gathered(engine: Engine, running: list[Any]) -> Iterator[int]:
    over = engine.ended(running)
    for task in over:
        running.remove(task)
        answer = json.loads(engine.answer(task))
        if "error" in answer:
            raise (UserError if answer["code"] == UserError.exit_code else RunFailed)(answer["error"])
        yield answer["shard"]
    if not over:
        time.sleep(PAUSE)


class OnRay:
    """Tasks of Ray; one whose node dies is begun again on another."""

    def __init__(self, cpus: int = 1) -> None:
        from encodery.sweep.ray_cluster import _import, connect
        from encodery.sweep.sweep_file import Resources

        self.ray = _import()
        self.ours = not self.ray.is_initialized()
        if self.ours:
            connect(self.ray, Resources())
        self.cpus = cpus
        self.task = self.ray.remote(do).options(num_cpus=cpus, max_retries=RETRIES)

    def max_running(self) -> int:
        """One more than there are places; nodes may come and go."""
        return max(int(self.ray.cluster_resources().get("CPU", 1) / self.cpus), 1) + 1

    def submit(self, text: str) -> Any:
        """As a task of Ray."""
        return self.task.remote(text)

    def ended(self, tasks: Sequence[Any]) -> list[Any]:
        """Asks Ray."""
        done, _ = self.ray.wait(list(tasks), num_returns=1, timeout=PAUSE)
        return list(done)

    def answer(self, task: Any) -> str:
        """Ray tells of machines that were lost too often."""
        try:
            return str(self.ray.get(task))
        except self.ray.exceptions.RayError as error:
            raise RunFailed(f"Ray: {type(error).__name__}: {error}; run the same command again to resume") from error

    def cancel(self, tasks: Sequence[Any]) -> None:
        """Also leaves a cluster that was begun for this command."""
        for task in tasks:
            self.ray.cancel(task, force=True)
        if self.ours:
            self.ray.shutdown()


@dataclass(eq=False)
class SlurmTask:
    """A shard, and the job that is making it."""

    text: str
    job: Any
    since: float
    left: int = RETRIES


class OnSlurm:
    """Jobs of Slurm through submitit; `cluster="local"` is submitit's stand-in, processes on this machine."""

    def __init__(self, folder: Path, cluster: str = "slurm", cpus: int = 1, minutes: int = 240) -> None:
        asked = {"timeout_min": minutes, "cpus_per_task": cpus, "name": "encodery"}
        self.executor = slurm.executor(folder / PLACE / "slurm", asked, slurm.tell, cluster)

    def max_running(self) -> int:
        """Slurm queues what does not fit."""
        return AT_ONCE

    def submit(self, text: str) -> SlurmTask:
        """As a job."""
        with slurm.refusals():
            return SlurmTask(text, self.executor.submit(do, text), time.monotonic())

    def ended(self, tasks: Sequence[SlurmTask]) -> list[SlurmTask]:
        """Asks submitit and Slurm's queue; a job that was lost is submitted again, a few times."""
        over = [task for task in tasks if slurm.ended(task.job, task.since)]
        for task in over:
            if task.left > 0 and slurm.trouble(task.job):
                task.job, task.since, task.left = self.executor.submit(do, task.text), time.monotonic(), task.left - 1
        return [task for task in over if slurm.ended(task.job, task.since)]

    def answer(self, task: SlurmTask) -> str:
        """What the job returned."""
        if trouble := slurm.trouble(task.job):
            raise RunFailed(f"{trouble}; run the same command again to resume")
        return str(task.job.result())

    def cancel(self, tasks: Sequence[SlurmTask]) -> None:
        """Jobs that have not begun never will."""
        for task in tasks:
            task.job.cancel()


def engine_of(name: str, folder: Path) -> Engine:
    """`ray` or `slurm`."""
    return OnRay() if name == "ray" else OnSlurm(folder)


# What is spread


@contextmanager
def job_file(folder: Path, job: dict[str, Any]) -> Iterator[Path]:
    """The job where all machines can read it, until it is done."""
    hidden = folder.resolve() / PLACE
    hidden.mkdir(exist_ok=True)
    path = hidden / "job.json"
    files.write_json(path, job)
    yield path
    shutil.rmtree(hidden, ignore_errors=True)


def shards_elsewhere(engine: Callable[[Path], Engine]) -> Callable[[Job, Iterable[Batch]], Iterator[Batch]]:
    """In place of `workers.make_all`: the shards of a corpus are made on other machines."""

    def make(job: Job, batches: Iterable[Batch]) -> Iterator[Batch]:
        held: dict[int, Batch] = {}
        # workers of Ray have another working directory than this command
        with job_file(Path(job.folder), {**job.to_dict(), "folder": str(Path(job.folder).resolve())}) as path:

            def texts() -> Iterator[str]:
                for batch in batches:
                    files.write_atomic(path.with_name(f"{batch.shard}.json"), json.dumps(vars(batch)))
                    held[batch.shard] = Batch(batch.shard, [], batch.counts)
                    yield json.dumps({"kind": "prepare", "job": str(path), "shard": batch.shard})

            for shard in spread(engine(Path(job.folder)), texts()):
                path.with_name(f"{shard}.json").unlink(missing_ok=True)
                yield held.pop(shard)

    return make


def pieces_elsewhere(engine: Callable[[Path], Engine], job: dict[str, Any]) -> Callable[[Path, Sequence[int]], Any]:
    """Pieces of embeddings, made on other machines."""

    def make(folder: Path, shards: Sequence[int]) -> Iterator[int]:
        with job_file(folder, {**job, "folder": str(folder.resolve())}) as path:
            lines = (json.dumps({"kind": "embed", "job": str(path), "shard": number}) for number in shards)
            yield from spread(engine(folder), lines)

    return make
