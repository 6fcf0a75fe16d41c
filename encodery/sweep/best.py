"""The best configuration of a sweep: by the sweep's metric, as the mean over seeds."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from encodery import yaml_reader
from encodery.errors import UserError
from encodery.rundir import RunDir
from encodery.sweep import metric as metrics
from encodery.sweep.file import Metric
from encodery.sweep.plan import earlier_run, lookup, read_about, read_plan
from encodery.sweep.spec import RunSpec


@dataclass(frozen=True)
class Candidate:
    """One configuration, over its seeds (and over the earlier runs that it started from)."""

    task: str
    spec: RunSpec  # its best run
    scores: tuple[float, ...]
    planned: int
    metric: str = ""
    mode: Literal["max", "min"] = "max"  # which is better

    @property
    def mean(self) -> float:
        """Over the runs that are done."""
        return statistics.fmean(self.scores)

    @property
    def label(self) -> str:
        """What is particular about it."""
        axes = {k: v for k, v in self.spec.axes.items() if k != "seed" and not earlier_run(k, v)}
        words = [f"{key}={value}" for key, value in axes.items()]
        return " ".join([*([self.spec.variant] if self.spec.variant else []), *words]) or self.spec.name

    def __str__(self) -> str:
        spread = f" ± {statistics.stdev(self.scores):.4f}" if len(self.scores) > 1 else ""
        missing = f", {self.planned - len(self.scores)} of {self.planned} runs missing" * self.missing
        return f"{self.task}  {self.mean:.4f}{spread} (n={len(self.scores)}{missing})  {self.label}  {self.spec.name}"

    @property
    def goal(self) -> str:
        """What it was chosen by: `lowest loss`."""
        return f"{'highest' if self.mode == 'max' else 'lowest'} {self.metric}"

    @property
    def missing(self) -> bool:
        """Whether a run failed or is not done yet."""
        return len(self.scores) < self.planned


def metric_of(folder: Path) -> Metric:
    """What the sweep goes by."""
    found = dict(read_about(folder).get("metric", {}))
    if found.get("mode") == "max" and not _says_mode(folder / "sweep.yaml"):
        found["mode"] = "auto"  # plans used to hold max where no direction was given
    return Metric.model_validate_json(json.dumps(found))


def _says_mode(path: Path) -> bool:
    """Whether a sweep's file itself says which values are better."""
    if not path.is_file():
        return True
    given = yaml_reader.read_file(path).tree.get("metric")
    return isinstance(given, dict) and "mode" in given


def ranking(folder: Path) -> dict[str, list[Candidate]]:
    """Task → its configurations, best first; those with runs missing stand behind the complete ones."""
    specs, metric = read_plan(folder), metric_of(folder)
    needed = {need for spec in specs for need in spec.needs}
    groups: dict[str, list[RunSpec]] = {}
    for spec in specs:
        if spec.config is not None and spec.id not in needed:
            groups.setdefault(_without_seed(spec), []).append(spec)
    found = [one for group in groups.values() if (one := _candidate(group, folder, metric))]
    tasks: dict[str, list[Candidate]] = {}
    for one in sorted(found, key=lambda one: (one.missing, -one.mean if one.mode == "max" else one.mean)):
        tasks.setdefault(one.task, []).append(one)
    return tasks


def _without_seed(spec: RunSpec) -> str:
    """What all seeds of a configuration have in common; which earlier run it started from does not count either."""
    config: dict[str, Any] = {key: value for key, value in (spec.config or {}).items() if key != "seed"}
    starts = {key.removeprefix("model."): "" for key, value in spec.axes.items() if earlier_run(key, value)}
    return json.dumps([spec.stage, config | {"model": {**config["model"], **starts}}], sort_keys=True)


def _candidate(group: Sequence[RunSpec], folder: Path, metric: Metric) -> Candidate | None:
    done = [spec for spec in group if RunDir(folder / spec.name).is_done]
    scored = [(*one, spec) for spec in done if (one := metrics.scored(folder / spec.name, metric)) is not None]
    if not scored:
        return None
    name = scored[0][0]
    mode = metric.looks_for(name)
    best = (max if mode == "max" else min)(scored, key=lambda one: one[1])[2]
    task = str(lookup(dict(best.config or {}), "tasks"))
    return Candidate(task, best, tuple(value for _, value, _ in scored), len(group), name, mode)


def export(found: Candidate, folder: Path) -> str:
    """The configuration as a config file."""
    head = f"# The best of {folder.name} on {found.task}: {found.mean:.4f}, the mean of {len(found.scores)} runs.\n"
    head += f"# Chosen by the {found.goal}.\n"
    return head + yaml_reader.write(dict(found.spec.config or {}))


def only(tasks: dict[str, list[Candidate]], wanted: str | None) -> Candidate:
    """The best of one task; the sweep's only one, if none is named."""
    if wanted is None and len(tasks) > 1:
        raise UserError(f"--export writes one config, but the sweep has {', '.join(tasks)}: say which with --task.")
    if wanted is not None and wanted not in tasks:
        raise UserError(f"--task {wanted}: the sweep has {', '.join(tasks)}.")
    return tasks[wanted or next(iter(tasks))][0]
