"""Runs a sweep: the same run specs and the same folders on this machine, on Slurm or on Ray. No torch."""

import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Literal, get_args

from encodery.errors import UserError
from encodery.progress import Progress
from encodery.sweep import child, claims, judge, state
from encodery.sweep.file import Limits, Resources
from encodery.sweep.local import Scheduler, Score
from encodery.sweep.slots import find_slots
from encodery.sweep.spec import Outcome, Source
from encodery.sweep.state import RunStatus, status

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

    Run again = go on: what has ended stays, what was stopped, killed or failed for want of room on the disk goes on.
    `score` gives the sweep's metric of a finished run.
    """
    resources, limits, progress = resources or Resources(), limits or Limits(), progress or Progress(quiet=True)
    full = [one.id for one in status(folder) if judge.lacked_room(one)] if folder.is_dir() else []
    if full:
        progress.say(f"{len(full)} runs failed because the disk was full: they are tried again")
        retry(folder, full)
    if executor == "local":
        slots = find_slots(resources)
        scheduler = Scheduler(folder, source, slots, limits, progress, free_bytes=resources.free_bytes, score=score)
        return scheduler.run()
    if executor == "slurm":
        from encodery.sweep.on_slurm import execute_slurm

        return execute_slurm(folder, source, resources, limits, progress, score)
    if executor == "ray":
        from encodery.sweep.on_ray import execute_ray

        return execute_ray(folder, source, resources, limits, progress, score)
    raise UserError(f"--executor {executor}: there are {', '.join(get_args(Executor))}")


def stop(folder: Path, now: bool = False, grace: float = 30.0) -> list[str]:
    """Ask all runs of a sweep to save and stop, or kill them; the ids of those that were running.

    Schedulers notice within a second, on every machine. Runs whose scheduler is dead are stopped from here.
    """
    running = [one for one in status(folder) if one.state == "running"]
    state.request_stop(folder, now)
    for one in running:
        if one.alive and (held := claims.claim(state.run_path(folder, one.name))):
            _end_orphan(folder, one, 0.0 if now else grace)
            held.release()
    return [one.id for one in running]


def _end_orphan(folder: Path, one: RunStatus, grace: float) -> None:
    assert one.pid is not None
    process = child.Watched(one.pid, one.token, one.mark)
    kill_at = time.monotonic() + grace
    process.send(signal.SIGTERM)
    while not process.gone():
        if time.monotonic() >= kill_at:
            process.send(signal.SIGKILL)
        time.sleep(0.05)
    process.close()
    well = state.ended_well(state.run_path(folder, one.name), one.attempt)
    state.write(folder, replace(one, state="done" if well else "stopped", ended=time.time()))


def retry(folder: Path, ids: list[str] | None = None) -> list[str]:
    """Let runs that failed run again, with all their attempts; the ids of those that will.

    Without ids: all that failed, ran out of time or of memory. With ids: these, whatever ended them, unless they are
    done. They start with the next `sweep run`, from their last checkpoint.
    """
    every = status(folder)
    failed = [one for one in every if one.state in ("failed", "timeout", "oom")]
    chosen = failed if ids is None else state.select(every, ids)
    for one in chosen:
        if one.state in ("done", "running"):
            raise UserError(f"{one.name} is {one.state}: there is nothing to try again")
    for one in chosen:
        state.write(folder, replace(one, state="queued", failures=0, error=None, ended=None, exit_code=None))
    return [one.id for one in chosen]
