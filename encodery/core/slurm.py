"""What is asked of Slurm, in one place: is it here, how long may a job last, why does it wait, is it still queued.

Jobs go through submitit (extra `slurm`). Partition, account and memory are Slurm's own variables: SBATCH_PARTITION,
SBATCH_ACCOUNT, …
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from types import FrameType
from typing import Any

from encodery.core import files
from encodery.core.extras import install
from encodery.errors import UserError

DAY = 24 * 60  # minutes: what a job asks for that sets no limit itself
REQUEUES = 20  # times that a job may run into its time limit
FOLDER = ".slurm"  # beside runs that are jobs of their own: the jobs' files
JOBS = "jobs.json"  # in the folder of the jobs' files: which run is which job
FRESH = 10.0  # seconds for which a look at the queue counts
PATIENCE = 30.0  # seconds after which Slurm must know a job
CALL = 20.0  # seconds that Slurm has for an answer
_CLOCK = re.compile(r"(?:(?P<days>\d+)-)?(?P<clock>\d+(?::\d+){0,2})")


def require(cluster: str = "slurm") -> Any:
    """submitit, where jobs can be submitted; a sentence where they cannot."""
    try:
        import submitit
    except ImportError:
        raise UserError(f"--executor slurm needs submitit: {install('slurm')}") from None
    if cluster == "slurm" and shutil.which("sbatch") is None:
        raise UserError("--executor slurm: there is no sbatch here; run this on a login node of the cluster")
    return submitit


def tell(sentence: str) -> None:
    """Where a command has no progress of its own."""
    print(sentence, file=sys.stderr)


def executor(folder: Path, asked: Mapping[str, Any], say: Callable[[str], None], cluster: str = "slurm") -> Any:
    """submitit's executor with what a job asks for; `cluster="local"` is its stand-in, processes on this machine."""
    submitit = require(cluster)
    given = dict(asked)
    if cluster == "slurm":
        given["timeout_min"] = allowed_minutes(given.get("timeout_min", DAY), say)
        given["slurm_signal_delay_s"] = warning(given.get("slurm_signal_delay_s", 90), given["timeout_min"])
        given["slurm_additional_parameters"] = {"requeue": True}  # some clusters refuse it to jobs that do not ask
    made = submitit.AutoExecutor(folder=folder, cluster=cluster, slurm_max_num_timeout=REQUEUES)
    made.update_parameters(**given)
    return made


@contextmanager
def refusals() -> Iterator[None]:
    """Where Slurm does not take a job, what it said is a sentence."""
    from submitit.core.utils import FailedJobError

    try:
        yield
    except FailedJobError as error:
        said = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise UserError(
            f"Slurm rejected the job: {said[-1] if said else 'sbatch failed'} (set partition, account, time and "
            "memory by SBATCH_PARTITION, SBATCH_ACCOUNT, SBATCH_TIMELIMIT and SBATCH_MEM_PER_NODE)"
        ) from None


# How long


def warning(wanted: float, minutes: int) -> int:
    """Seconds before its end at which a job is asked to save: a third of a short job at most."""
    return int(min(wanted, minutes * 60 / 3))


def minutes_of(text: str) -> int | None:
    """Minutes of a time as Slurm writes it (90, 30:00, 2:00:00, 1-12, 1-00:00:00); None for no limit."""
    match = _CLOCK.fullmatch(text.strip())
    if match is None:
        return None
    parts = [int(part) for part in match["clock"].split(":")]
    if match["days"] is not None:  # days-hours[:minutes[:seconds]]
        hours, minutes, seconds = (*parts, 0, 0)[:3]
        return int(match["days"]) * DAY + hours * 60 + minutes + (seconds > 0)
    if len(parts) == 3:
        return parts[0] * 60 + parts[1] + (parts[2] > 0)
    return parts[0] + (len(parts) == 2 and parts[1] > 0)


def allowed_minutes(wanted: int, say: Callable[[str], None]) -> int:
    """What the job asks for: SBATCH_TIMELIMIT, else as much of `wanted` as the partition allows."""
    if own := os.environ.get("SBATCH_TIMELIMIT"):
        return minutes_of(own) or wanted
    partition, limit = partition_limit()
    if limit is None or limit >= wanted:
        return wanted
    say(f"partition {partition} allows {limit} minutes: the job requests these, not {wanted} (SBATCH_TIMELIMIT)")
    return limit


def partition_limit() -> tuple[str, int | None]:
    """The partition that the job will go to and its time limit in minutes; of several the shortest."""
    named = os.environ.get("SBATCH_PARTITION")
    lines = _ask("sinfo", "-h", "-o", "%P|%l") or ""
    limits = dict(line.rsplit("|", 1) for line in lines.splitlines())
    mine = named.split(",") if named else [name[:-1] for name in limits if name.endswith("*")]
    found = {name: minutes_of(limits.get(name, limits.get(f"{name}*", ""))) for name in mine}
    bounded = {name: limit for name, limit in found.items() if limit is not None}
    name = min(bounded, key=lambda one: bounded[one]) if bounded else ",".join(mine)
    return name, bounded.get(name)


# Why it waits


def of_sweep(folder: Path) -> Path:
    """Where the files of a sweep's jobs are."""
    return folder / ".sweep" / "slurm"


def beside(run: Path) -> dict[str, str]:
    """Why runs of a run's folder wait: as jobs of a sweep, or on their own."""
    return {**waiting(run.parent / FOLDER), **waiting(of_sweep(run.parent))}


def remember(folder: Path, jobs: Mapping[str, str]) -> None:
    """Which run is which job, for those who look from outside."""
    path = folder / JOBS
    files.write_json(path, {**_remembered(folder), **jobs})


def _remembered(folder: Path) -> dict[str, str]:
    path = folder / JOBS
    found = files.read_json(path) if path.is_file() else {}
    if not isinstance(found, dict):
        raise UserError(f"{path} is damaged: delete it; Slurm's own `squeue` lists the jobs")
    return {str(run): str(job) for run, job in found.items()}


def waiting(folder: Path) -> dict[str, str]:
    """Why runs wait whose jobs are pending: `Slurm job 12_3 waits: Resources`; nothing where there is no Slurm."""
    jobs = _remembered(folder)
    queued = queue() if jobs else None
    return {
        run: f"Slurm job {job} waits: {reason}"
        for run, job in jobs.items()
        for state, reason in [(queued or {}).get(job, ("", ""))]
        if state == "PENDING"
    }


def cancel_waiting(folder: Path) -> None:
    """Jobs of these runs that have not begun never will."""
    for job in [_remembered(folder)[run] for run in waiting(folder)]:
        _ask("scancel", job)


def queue() -> dict[str, tuple[str, str]] | None:
    """State and reason of every job of this user that is not over; None if Slurm does not answer."""
    return _queue(int(time.monotonic() / FRESH))


@lru_cache(maxsize=1)
def _queue(when: int) -> dict[str, tuple[str, str]] | None:
    lines = _ask("squeue", "-h", "-r", "--me", "-o", "%i|%T|%r")
    if lines is None:
        return None
    rows = (line.split("|", 2) for line in lines.splitlines() if line.count("|") >= 2)
    return {job: (state, reason) for job, state, reason in rows}


def ended(job: Any, since: float) -> bool:
    """Whether a job of submitit is over. Clusters without accounting forget a job that was cancelled or lost: then
    Slurm's queue decides, once it has had time to take the job in (`since`: when it was submitted, monotonic)."""
    if job.done():
        return True
    if time.monotonic() - since < PATIENCE or type(job).__name__ != "SlurmJob":
        return False
    queued = queue()
    return queued is not None and str(job.job_id) not in queued


def trouble(job: Any) -> str:
    """What submitit says about a job that is over; empty if it ended in order."""
    if not job.paths.result_pickle.exists() and not job.done():
        return f"Slurm job {job.job_id} is gone: it was cancelled, or its machine was lost; log: {job.paths.stderr}"
    error = job.exception()
    return f"Slurm job {job.job_id}: {error}" if error else ""


def preempted() -> bool:
    """Whether Slurm takes this job's machines for another one, and has not cancelled it."""
    shown = _ask("scontrol", "show", "job", os.environ.get("SLURM_JOB_ID", "")) or ""
    found = re.search(r"PreemptTime=(\S+)", shown)
    return found is not None and found[1][:1].isdigit()


def _ask(*words: str) -> str | None:
    """What a program of Slurm prints; None if it is not there or fails."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=CALL)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout


# Jobs that are queued again


class Requeued:
    """A job that saves and stops when Slurm takes its machines, and is queued again.

    Slurm signals the process of each machine, and by its way of tracking processes some or all of their children.
    submitit's own handler looks after the first machine only.
    """

    taken = False  # Slurm has asked for the machines

    def stop(self) -> None:
        """Let the work save and end; returns when it has."""
        raise NotImplementedError

    def again(self) -> "Requeued":
        """The same job, as it was before it began."""
        raise NotImplementedError

    def checkpoint(self) -> Any:
        """submitit calls this before it queues the job again."""
        import submitit

        self.stop()
        return submitit.helpers.DelayedSubmission(self.again())

    def listen(self) -> None:
        """Take over submitit's signals. Python allows that in the main thread only, which is where submitit works."""
        if threading.current_thread() is threading.main_thread():
            self._requeue = signal.getsignal(save_signal())
            signal.signal(save_signal(), self._receive)
            signal.signal(signal.SIGTERM, self._terminate)

    def await_end(self, seconds: float) -> None:
        """Nothing is left to do here: the first machine queues the job again, and Slurm asks all others to end.

        Who does not is killed after its KillWait, and so long the job does not begin again.
        """
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, lambda *_: os._exit(0))  # a bad exit would end the first machine, too
        time.sleep(seconds)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        """The time is nearly up: save on every machine, then let submitit queue the job again from the first."""
        if self.taken:
            return
        self.taken = True
        self.stop()
        if callable(self._requeue):
            self._requeue(number, frame)

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        """Preempted: as above. Cancelled: save, and that is all."""
        if not self.taken and preempted():
            self._receive(save_signal(), frame)
        elif not self.taken:
            self.stop()


def save_signal() -> signal.Signals:
    """What submitit lets Slurm send before the end."""
    import submitit

    return signal.Signals[f"SIG{submitit.JobEnvironment.USR_SIG}"]


def names(jobs: Iterable[tuple[str, Any]]) -> dict[str, str]:
    """Run → number of its job, for `remember`."""
    return {run: str(job.job_id) for run, job in jobs}
