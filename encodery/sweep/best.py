"""The best configuration of a sweep: by the sweep's metric, as the mean over seeds."""

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from encodery.core import yaml
from encodery.core.text import counted
from encodery.errors import UserError
from encodery.runs.directory import RunDir, task_and_split
from encodery.runs.metrics_log import MetricsFile
from encodery.runs.sweep_spec import RunSpec, read_about, read_plan
from encodery.sweep.plan import earlier_run, lookup
from encodery.sweep.sweep_file import Metric
from encodery.tasks.forms.metric_table import among, spelled

# The number by which the runs of a sweep are compared, read from a run's files.


def score(run: Path, metric: Metric) -> float | None:
    """The score of a finished run; None where it has none, such as a foreign command's."""
    found = scored(run, metric)
    return found[1] if found else None


def scored(run: Path, metric: Metric) -> tuple[str, float] | None:
    """The metric of a finished run that counts, by name, and its value."""
    if not (run / "scores.json").is_file():
        return None
    result = RunDir(run).read_scores()
    key = _key(result, metric, run)
    there = result["scores"][key]
    name = among(metric.name, there) if metric.name else str(result["main"][key])
    if metric.at == "last":
        if name not in there:
            raise UserError(f"metric.name: {run} has no {name} for {key}; there are: {', '.join(there)}.")
        value = _number(there[name])
    else:
        value = _at(on_the_way(run / "metrics.jsonl", name), metric, name)
    return None if value is None else (name, value)


def _at(by_step: dict[int, float], metric: Metric, name: str) -> float | None:
    """The best of what was recorded on the way, or that of a step."""
    if metric.at == "best":
        return (max if metric.looks_for(name) == "max" else min)(by_step.values(), default=None)
    return by_step.get(int(metric.at.removeprefix("step:")))


def _key(result: dict[str, Any], metric: Metric, run: Path) -> str:
    """The task and split that count: the first, or the one that the metric names."""
    keys = [key for key in result["scores"] if metric.split in (None, task_and_split(key)[1])]
    if not keys:
        there = ", ".join(result["scores"]) or "nothing"
        raise UserError(f"metric.split: {run} has no scores on {metric.split or 'any split'}; it has {there}.")
    return str(keys[0])


def on_the_way(metrics: Path, name: str) -> dict[int, float]:
    """Step → the value that was recorded there, of an evaluation or of training (`loss`)."""
    by_step: dict[int, float] = {}
    for record in MetricsFile(metrics).read():
        value = _number(record.get(f"eval.{name}", record.get(f"eval.{spelled(name)}", record.get(name))))
        if value is not None:
            by_step[record["step"]] = value
    return by_step


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


@dataclass(frozen=True)
class Candidate:
    """One configuration, over its seeds and those of the earlier runs that it started from."""

    task: str
    spec: RunSpec  # its best run
    scores: tuple[float, ...]
    planned: int
    metric: str = ""
    mode: Literal["max", "min"] = "max"  # which is better
    starts: tuple[str, ...] = ()  # what is particular about the earlier runs that it started from
    on_the_way: bool = False  # of a stage that others start from

    @property
    def mean(self) -> float:
        """Over the runs that are done."""
        return statistics.fmean(self.scores)

    @property
    def label(self) -> str:
        """What is particular about it."""
        return " ".join([*_particular(self.spec), *self.starts]) or self.spec.name

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
    given = yaml.read_file(path).tree.get("metric")
    return isinstance(given, dict) and "mode" in given


def ranking(folder: Path) -> dict[str, list[Candidate]]:
    """Task → its configurations, best first; those with runs missing stand behind the complete ones.

    Runs that others start from are ranked too, on tasks that no later run has.
    """
    specs, metric = read_plan(folder), metric_of(folder)
    by_id = {spec.id: spec for spec in specs if spec.config is not None}
    needed = {need for spec in specs for need in spec.needs}
    last = {_tasks(spec) for spec in by_id.values() if spec.id not in needed}
    groups: dict[str, list[RunSpec]] = {}
    for spec in by_id.values():
        if spec.id not in needed or _tasks(spec) not in last:
            groups.setdefault(_without_seed(spec, by_id), []).append(spec)
    candidates = [_candidate(group, folder, metric, by_id, group[0].id in needed) for group in groups.values()]
    tasks: dict[str, list[Candidate]] = {}
    for one in sorted((one for one in candidates if one), key=_rank):
        tasks.setdefault(one.task, []).append(one)
    return tasks


def _rank(one: Candidate) -> tuple[bool, bool, float]:
    return one.on_the_way, one.missing, -one.mean if one.mode == "max" else one.mean


def _tasks(spec: RunSpec) -> str:
    """The tasks of a run, told apart by name, and own files by their path."""
    entries = (spec.config or {}).get("tasks", [])
    return json.dumps([entry.get("name") or [entry.get("kind"), entry.get("train")] for entry in entries])


def _starts(spec: RunSpec, by_id: Mapping[str, RunSpec]) -> dict[str, RunSpec | None]:
    """Key of model → the earlier run that stands there."""
    ids = {key: earlier_run(key, value) for key, value in spec.axes.items()}
    return {key: by_id.get(id) for key, id in ids.items() if id}


def _without_seed(spec: RunSpec, by_id: Mapping[str, RunSpec]) -> str:
    """What all seeds of a configuration have in common: its settings, and those of the runs that it started from."""
    config: dict[str, Any] = {key: value for key, value in (spec.config or {}).items() if key != "seed"}
    starts = {
        key.removeprefix("model."): _without_seed(start, by_id) if start else spec.axes[key]
        for key, start in _starts(spec, by_id).items()
    }
    return json.dumps([spec.stage, config | {"model": {**config["model"], **starts}}], sort_keys=True)


def _particular(spec: RunSpec) -> list[str]:
    """Variant and settings of a run that vary in its stage."""
    axes = {key: value for key, value in spec.axes.items() if key != "seed" and not earlier_run(key, value)}
    return [*([spec.variant] if spec.variant else []), *(f"{key}={value}" for key, value in axes.items())]


def _from(spec: RunSpec, by_id: Mapping[str, RunSpec]) -> tuple[str, ...]:
    """`(first: optim.lr=0.001)`: what is particular about each run that this one was built on."""
    starts = dict.fromkeys(start.id for start in _starts(spec, by_id).values() if start)
    words = [(by_id[id].stage, [*_particular(by_id[id]), *_from(by_id[id], by_id)]) for id in starts]
    return tuple(f"({stage}: {' '.join(settings)})" for stage, settings in words if settings)


def _scored_if_any(run: Path, metric: Metric, on_the_way: bool) -> tuple[str, float] | None:
    """A run that others start from may lack the metric of the sweep."""
    try:
        return scored(run, metric)
    except UserError:
        if on_the_way:
            return None
        raise


def _candidate(
    group: Sequence[RunSpec], folder: Path, metric: Metric, by_id: Mapping[str, RunSpec], on_the_way: bool
) -> Candidate | None:
    done = [spec for spec in group if RunDir(folder / spec.name).is_done]
    scores = ((_scored_if_any(folder / spec.name, metric, on_the_way), spec) for spec in done)
    results = [(*result, spec) for result, spec in scores if result is not None]
    if not results:
        return None
    name = results[0][0]
    mode = metric.looks_for(name)
    best = (max if mode == "max" else min)(results, key=lambda result: result[1])[2]
    named = RunDir(folder / best.name).task_names()  # the config alone calls a file of one's own `table`
    task = "+".join(named) or str(lookup(dict(best.config or {}), "tasks"))
    values = tuple(value for _, value, _ in results)
    return Candidate(task, best, values, len(group), name, mode, _from(best, by_id), on_the_way)


def export(best: Candidate, folder: Path) -> str:
    """The configuration as a config file."""
    over = counted(len(best.scores), "run")
    head = f"# The best of {folder.name} on {best.task}: {best.mean:.4f}, the mean of {over}.\n"
    head += f"# Chosen by the {best.goal}.\n"
    return head + yaml.write(dict(best.spec.config or {}))


def only(tasks: dict[str, list[Candidate]], wanted: str | None) -> Candidate:
    """The best of one task; if none is named, of the only one that a sweep ends with."""
    last = [task for task, ranked in tasks.items() if not ranked[0].on_the_way] or list(tasks)
    if wanted is None and len(last) > 1:
        raise UserError(f"--export writes one config, but the sweep has {', '.join(tasks)}: say which with --task.")
    if wanted is not None and wanted not in tasks:
        raise UserError(f"--task {wanted}: the sweep has {', '.join(tasks)}.")
    return tasks[wanted or last[0]][0]
