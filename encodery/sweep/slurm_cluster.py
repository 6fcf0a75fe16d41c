"""Sweeps on Slurm (extra `slurm`): job arrays through submitit; a job that is preempted saves, and is queued again.

Partition, account, memory and time limit are Slurm's own variables: SBATCH_PARTITION, SBATCH_ACCOUNT, …
"""

import math
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from encodery.core import slurm
from encodery.core.process import WITH_PARENT
from encodery.core.progress import Progress
from encodery.runs.sweep_spec import Outcome, RunSpec, Source
from encodery.sweep.cluster_driver import Driver, cpus_of_job, job_text, scheduler_of
from encodery.sweep.scheduler import Score
from encodery.sweep.sweep_file import Limits, Resources

AT_ONCE = 256  # jobs of one array that may run at the same time


def execute_slurm(
    folder: Path,
    source: Source,
    resources: Resources,
    limits: Limits,
    progress: Progress,
    score: Score | None = None,
    cluster: str = "slurm",
) -> list[Outcome]:
    """Do the runs as Slurm jobs; `cluster="local"` is submitit's own stand-in, processes on this machine."""
    executor = slurm.executor(slurm.of_sweep(folder), parameters(resources, limits), progress.say, cluster)
    return Driver(folder, source, SlurmCluster(executor, folder, resources, limits), progress, score).run()


def parameters(resources: Resources, limits: Limits) -> dict[str, Any]:
    """What one job asks for."""
    on_cpu = resources.devices.startswith("cpu")
    longest = limits.timeout_seconds
    attempts = limits.retries + 1
    minutes = slurm.DAY if longest is None else math.ceil(attempts * (longest + limits.grace_seconds) / 60) + 5
    at_once = int(resources.devices.partition(":")[2] or AT_ONCE) if on_cpu else AT_ONCE
    return {
        "timeout_min": minutes,
        "cpus_per_task": cpus_of_job(resources, on_cpu),
        "gpus_per_node": 0 if on_cpu else max(1, int(resources.per_run)),
        "slurm_array_parallelism": at_once,
        "slurm_signal_delay_s": math.ceil(limits.grace_seconds) + 60,
    }


class Job(slurm.Requeued):
    """One run on a node. The scheduler works in a thread, since submitit's signals stop the main one."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._scheduler: Any = None
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None

    def __call__(self) -> None:
        """Do the run; how it ended is in its files."""
        os.environ[WITH_PARENT] = "1"  # the run has a session of its own, which Slurm may not know of
        self._scheduler, _ = scheduler_of(self.text)
        self.listen()
        self._thread = threading.Thread(target=self._work)
        self._thread.start()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        try:
            self._scheduler.run()
        except Exception as error:
            self._error = error

    def stop(self) -> None:
        """The run saves and stops."""
        if self._thread is not None and self._thread.is_alive():
            self._scheduler.alarm.ring()
            self._thread.join()

    def again(self) -> "Job":
        """The same run: it resumes."""
        return Job(self.text)


class SlurmCluster:
    """Runs as jobs of an array."""

    def __init__(self, executor: Any, folder: Path, resources: Resources, limits: Limits) -> None:
        self.executor, self.folder, self.resources, self.limits = executor, folder, resources, limits
        self.submitted: dict[str, float] = {}

    def capacity(self) -> int:
        """Slurm queues what does not fit."""
        return 1000

    def submit(self, specs: Sequence[RunSpec]) -> list[Any]:
        """One array for all of them."""
        with slurm.refusals(), self.executor.batch():
            jobs = [
                self.executor.submit(Job(job_text(self.folder, spec, self.resources, self.limits))) for spec in specs
            ]
        self.submitted.update((job.job_id, time.monotonic()) for job in jobs)
        slurm.remember(slurm.of_sweep(self.folder), slurm.names(zip([spec.name for spec in specs], jobs, strict=True)))
        return jobs

    def lost(self, job: Any) -> str | None:
        """What submitit or Slurm's queue says about a job that is over."""
        return slurm.trouble(job) if slurm.ended(job, self.submitted[job.job_id]) else None

    def cancel(self, jobs: Sequence[Any]) -> None:
        """Jobs that have not begun never will."""
        for job in jobs:
            job.cancel()
