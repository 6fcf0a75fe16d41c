"""Sweeps on Slurm (extra `slurm`): job arrays through submitit; a job that is preempted saves, and is queued again.

Partition, account, memory and time limit are Slurm's own variables: SBATCH_PARTITION, SBATCH_ACCOUNT, …
"""

import math
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from encodery.errors import UserError
from encodery.progress import Progress
from encodery.sweep import state
from encodery.sweep.alone import job_text, scheduler_of
from encodery.sweep.file import Limits, Resources
from encodery.sweep.local import Score
from encodery.sweep.remote import Driver
from encodery.sweep.spec import Outcome, RunSpec, Source

AT_ONCE = 256  # jobs of one array that may run at the same time
LONGEST = 24 * 60  # minutes, where the sweep sets no limit
REQUEUES = 20


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
    try:
        import submitit
    except ImportError:
        raise UserError("--executor slurm needs submitit: pip install 'encodery[slurm]'") from None
    if cluster == "slurm" and shutil.which("sbatch") is None:
        raise UserError("--executor slurm: there is no sbatch here; run this on a login node of the cluster")
    place = state.hidden(folder) / "slurm"
    executor = submitit.AutoExecutor(folder=place, cluster=cluster, slurm_max_num_timeout=REQUEUES)
    executor.update_parameters(**parameters(resources, limits))
    return Driver(folder, source, SlurmCluster(executor, folder, resources, limits), progress, score).run()


def parameters(resources: Resources, limits: Limits) -> dict[str, Any]:
    """What one job asks for."""
    on_cpu = resources.devices.startswith("cpu")
    cores = max(1, int(resources.per_run)) if on_cpu else 1
    longest = limits.timeout_seconds
    attempts = limits.retries + 1
    minutes = LONGEST if longest is None else math.ceil(attempts * (longest + limits.grace_seconds) / 60) + 5
    at_once = int(resources.devices.partition(":")[2] or AT_ONCE) if on_cpu else AT_ONCE
    return {
        "timeout_min": minutes,
        "cpus_per_task": cores if resources.threads == "auto" else resources.threads,
        "gpus_per_node": 0 if on_cpu else max(1, int(resources.per_run)),
        "slurm_array_parallelism": at_once,
        "slurm_signal_delay_s": math.ceil(limits.grace_seconds) + 60,
    }


class Job:
    """One run on a node. The scheduler works in a thread, since submitit's signals stop the main one."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._scheduler: Any = None
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None

    def __call__(self) -> None:
        """Do the run; how it ended stands in its files."""
        self._scheduler, _ = scheduler_of(self.text)
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

    def checkpoint(self) -> Any:
        """Called before Slurm ends the job: the run saves and stops, and the same job is queued again."""
        import submitit

        if self._thread is not None:
            self._scheduler.alarm.ring()
            self._thread.join()
        return submitit.helpers.DelayedSubmission(Job(self.text))


class SlurmCluster:
    """Runs as jobs of an array."""

    def __init__(self, executor: Any, folder: Path, resources: Resources, limits: Limits) -> None:
        self.executor, self.folder, self.resources, self.limits = executor, folder, resources, limits

    def capacity(self) -> int:
        """Slurm queues what does not fit."""
        return 1000

    def submit(self, specs: Sequence[RunSpec]) -> list[Any]:
        """One array for all of them."""
        with self.executor.batch():
            return [
                self.executor.submit(Job(job_text(self.folder, spec, self.resources, self.limits))) for spec in specs
            ]

    def lost(self, job: Any) -> str | None:
        """What submitit says about a job that is over."""
        if not job.done():
            return None
        error = job.exception()
        return f"Slurm job {job.job_id}: {error}" if error else ""

    def cancel(self, jobs: Sequence[Any]) -> None:
        """Jobs that have not begun never will."""
        for job in jobs:
            job.cancel()
