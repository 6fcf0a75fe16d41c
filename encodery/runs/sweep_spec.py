"""What a sweep hands to whoever executes it: run specs, how they ended, and a source of runs that may start now.

plan.json in the folder of a sweep lists the runs that belong to it now; what else lies there is of an older plan.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, Protocol

from encodery.core import files
from encodery.errors import UserError

PLAN = "plan.json"

State = Literal["queued", "running", "done", "failed", "stopped", "timeout", "oom", "pruned"]


@dataclass(frozen=True)
class RunSpec:
    """One run, ready to be started anywhere: `encodery train` with a complete config, or somebody's own command."""

    id: str  # the first 8 hex digits of the hash of its content
    name: str  # its folder in the sweep: the id and what is particular about it, readable
    config: Mapping[str, Any] | None = None  # complete and resolved
    command: str | None = None  # a shell line, where config is None
    axes: Mapping[str, Any] = field(default_factory=dict)  # what varies in this sweep, by dotted key, the seed included
    variant: str | None = None
    stage: str = "main"
    needs: tuple[str, ...] = ()  # ids of runs that must be done before
    allow_code: bool = False  # code of run directories may run


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    id: str
    state: State
    score: float | None = None  # the sweep's metric, where the run is done
    error: str | None = None


class Source(Protocol):
    """Where the next runs come from: a fixed plan, or a search that learns from what has ended."""

    def ready(self, ended: Mapping[str, Outcome], started: Collection[str], free: int) -> list[RunSpec]:
        """Up to `free` runs that may start now."""

    def exhausted(self, ended: Mapping[str, Outcome], started: Collection[str]) -> bool:
        """Whether nothing will ever become ready any more."""

    def should_stop(self, spec: RunSpec, metrics: Path) -> bool:
        """Whether a running run is not worth going on (early stopping), judged by its metrics.jsonl."""


def write_plan(folder: Path, specs: Iterable[RunSpec], about: Mapping[str, Any] | None = None) -> None:
    """plan.json: one line for each run, and what the sweep goes by."""
    runs = ",\n".join(json.dumps(vars(spec), allow_nan=False) for spec in specs)
    head = json.dumps(dict(about or {}), allow_nan=False)
    files.write_atomic(folder / PLAN, f'{{"format": 1, "about": {head}, "runs": [\n{runs}\n]}}\n')


def read_plan(folder: Path) -> list[RunSpec]:
    """The runs that belong to the sweep in this folder now; keys that this version does not know are left out."""
    path, names = Path(folder) / PLAN, {field.name for field in fields(RunSpec)}
    try:
        known = [{key: value for key, value in run.items() if key in names} for run in _read(path)["runs"]]
        return [RunSpec(**run | {"needs": tuple(run.get("needs", ()))}) for run in known]
    except (KeyError, TypeError, AttributeError):
        raise UserError(f"{path} is damaged: plan the sweep again with `encodery sweep run`.") from None


def read_about(folder: Path) -> dict[str, Any]:
    """What the sweep in this folder goes by: its metric and its command."""
    about: dict[str, Any] = _read(Path(folder) / PLAN).get("about", {})
    return about


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise UserError(f"{path.parent} is not the folder of a sweep: there is no {PLAN}.")
    found = files.read_json(path)
    if not isinstance(found, dict):
        raise UserError(f"{path} is damaged: plan the sweep again with `encodery sweep run`.")
    return found
