"""Which tasks help which: head correlation (`encodery gradts`) beside what training on pairs really brought."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from encodery.core import files
from encodery.core.redact import without_paths
from encodery.core.text import counted
from encodery.errors import UserError
from encodery.report import stats
from encodery.report.page.chart import Heat, Picture, Section
from encodery.report.page.data import PageData, below
from encodery.report.page.html import Html, heat, join, table, tag
from encodery.report.records import TASKS, Record
from encodery.tasks.forms import metric_table, metrics

Stored = Mapping[str, Any]
LEAST = 3  # pairs from which a rank correlation says something
ROOM = 6  # tasks up to which a cell has room for the spread over seeds


@dataclass(frozen=True)
class Gain:
    """What a second task improved, in points of the metric, seed by seed; less than 0 is worse."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        return stats.mean(list(self.values))

    @property
    def short(self) -> str:
        spread = stats.sd(list(self.values))
        return f"{self.mean:+.1f}" + (f" ± {spread:.1f}" if spread is not None else "")

    @property
    def told(self) -> str:
        spread = stats.sd(list(self.values))
        return (
            f"{self.mean:+.2f}"
            + (f" ± {spread:.2f}" if spread is not None else "")
            + f" ({counted(len(self.values), 'seed')})"
        )


def section(page: PageData) -> Section | None:
    """Matrices side by side, and how far they agree."""
    pictures: list[Picture] = []
    parts: list[Html] = []
    gains = pair_gains(page.records)
    for number, path in enumerate(below(page.folders, "gradts.json")):
        try:
            drawn, body = _study(f"pairs-{number}", path, files.read_json(path), gains)
        except (UserError, KeyError, TypeError, AttributeError, ValueError) as error:
            page.remark(f"{_name(path)}/gradts.json is damaged and not shown ({without_paths(str(error))})")
            continue
        pictures += drawn
        parts.append(body)
    if not parts and gains:
        drawn_gains = _gains("pairs-gains", gains, _tasks(gains))
        pictures, parts = [drawn_gains], [heat(drawn_gains)]
    return Section("task-pairs", "Task pairs", join(*parts), pictures) if parts else None


def _name(path: Path) -> str:
    return path.resolve().parent.name


def _study(id: str, path: Path, stored: Stored, measured: Mapping[tuple[str, str], Gain]) -> tuple[list[Picture], Html]:
    matrices: Stored = stored["matrices"]
    if not matrices:
        return [], Html("")
    names = [str(name) for name in next(iter(matrices.values()))["names"]]
    each = np.array([one["values"] for one in matrices.values() if list(map(str, one["names"])) == names], float)
    gains = {**_of_trials(stored), **measured}
    alike = _alike(f"{id}-alike", _name(path), names, each, next(iter(matrices.values()))["kind"])
    mine = {pair: gain for pair, gain in gains.items() if pair[0] in names and pair[1] in names}
    pictures: list[Picture] = [alike]
    side = [heat(alike)]
    if mine:
        drawn = _gains(f"{id}-gains", mine, names)
        pictures.append(drawn)
        side.append(heat(drawn))
    words = told(names, each, mine)
    stability = _stability(id, stored, each, names)
    return pictures, join(tag("div", *side, class_="grid"), tag("p", words, class_="note"), stability)


def told(names: Sequence[str], each: Any, gains: Mapping[tuple[str, str], Gain]) -> str:
    """Whether the correlation of heads foretells the gain of a pair."""
    at = {name: place for place, name in enumerate(names)}
    pairs = [(float(each.mean(0)[at[a], at[b]]), gain.mean) for (a, b), gain in gains.items()]
    if not pairs:
        return "No runs on pairs of these tasks are below the folders, so there is no true gain to compare with."
    if len(pairs) < LEAST:
        return f"Only {len(pairs)} of {len(names) * (len(names) - 1)} pairs were trained: too few to compare."
    value = metrics.spearman(np.array([one for one, _ in pairs]), np.array([gain for _, gain in pairs]))
    return f"Over the {len(pairs)} pairs that were trained, Spearman's correlation of both matrices is {value:.2f}."


def _alike(id: str, study: str, names: Sequence[str], each: Any, kind: str) -> Heat:
    """The mean over seeds; a cell's hint has the seeds' spread."""
    mean = each.mean(0)
    spread = each.std(0, ddof=1) if len(each) > 1 else np.zeros_like(mean)
    several = len(each) > 1 and len(names) <= ROOM
    texts = [
        [f"{mean[i, j]:.2f}" + (f" ± {spread[i, j]:.2f}" if several and i != j else "") for j in range(len(names))]
        for i in range(len(names))
    ]
    seeds = f"{len(each)} seed" + ("s" if len(each) > 1 else "")
    shown = [without_paths(name) for name in names]
    hints = [
        [
            f"{a} and {b}: {mean[i, j]:.3f}" + (f" ± {spread[i, j]:.3f}" if len(each) > 1 else "")
            for j, b in enumerate(shown)
        ]
        for i, a in enumerate(shown)
    ]
    note = f"Mean over {seeds}" + (f"; sd between seeds at most {spread.max():.2f}." if len(each) > 1 else ".")
    title = f"{study}: {kind} correlation of head importance"
    return Heat(
        id, title, shown, shown, mean.tolist(), texts, low=min(0.0, float(mean.min())), high=1.0, note=note, hints=hints
    )


def _gains(id: str, gains: Mapping[tuple[str, str], Gain], names: Sequence[str]) -> Heat:
    cells = [[gains.get((a, b)) for b in names] for a in names]
    values = [[None if cell is None else cell.mean for cell in line] for line in cells]
    roomy = len(names) <= ROOM
    texts = [["" if cell is None else cell.short if roomy else f"{cell.mean:+.1f}" for cell in line] for line in cells]
    hints = [["" if cell is None else cell.told for cell in line] for line in cells]
    most = max((abs(gain.mean) for gain in gains.values()), default=1.0) or 1.0
    shown = [without_paths(name) for name in names]
    note = "How much better (+) or worse (-) training on both tasks is than on the task alone, in points of the metric."
    return Heat(
        id, "Gain of training on a pair", shown, shown, values, texts, x="with", y="task", low=-most, high=most,
        note=note, hints=hints, signed=True,
    )  # fmt: skip


def _stability(id: str, stored: Stored, each: Any, names: Sequence[str]) -> Html:
    """How much of a matrix is the seed: the correlation of a task's own importance between seeds."""
    own: Stored = stored.get("stability") or {}
    if not own and len(each) < 2:
        return Html("")
    other = ~np.eye(len(names), dtype=bool)  # a task with itself is always 1
    several = len(each) > 1 and len(names) > 1
    spread = each.std(0, ddof=1) if several else np.zeros_like(each[0])
    header = ["task", *(["own matrix over seeds"] if own else []), *(["sd of its correlations"] if several else [])]
    rows = [
        [
            without_paths(name),
            *([f"{own[name]:.3f}" if name in own else ""] if own else []),
            *([f"{spread[place][other[place]].mean():.3f}"] if several else []),
        ]
        for place, name in enumerate(names)
    ]
    shown = table(header, rows, id=f"{id}-stability", caption="Stability over seeds", numbers=header[1:])
    why = "A task's own matrices are not compared between seeds: these began with other weights."
    return shown if own else join(shown, tag("p", why, class_="note"))


# True gains


def _of_trials(stored: Stored) -> dict[tuple[str, str], Gain]:
    """From the trials of a study: one task beside the primary one, against the primary one alone."""
    names = {row["primary"]: row["metric"] for row in stored.get("rows") or ()}
    gains: dict[tuple[str, str], Gain] = {}
    for primary, tried in (stored.get("trials") or {}).items():
        alone: Stored = next((one["scores"] for one in tried if not one["tasks"]), {})
        for trial in tried:
            shared = [seed for seed in trial["scores"] if seed in alone]
            if len(trial["tasks"]) == 1 and shared:
                pairs = ((float(trial["scores"][seed]), float(alone[seed])) for seed in shared)
                values = tuple(_points(names.get(primary, ""), both, single) for both, single in pairs)
                gains[primary, trial["tasks"][0]] = Gain(values)
    return gains


def pair_gains(records: Sequence[Record]) -> dict[tuple[str, str], Gain]:
    """From runs of a task alone and of pairs with it, with equal settings and seeds."""
    done = [record for record in records if record.done]
    alone = {(one.task, _settings(one), one.seed): one for one in done if " + " not in one.task}
    values: dict[tuple[str, str], list[float]] = {}
    for record in done:
        tasks = record.task.split(" + ")
        if len(tasks) != 2:
            continue
        for task, other in (tasks, tasks[::-1]):
            single = alone.get((task, _settings(record), record.seed))
            gain = _gain(record, single, f"{task}:dev") if single else None
            if gain is not None:
                values.setdefault((task, other), []).append(gain)
    return {pair: Gain(tuple(each)) for pair, each in values.items()}


def _gain(both: Record, single: Record, data: str) -> float | None:
    metric = single.main.get(data, "")
    pair = both.value(data, metric), single.value(data, metric)
    return None if pair[0] is None or pair[1] is None else _points(metric, pair[0], pair[1])


def _points(name: str, both: float, single: float) -> float:
    """How much better the pair is, as tables write the metric: a loss that falls is a gain."""
    about = metric_table.metric(name)
    return about.scale * (single - both if about.lower else both - single)


def _settings(record: Record) -> tuple[tuple[str, str], ...]:
    """What must be equal besides the tasks."""
    return tuple(sorted((k, str(v)) for k, v in record.settings.items() if k != TASKS and not k.startswith("tasks.")))


def _tasks(gains: Mapping[tuple[str, str], Gain]) -> list[str]:
    return sorted({name for pair in gains for name in pair})
