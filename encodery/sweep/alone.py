"""One run of a sweep where a cluster has put it: the scheduler with a single slot, which is what the job was given."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from encodery.sweep.file import Limits, Resources
from encodery.sweep.local import Scheduler
from encodery.sweep.slots import Slot, accelerators, cores_here
from encodery.sweep.spec import Outcome, RunSpec

PRUNE = ".prune"  # in a run's folder: it is not worth going on


class One:
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
    return json.dumps(job | {"resources": resources.plain(), "limits": limits.plain()})


def scheduler_of(text: str) -> tuple[Scheduler, str]:
    """A scheduler for the one run of a job, in what this process may use; and the run's id."""
    job = json.loads(text)
    spec = RunSpec(**{**job["spec"], "needs": tuple(job["spec"]["needs"])})
    resources = Resources.model_validate_json(json.dumps(job["resources"]))
    limits = Limits.model_validate_json(json.dumps(job["limits"]))
    (Path(job["folder"]) / spec.name / PRUNE).unlink(missing_ok=True)
    scheduler = Scheduler(Path(job["folder"]), One(spec), [whole(resources)], limits, warm=False, share=False)
    return scheduler, spec.id


def whole(resources: Resources) -> Slot:
    """All that the cluster gave to this process, as one slot."""
    cores = cores_here()
    found = None if resources.devices.startswith("cpu") else accelerators()
    threads = len(cores) if resources.threads == "auto" else resources.threads
    return Slot(0, found.kind if found else "cpu", found.devices if found else (), threads)


def outcome_of(text: str) -> str:
    """Do the run of a job; how it ended, as JSON."""
    scheduler, run = scheduler_of(text)
    ended = {outcome.id: outcome for outcome in scheduler.run()}
    return json.dumps(asdict(ended.get(run) or Outcome(run, "stopped")))
