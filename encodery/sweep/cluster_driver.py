"""Drives a sweep on a cluster: hands out jobs of one run each, and reads from the runs' own files how they ended.

The jobs do the work of the local scheduler, so claims, states, retries and stops are the same everywhere.
The sweep's folder must be visible to all machines.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Protocol

from encodery.core import files
from encodery.core.progress import Progress
from encodery.runs.sweep_spec import Outcome, RunSpec, Source
from encodery.sweep import processes, state
from encodery.sweep.scheduler import Alarm, Scheduler, Score, scored, spoken
from encodery.sweep.slots import Slot, accelerators
from encodery.sweep.state import FINAL, RunStatus
from encodery.sweep.sweep_file import Limits, Resources

# One run of a sweep where a cluster has put it: the scheduler with a single slot, which is what the job was given.


PRUNE = ".prune"  # in a run's folder: it is not worth going on


class SingleRun:
    """A source of one run."""

    def __init__(self, spec: RunSpec) -> None:
        self.spec = spec

    def ready(self, ended: Any, started: Any, free: int) -> list[RunSpec]:
        """The run, once."""
        return [] if self.spec.id in ended or self.spec.id in started else [self.spec]

    def exhausted(self, ended: Any, started: Any) -> bool:
        """Whether it was handed out, or has ended before."""
        return self.spec.id in ended or self.spec.id in started

    def should_stop(self, spec: RunSpec, metrics: Path) -> bool:
        """Whether the driver, which knows the other runs, has said so."""
        return (metrics.parent / PRUNE).exists()


def job_text(folder: Path, spec: RunSpec, resources: Resources, limits: Limits) -> str:
    """Everything a job needs, as JSON: nothing of ours is pickled."""
    job = {"folder": str(folder.resolve()), "spec": asdict(spec)}
    return json.dumps(job | {"resources": resources.to_dict(), "limits": limits.to_dict()})


def scheduler_of(text: str) -> tuple[Scheduler, str]:
    """A scheduler for the one run of a job, in what this process may use; and the run's id."""
    job = json.loads(text)
    spec = RunSpec(**{**job["spec"], "needs": tuple(job["spec"]["needs"])})
    resources = Resources.model_validate_json(json.dumps(job["resources"]))
    limits = Limits.model_validate_json(json.dumps(job["limits"]))
    (Path(job["folder"]) / spec.name / PRUNE).unlink(missing_ok=True)
    scheduler = Scheduler(
        Path(job["folder"]), SingleRun(spec), [slot_of_job(resources)], limits, warm=False, share=False
    )
    return scheduler, spec.id


def slot_of_job(resources: Resources) -> Slot:
    """All that the cluster gave to this process, as one slot.

    Not every cluster binds a job to its CPUs: it has as many threads as it has asked for CPUs, not as there are cores.
    """
    found = None if resources.devices.startswith("cpu") else accelerators()
    if found is None:
        return Slot(0, "cpu", (), cpus_of_job(resources, on_cpu=True))
    return Slot(0, found.kind, found.devices, cpus_of_job(resources, on_cpu=False))


def cpus_of_job(resources: Resources, on_cpu: bool) -> int:
    """How many CPUs a job asks for: `threads`, else its devices where these are CPUs, else one beside its GPUs."""
    if resources.threads != "auto":
        return resources.threads
    return max(1, int(resources.per_run)) if on_cpu else 1


def outcome_of(text: str) -> str:
    """Do the run of a job; how it ended, as JSON."""
    scheduler, run = scheduler_of(text)
    ended = {outcome.id: outcome for outcome in scheduler.run()}
    return json.dumps(asdict(ended.get(run) or Outcome(run, "stopped")))


PAUSE = 0.25  # seconds between two looks


class Cluster(Protocol):
    """What a driver asks of Slurm or Ray."""

    def capacity(self) -> int:
        """How many runs may be handed out at once."""

    def submit(self, specs: Sequence[RunSpec]) -> list[Any]:
        """A job for each run."""

    def lost(self, job: Any) -> str | None:
        """None while the job lives; else a sentence if it broke, and nothing if it ended in order."""

    def cancel(self, jobs: Sequence[Any]) -> None:
        """End jobs at once, also those that have not begun."""


class Driver:
    """The sweep's command while its runs are elsewhere."""

    def __init__(self, folder: Path, source: Source, cluster: Cluster, progress: Progress, score: Score | None) -> None:
        self.folder, self.source, self.cluster, self.progress, self.score = folder, source, cluster, progress, score
        self.jobs: dict[str, tuple[RunSpec, Any]] = {}
        self.waiting: list[RunSpec] = []  # claimed by somebody else when the job began
        self.started: set[str] = set()
        self.ended: dict[str, Outcome] = {}
        self.stopping = False
        self.stop_seen = state.stop_requested(folder)
        self.alarm = Alarm()

    def run(self) -> list[Outcome]:
        """Everything, to the end."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for status in state.status(self.folder):
            if status.state in FINAL:
                self.settle(status)
        with self.alarm:
            while not self.finished():
                self.hand_out()
                processes.readable([self.alarm.handle], PAUSE)
                self.heed_signals()
                for run in list(self.jobs):
                    self.attend(run)
                self.look_elsewhere()
        if self.alarm.insisted:
            raise KeyboardInterrupt
        return list(self.ended.values())

    def finished(self) -> bool:
        """Whether no job is left and none will come."""
        if self.jobs:
            return False
        return self.stopping or (not self.waiting and self.source.exhausted(self.ended, self.started))

    def hand_out(self) -> None:
        """Submit what may start, as many at once as the cluster takes."""
        free = self.cluster.capacity() - len(self.jobs)
        if self.stopping or free <= 0:
            return
        self.submit(self.source.ready(self.ended, self.started, free))

    def submit(self, specs: Sequence[RunSpec]) -> None:
        """Hand runs to the cluster."""
        self.started.update(spec.id for spec in specs)
        if specs:
            jobs = self.cluster.submit(specs)
            self.jobs |= {spec.id: (spec, job) for spec, job in zip(specs, jobs, strict=True)}

    def heed_signals(self) -> None:
        """Ctrl-C: the jobs are asked to save and stop; a second one kills them."""
        self.alarm.drain()
        request = self.alarm.insisted or (self.alarm.asked and not self.stopping)
        if request:
            state.request_stop(self.folder, now=self.alarm.insisted)
        asked = state.stop_requested(self.folder)
        if asked != self.stop_seen:  # by us, or by `sweep stop` elsewhere
            self.stopping, self.stop_seen = True, asked
            begun = {spec.id for spec, _ in self.jobs.values() if self.status(spec).state == "running"}
            self.cluster.cancel([job for run, (_, job) in self.jobs.items() if run not in begun])

    def status(self, spec: RunSpec) -> RunStatus:
        """What the run's own files say."""
        return state.status_of(state.run_path(self.folder, spec.name))

    def attend(self, run: str) -> None:
        """Has the job ended? Then the files say how; a job that broke is a failure of its run."""
        spec, job = self.jobs[run]
        broken = self.cluster.lost(job)
        if broken is None:
            self.prune(spec)
            return
        del self.jobs[run]
        status = self.status(spec)
        if status.state in FINAL or status.state == "stopped":
            self.report(status)
        elif state.is_claimed(state.run_path(self.folder, spec.name)):
            self.waiting.append(spec)
        else:
            end: Any = "stopped" if self.stopping else "failed"
            error = broken or "its job ended before the run did"
            self.report(replace(status, state=end, ended=time.time(), error=None if self.stopping else error))

    def prune(self, spec: RunSpec) -> None:
        """Early stopping is decided here, where all runs are seen."""
        metrics = state.run_path(self.folder, spec.name) / "metrics.jsonl"
        if metrics.exists() and self.source.should_stop(spec, metrics):
            files.require_unlinked(metrics.parent / PRUNE)
            (metrics.parent / PRUNE).touch()

    def look_elsewhere(self) -> None:
        """Runs of other schedulers: ended, or left for us."""
        for spec in list(self.waiting):
            status = self.status(spec)
            if status.state in FINAL:
                self.waiting.remove(spec)
                self.settle(status)
            elif not state.is_claimed(state.run_path(self.folder, spec.name)) and not self.stopping:
                self.waiting.remove(spec)
                self.submit([spec])

    def report(self, status: RunStatus) -> None:
        """A run has ended."""
        if status != self.stored(status):
            state.write(self.folder, status)
        self.settle(status)
        self.progress.say(f"{status.name}  {spoken(status)}")

    def stored(self, status: RunStatus) -> RunStatus | None:
        """What stands in its file."""
        return state.read(state.run_path(self.folder, status.name))

    def settle(self, status: RunStatus) -> None:
        """Tell the source."""
        self.ended[status.id] = scored(self.folder, status, self.score, self.progress)
