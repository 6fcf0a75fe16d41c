"""Runs a sweep: the same run specs and the same folders on this machine, on Slurm or on Ray. No torch."""

import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Literal, get_args

from encodery.core import slurm
from encodery.core.progress import Progress
from encodery.core.text import counted
from encodery.errors import UserError
from encodery.runs.sweep_spec import Outcome, Source
from encodery.sweep import outcome, processes, state
from encodery.sweep.fixed_plan import FAILED
from encodery.sweep.scheduler import Scheduler, Score
from encodery.sweep.slots import find_slots
from encodery.sweep.state import RunStatus, status
from encodery.sweep.sweep_file import Limits, Resources

__all__ = ["Executor", "execute", "retry", "status", "stop"]

Executor = Literal["local", "slurm", "ray"]


def execute(
    folder: Path,
    source: Source,
    resources: Resources | None = None,
    limits: Limits | None = None,
    executor: str = "local",
    progress: Progress | None = None,
    score: Score | None = None,
) -> list[Outcome]:
    """Do every run that the source offers; how they ended, with those of this folder that had ended before.

    Run again to resume: what has ended stays; what was stopped, killed or failed on a full disk continues.
    `score` gives the sweep's metric of a finished run.
    """
    resources, limits, progress = resources or Resources(), limits or Limits(), progress or Progress(quiet=True)
    full = [one.id for one in status(folder) if outcome.lacked_room(one)] if folder.is_dir() else []
    if full:
        again = "it will" if len(full) == 1 else "they will"
        progress.say(f"{counted(len(full), 'run')} failed because the disk was full: {again} be retried")
        retry(folder, full)
    if executor == "local":
        slots = find_slots(resources)
        scheduler = Scheduler(folder, source, slots, limits, progress, free_bytes=resources.free_bytes, score=score)
        return scheduler.run()
    if executor == "slurm":
        from encodery.sweep.slurm_cluster import execute_slurm

        return execute_slurm(folder, source, resources, limits, progress, score)
    if executor == "ray":
        from encodery.sweep.ray_cluster import execute_ray

        return execute_ray(folder, source, resources, limits, progress, score)
    raise UserError(f"--executor {executor}: there are {', '.join(get_args(Executor))}")


def stop(folder: Path, now: bool = False, grace: float = 30.0) -> list[str]:
    """Ask all runs of a sweep to save and stop, or kill them; the ids of those that were running.

    Schedulers notice within a second, on every machine. Runs whose scheduler is dead are stopped from here.
    """
    running = [run for run in status(folder) if run.state == "running"]
    state.request_stop(folder, now)
    slurm.cancel_waiting(slurm.of_sweep(folder))
    for run in running:
        if run.alive and (held := state.claim(state.run_path(folder, run.name))):
            _end_orphan(folder, run, 0.0 if now else grace)
            held.release()
    return [run.id for run in running]


def _end_orphan(folder: Path, run: RunStatus, grace: float) -> None:
    assert run.pid is not None
    process = processes.Watched(run.pid, run.token, run.mark)
    kill_at = time.monotonic() + grace
    process.send(signal.SIGTERM)
    while not process.gone():
        if time.monotonic() >= kill_at:
            process.send(signal.SIGKILL)
        time.sleep(0.05)
    process.close()
    well = state.ended_well(state.run_path(folder, run.name), run.attempt)
    state.write(folder, replace(run, state="done" if well else "stopped", ended=time.time()))


def retry(folder: Path, ids: list[str] | None = None) -> list[str]:
    """Let runs that failed run again, with all their attempts; the ids of those that will.

    Without ids: all that failed, ran out of time or of memory. With ids: these, whatever ended them, unless they are
    done. They start with the next `sweep run`, from their last checkpoint.
    """
    every = status(folder)
    failed = [run for run in every if run.state in FAILED]
    chosen = failed if ids is None else state.select(every, ids)
    for run in chosen:
        if run.state in ("done", "running"):
            raise UserError(f"{run.name} is {run.state}: there is nothing to retry")
    for run in chosen:
        state.write(folder, replace(run, state="queued", failures=0, error=None, ended=None, exit_code=None))
    return [run.id for run in chosen]
