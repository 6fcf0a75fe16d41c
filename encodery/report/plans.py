"""The plan of a sweep as tables need it: which folders belong to it, and what each run was meant to be."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from encodery.errors import UserError
from encodery.sweep.spec import RunSpec

FILE = "plan.json"


@dataclass(frozen=True)
class Plan:
    """A sweep's folder and the runs that it shall hold, by their folder's name."""

    root: Path
    runs: dict[str, RunSpec]

    def spec(self, path: Path) -> RunSpec | None:
        """What the plan says of a run's folder."""
        return self.runs.get(path.resolve().relative_to(self.root).as_posix())

    def has(self, path: Path) -> bool:
        """Whether a folder is in the plan."""
        return self.spec(path) is not None


class Plans:
    """Plans, read once each."""

    def __init__(self) -> None:
        self._known: dict[Path, Plan | None] = {}

    def of(self, run: Path) -> Plan | None:
        """The plan of the sweep that a run lies in: in a folder above it, at most two steps up."""
        found = (self.at(folder) for folder in list(run.resolve().parents)[:2])
        return next((plan for plan in found if plan), None)

    def at(self, folder: Path) -> Plan | None:
        """The plan in a folder."""
        folder = folder.resolve()
        if folder not in self._known:
            path = folder / FILE
            self._known[folder] = Plan(folder, {spec.name: spec for spec in read(path)}) if path.is_file() else None
        return self._known[folder]

    def planned(self, folders: Sequence[str | Path]) -> Iterator[tuple[Path, RunSpec]]:
        """Every planned run of the sweeps at the folders, and of those that runs were found in below them."""
        for folder in map(Path, folders):
            self.at(folder)
        asked = [Path(folder).resolve() for folder in folders]
        for plan in filter(None, self._known.values()):
            if any(plan.root.is_relative_to(folder) for folder in asked):
                yield from ((plan.root / name, spec) for name, spec in plan.runs.items())


def read(path: Path) -> list[RunSpec]:
    """The run specs of a plan.json; keys that this version does not know are left out."""
    names = {field.name for field in fields(RunSpec)}
    try:
        listed: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["runs"]
        return [RunSpec(**{key: value for key, value in one.items() if key in names}) for one in listed]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is damaged ({error}): plan the sweep again with `encodery sweep run`") from None
