"""Run directories → one row per configuration: mean ± sd (n) over seeds, median, best, and only what varies."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from encodery import yaml_reader
from encodery.config import flat
from encodery.errors import UserError
from encodery.rundir import RunDir, find_runs

# What names a run or says where it was computed does not make it another configuration.
IGNORED = ("seed.", "data", "device", "threads", "train.log", "train.save", "train.keep_checkpoints")


@dataclass(frozen=True)
class Result:
    """One score of one run, or the failure that stands in its place."""

    run: str
    settings: Mapping[str, Any]
    seed: int
    data: str  # glue/rte:dev
    metric: str
    value: float | None
    notes: tuple[str, ...] = ()


def results(*folders: str | Path, metric: str | None = None) -> list[Result]:
    """Every headline score (or the asked metric) of every run below the folders."""
    found = []
    for item in find_runs(*folders):
        found += _results_of(item.run, item.problem, metric)
    return found


def _results_of(run: RunDir, problem: str | None, metric: str | None) -> list[Result]:
    if problem and not run.config.exists():
        return [Result(run.path.name, {}, 0, "", "", None, (f"damaged: {problem}",))]
    tree = yaml_reader.read_text(run.config_text(), str(run.config)).tree
    info = {} if problem else run.info()
    settings = {k: v for k, v in flat(tree).items() if not k.startswith(IGNORED)}
    seed = tree["seed"]["init"]
    task = info.get("task", "")
    if problem or not run.is_done:
        state = problem or (info.get("ended") or {}).get("state", "unfinished")
        return [Result(run.path.name, settings, seed, task, "", None, (state,))]
    scores = run.read_scores()
    return [
        Result(run.path.name, settings, seed, key, name, values[name], _notes(scores, key, info))
        for key, values in scores["scores"].items()
        for name in [metric or scores["main"][key]]
        if name in values
    ]


def _notes(scores: Mapping[str, Any], key: str, info: Mapping[str, Any]) -> tuple[str, ...]:
    split = key.rpartition(":")[2]
    notes = []
    if scores["chosen"].get("chosen_on") == split:
        notes.append("best on dev, reported on dev")
    for name in ("train", split):
        origin = info.get("data", {}).get(name, {})
        notes += [f"{name} {origin[field]}" for field in ("part", "note") if origin.get(field)]
    notes += ["ALARM " + a for a in scores["alarms"] if a.startswith(key) or not a.startswith(info.get("task", "?"))]
    return tuple(notes)


def table(
    folders: Sequence[str | Path], baseline: str | None = None, metric: str | None = None
) -> list[dict[str, Any]]:
    """Rows for people: what varies, then the statistics over seeds."""
    found = results(*folders, metric=metric)
    if not found:
        raise UserError(f"no runs below {', '.join(map(str, folders))}")
    varying = _varying([r.settings for r in found])
    groups: dict[tuple[Any, ...], list[Result]] = {}
    for result in found:
        key = tuple(str(result.settings.get(name, "")) for name in varying)
        groups.setdefault((*key, result.data if result.value is not None else "", result.metric), []).append(result)
    rows = [_row(key, group, varying) for key, group in sorted(_joined(groups).items(), key=lambda item: item[0])]
    return _against(rows, baseline, varying) if baseline else rows


def _joined(groups: dict[tuple[Any, ...], list[Result]]) -> dict[tuple[Any, ...], list[Result]]:
    """Failed and unfinished runs are counted in the rows of their own configuration."""
    whole = {key: list(group) for key, group in groups.items() if key[-1]}
    for key, group in groups.items():
        if key[-1]:
            continue
        homes = [k for k in whole if k[:-2] == key[:-2]]
        for home in homes or [key]:
            whole.setdefault(home, []).extend(group)
    return whole


def _varying(settings: Iterable[Mapping[str, Any]]) -> list[str]:
    every = [s for s in settings if s]
    names = list(dict.fromkeys(name for s in every for name in s))
    differ = [name for name in names if len({str(s.get(name)) for s in every}) > 1]
    return [name for name in differ if name != "tasks.0.name"]  # the data column says it


def _row(key: tuple[Any, ...], group: list[Result], varying: Sequence[str]) -> dict[str, Any]:
    values = {r.seed: r.value for r in group if r.value is not None}
    missing = [r for r in group if r.value is None]
    row: dict[str, Any] = dict(zip(varying, key, strict=False))
    row |= {
        "data": key[-2] or (group[0].data if group else ""),
        "metric": key[-1],
        **statistics_of(list(values.values())),
    }
    notes = list(dict.fromkeys(note for r in group for note in r.notes if r.value is not None))
    notes += [f"{r.run}: {r.notes[0]}" for r in missing]
    return row | {"notes": "; ".join(notes), "values": values}


def statistics_of(values: Sequence[float]) -> dict[str, Any]:
    """n, mean, sd, median, best; no sd for one value."""
    if not values:
        return {"n": 0, "mean": None, "sd": None, "median": None, "best": None}
    sd = statistics.stdev(values) if len(values) > 1 else None
    mean = math.fsum(values) / len(values)
    return {"n": len(values), "mean": mean, "sd": sd, "median": statistics.median(values), "best": max(values)}


def _against(rows: list[dict[str, Any]], baseline: str, varying: Sequence[str]) -> list[dict[str, Any]]:
    """Difference to the row of the same data that has `baseline` (a value, or key=value) among its settings."""
    name, _, value = baseline.rpartition("=")
    for row in rows:
        same = [r for r in rows if (r["data"], r["metric"]) == (row["data"], row["metric"])]
        base = [r for r in same if value in [str(r.get(k)) for k in ([name] if name else varying)]]
        if not base:
            raise UserError(
                f"baseline: no row of {row['data']} has {baseline}; what varies: {', '.join(varying) or 'nothing'}"
            )
        both = [s for s in row["values"] if s in base[0]["values"]]
        differences = [row["values"][s] - base[0]["values"][s] for s in both]
        row["difference"] = math.fsum(differences) / len(both) if both else None
        row["pairs"] = len(both)
    return rows


def spell(row: Mapping[str, Any], scale: float = 100.0) -> str:
    """`81.23 ± 0.45 (5)`."""
    if row["mean"] is None:
        return "–"
    sd = f" ± {row['sd'] * scale:.2f}" if row["sd"] is not None else ""
    return f"{row['mean'] * scale:.2f}{sd} ({row['n']})"


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """A Markdown table, scores times 100."""
    hidden = {"values", "n", "sd", "mean"}
    names = [n for n in rows[0] if n not in hidden and (n != "notes" or any(r["notes"] for r in rows))]
    place = names.index("metric") + 1
    header = [*names[:place], "mean ± sd (n)", *names[place:]]
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    for row in rows:
        cells = [_cell(n, row[n]) for n in names]
        lines.append("| " + " | ".join([*cells[:place], spell(row), *cells[place:]]) + " |")
    return "\n".join(lines)


def _cell(name: str, value: Any) -> str:
    if value is None:
        return ""
    if name in ("median", "best", "difference"):
        return f"{value * 100:.2f}"
    return str(value).replace("|", "\\|").replace("\n", " ")
