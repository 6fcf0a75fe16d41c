"""Where the runs of a sweep come from: a fixed plan (grid, random), or a search that learns from its own trials."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from encodery.config.own_code import Code
from encodery.runs.sweep_spec import Source, write_plan
from encodery.sweep.fixed_plan import FixedPlan
from encodery.sweep.plan import Planner
from encodery.sweep.resolve import Resolver
from encodery.sweep.sweep_file import SweepFile


class Closable(Source, Protocol):
    """A source that may hold a lock."""

    def close(self) -> None:
        """Give back what is held."""


def source(
    file: SweepFile,
    folder: Path,
    about: Mapping[str, Any],
    allow_code: bool = False,
    say: Callable[[str], None] | None = None,
) -> Closable:
    """The source of a sweep's runs; `say` hears the plan's notes. The plan is in the folder before the first run."""
    planner = Planner(file, folder, Resolver(Code(allow_code)))
    if file.sweep.search.kind == "tpe":
        from encodery.sweep.optuna_search import Tpe

        return Tpe(planner, about)
    specs = planner.specs()
    if say:
        for note in planner.notes():
            say(note)
    write_plan(folder, specs, about)
    if file.sweep.early_stop:
        from encodery.sweep.optuna_search import Watched

        return Watched(specs, file.sweep, folder, planner.compared)
    return FixedPlan(specs)
