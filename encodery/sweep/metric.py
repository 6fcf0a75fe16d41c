"""The number by which the runs of a sweep are compared, read from a run's files."""

from pathlib import Path
from typing import Any

from encodery.errors import UserError
from encodery.metric_table import among, spelled
from encodery.metrics_file import MetricsFile
from encodery.rundir import RunDir
from encodery.sweep.file import Metric


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


def _at(found: dict[int, float], metric: Metric, name: str) -> float | None:
    """The best of what was recorded on the way, or that of a step."""
    if metric.at == "best":
        return (max if metric.looks_for(name) == "max" else min)(found.values(), default=None)
    return found.get(int(metric.at.removeprefix("step:")))


def _key(result: dict[str, Any], metric: Metric, run: Path) -> str:
    """The task and split that count: the first, or the one that the metric names."""
    keys = [key for key in result["scores"] if metric.split in (None, key.rpartition(":")[2])]
    if not keys:
        there = ", ".join(result["scores"]) or "nothing"
        raise UserError(f"metric.split: {run} has no scores on {metric.split or 'any split'}; it has {there}.")
    return str(keys[0])


def on_the_way(metrics: Path, name: str) -> dict[int, float]:
    """Step → the value that was recorded there, of an evaluation or of training (`loss`)."""
    found: dict[int, float] = {}
    for record in MetricsFile(metrics).read():
        value = _number(record.get(f"eval.{name}", record.get(f"eval.{spelled(name)}", record.get(name))))
        if value is not None:
            found[record["step"]] = value
    return found


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
