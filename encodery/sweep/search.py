"""Where the runs of a sweep come from: a fixed plan (grid, random), or trials that learn from each other (trials)."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from encodery.own_code import Code
from encodery.sweep.plan import Planner, write_plan
from encodery.sweep.read import SweepFile
from encodery.sweep.resolve import Resolver
from encodery.sweep.spec import Outcome, RunSpec, Source


class FixedPlan:
    """Runs that are known from the start, in their order; each waits for those that it needs."""

    def __init__(self, specs: Sequence[RunSpec]) -> None:
        self.specs = list(specs)

    def ready(self, ended: Mapping[str, Outcome], started: Collection[str], free: int) -> list[RunSpec]:
        """The first runs that nobody has started and whose needs are done."""
        found: list[RunSpec] = []
        for spec in self.specs:
            if len(found) >= free:
                break
            if spec.id in ended or spec.id in started:
                continue
            if all(need in ended and ended[need].state == "done" for need in spec.needs):
                found.append(spec)
        return found

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


class Closable(Source, Protocol):
    """A source that may hold a lock."""

    def close(self) -> None:
        """Give back what is held."""


def source(file: SweepFile, folder: Path, about: Mapping[str, Any], allow_code: bool = False) -> Closable:
    """The source of a sweep's runs. Its plan is in the folder before the first run starts."""
    planner = Planner(file, folder, Resolver(Code(allow_code)))
    if file.sweep.search.kind == "tpe":
        from encodery.sweep.trials import Tpe

        return Tpe(planner, about)
    specs = planner.specs()
    write_plan(folder, specs, about)
    if file.sweep.early_stop:
        from encodery.sweep.trials import Watched

        return Watched(specs, file.sweep, folder)
    return FixedPlan(specs)
