"""A plan that is known from the start: each run waits for those that it needs."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from encodery.runs.sweep_spec import Outcome, RunSpec

OPEN = ("queued", "running", "stopped")  # states of runs that `sweep run` does or resumes
FAILED = ("failed", "timeout", "oom")  # what `sweep retry` queues again


def blocked(specs: Sequence[RunSpec], states: Mapping[str, str]) -> dict[str, str]:
    """Id of a run that cannot start → id of the one that it waits for, which did not end well."""
    lost = {spec.id: spec.id for spec in specs if states.get(spec.id, "queued") not in (*OPEN, "done")}
    waiting: dict[str, str] = {}
    for spec in specs:  # in order: a run's needs stand before it
        cause = next((lost[need] for need in spec.needs if need in lost), None)
        if cause is not None and states.get(spec.id, "queued") in OPEN:
            waiting[spec.id] = lost[spec.id] = cause
    return waiting


class FixedPlan:
    """Runs that are known from the start, in their order; each waits for those that it needs."""

    def __init__(self, specs: Sequence[RunSpec]) -> None:
        self.specs = list(specs)

    def ready(self, ended: Mapping[str, Outcome], started: Collection[str], free: int) -> list[RunSpec]:
        """The first runs that nobody has started and whose needs are done."""
        specs: list[RunSpec] = []
        for spec in self.specs:
            if len(specs) >= free:
                break
            if spec.id in ended or spec.id in started:
                continue
            if all(need in ended and ended[need].state == "done" for need in spec.needs):
                specs.append(spec)
        return specs

    def exhausted(self, ended: Mapping[str, Outcome], started: Collection[str]) -> bool:
        """Whether every run has been started, or waits for one that did not end well."""
        lost = {id for id, outcome in ended.items() if outcome.state != "done"}
        for spec in self.specs:  # in order: a run's needs stand before it
            if spec.id in ended or spec.id in started:
                continue
            if not any(need in lost for need in spec.needs):
                return False
            lost.add(spec.id)
        return True

    def should_stop(self, spec: RunSpec, metrics: Path) -> bool:
        """Never: there is no rule."""
        return False

    def close(self) -> None:
        """Nothing is held."""
