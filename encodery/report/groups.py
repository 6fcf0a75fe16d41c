"""Records → rows, one per configuration and data set: what varies, then the statistics over seeds."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from encodery.config.schema import ModelOptions, OptimOptions, TrainOptions
from encodery.core.redact import without_paths
from encodery.core.text import counted, short
from encodery.report import stats
from encodery.report.records import TASKS, Record
from encodery.runs.directory import task_and_split
from encodery.tasks.forms import metric_table
from encodery.tasks.forms.hans_figures import caution
from encodery.tasks.forms.metric_table import Metric

Key = tuple[str, ...]
RowKey = tuple[Key, str, str, int]  # settings, data, metric; runs of other rows of that name are further rows
MOST = 8  # keys that a remark lists
_TASK_NAME = re.compile(r"tasks\.0\.(name|kind|train|dev|test)$")  # the data column says it
_FOLD = re.compile(r"^(\w+) fold \d+ of (\d+) of ")  # the note of a run about its dev rows


@dataclass
class Row:
    """A configuration on a data set: the scores of its seeds, the runs behind them, and those that brought none."""

    settings: Mapping[str, str]  # what varies in this table, by dotted key; blank where a component has no such key
    data: str
    metric: str
    values: dict[int | str, float] = field(default_factory=dict)  # by seed
    runs: dict[int | str, Record] = field(default_factory=dict)
    missing: list[Record] = field(default_factory=list)
    members: list[Record] = field(default_factory=list)  # of an average over tasks: all its runs
    notes: list[str] = field(default_factory=list)
    seconds: float | None = None
    more: dict[str, Any] = field(default_factory=dict)  # what a comparison adds
    base: "Row | None" = field(default=None, repr=False)  # what it is compared with
    fixed: stats.Summary | None = None  # of rows that are no plain sample, such as averages over tasks

    @property
    def unit(self) -> str:
        """What its scores are over: `fold` of a cross-validation, else `seed`."""
        return "fold" if any(run.fold is not None for run in self.runs.values()) else "seed"

    @property
    def about(self) -> Metric:
        """What is known of its metric."""
        return metric_table.metric(self.metric)

    @property
    def lower(self) -> bool:
        """Whether less is better."""
        return self.about.lower

    @property
    def label(self) -> str:
        """The data, and what must stand beside every figure of it."""
        return self.data + caution(*self.notes)

    @property
    def summary(self) -> stats.Summary:
        """n, mean, sd, median, best; nobody chooses among folds, so they have no best."""
        found = self.fixed or stats.summary(list(self.values.values()), lower=self.lower)
        rivals = self.about.better != "neither" and (self.unit == "seed" or len(self.values) == 1)
        return found if rivals else found._replace(best=None)

    @property
    def interval(self) -> tuple[float, float] | None:
        """Student's 95 % interval of the mean over seeds; None below three."""
        return stats.t_interval(list(self.values.values()))

    @property
    def failed(self) -> list[Record]:
        """Runs that ended badly or were given up; those that wait or work are only missing."""
        return [record for record in self.missing if record.state not in ("queued", "running", "unfinished")]

    def to_dict(self) -> dict[str, Any]:
        about = {"data": self.data, "metric": self.metric, **self.summary._asdict(), "failed": len(self.failed)}
        low, high = self.interval or (None, None)
        about |= {"mean_low": low, "mean_high": high}
        about |= {"missing": len(self.missing) - len(self.failed), "seconds": self.seconds, **self.more}
        values = {str(seed): value for seed, value in self.values.items()}
        return {**self.settings, **about, "notes": "; ".join(self.notes), "values": values}


def spelled(value: Any) -> str:
    """A setting as text, equal for equal numbers: 3.0 is 3, 2.0e-05 is 2e-05."""
    if isinstance(value, bool | str):
        return str(value)
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return json.dumps(value) if isinstance(value, list | dict) else str(value)


@cache
def defaults() -> dict[str, Any]:
    """The sections that every run has, at their defaults: a run from before a key had what is now its default."""
    return {
        f"{section}.{name}": about.default
        for section, options in (("model", ModelOptions), ("optim", OptimOptions), ("train", TrainOptions))
        for name, about in options.model_fields.items()
        if isinstance(about.default, str | int | float)
    }


def setting(settings: Mapping[str, Any], key: str) -> str:
    """A setting of a run as text; a run of so many steps has no epochs."""
    counts = key != "train.epochs" or settings.get("train.max_steps") is None
    return spelled(settings.get(key, defaults().get(key, "") if counts else ""))


def varying(records: Sequence[Record]) -> list[str]:
    """The keys that differ between runs of one task. What differs only from task to task is the recipe.

    `tasks` is one of them where runs that were trained on different tasks have scores of the same one.
    """
    by_task: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        by_task.setdefault(record.task, []).append(record.settings)
    found = {key for settings in by_task.values() for key in varying_keys(settings)}
    found |= {TASKS} if trained_differently(records) else set()
    return [key for key in dict.fromkeys(key for record in records for key in record.settings) if key in found]


def trained_differently(records: Sequence[Record]) -> bool:
    """Whether some data set has scores, or waits for those, of runs that were trained on different tasks."""
    trained: dict[str, set[str]] = {}
    for record in (record for record in records if record.task and record.settings):
        for name in {*record.task.split(" + "), *(task_and_split(data)[0] for data in record.scores)}:
            trained.setdefault(name, set()).add(record.task)
    return any(len(tasks) > 1 for tasks in trained.values())


def only_between_tasks(records: Sequence[Record]) -> list[str]:
    """A remark on the settings that are no columns because they go with the task."""
    shown = varying(records)
    readable = [record.settings for record in records if record.settings]
    hidden = [key for key in varying_keys(readable) if key not in shown]
    hidden = [key for key in hidden if not key.startswith("tasks.")]
    listed = ", ".join(hidden[:MOST]) + (", …" if len(hidden) > MOST else "")
    return [f"differs only from task to task and is not shown: {listed}"] if hidden else []


def varying_keys(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Keys that differ among settings; a component's own keys are compared only where the component is the same."""
    names = list(dict.fromkeys(name for one in settings for name in one))
    return [name for name in names if name != TASKS and not _TASK_NAME.match(name) and _differs(name, settings)]


def _differs(name: str, settings: Sequence[Mapping[str, Any]]) -> bool:
    found: dict[str, set[str]] = {}
    for one in settings:
        found.setdefault(_component(name, one), set()).add(setting(one, name))
    return any(len(values) > 1 for values in found.values())


def _component(name: str, settings: Mapping[str, Any]) -> str:
    """What a key belongs to in a run: FreeLB's keys are no difference to a run without FreeLB."""
    section, _, key = name.partition(".")
    if section in ("method", "mix", "weighting") and key != "kind":
        return str(settings.get(f"{section}.kind"))
    if name.startswith("model.new."):
        return str("model.new.kind" in settings)
    parts = name.split(".")
    if parts[0] == "tasks" and len(parts) > 2:
        return "|".join(str(settings.get(f"tasks.{parts[1]}.{key}")) for key in ("name", "kind", "train"))
    return ""


def rows_of(records: Sequence[Record], metric: str | None = None) -> tuple[list[Row], list[str]]:
    """One row per configuration and data set, in the order of the settings, and remarks."""
    keys = varying(records)
    rows: dict[RowKey, Row] = {}
    remarks = only_between_tasks(records)
    for record in (record for record in records if record.done):
        settings = {key: setting(record.settings, key) for key in keys}
        for data in record.scores:
            name = metric_table.among(metric, record.scores[data]) if metric else record.main[data]
            value = record.value(data, name)
            if value is None:
                continue
            row = _home(rows, (tuple(settings.values()), data, name), record, settings)
            if record.seed in row.values:
                remarks.append(_twins(row.runs[record.seed], record, data))
            else:
                row.values[record.seed], row.runs[record.seed] = value, record
    _join_missing(records, keys, rows, metric)
    for at, row in rows.items():
        _describe(row)
        if (*at[:3], 1) in rows:  # only the runs tell such rows apart
            row.notes.insert(0, "other rows: " + short(", ".join(run.name for run in row.runs.values())))
    ordered = sorted(rows, key=lambda at: ([number_or_text(word) for word in at[0]], *at[1:]))
    return [rows[at] for at in ordered], list(dict.fromkeys(remarks))


def _home(rows: dict[RowKey, Row], at: tuple[Key, str, str], record: Record, settings: Mapping[str, str]) -> Row:
    """The row of a configuration whose runs were scored on the same rows as this one, as far as they say."""
    number, mine = 0, record.shared_rows(at[1])
    while home := rows.get((*at, number)):
        theirs = next(iter(home.runs.values())).shared_rows(at[1])
        if not (mine and theirs) or mine == theirs:
            return home
        number += 1
    return rows.setdefault((*at, number), Row(settings, at[1], at[2]))


def _twins(first: Record, second: Record, data: str) -> str:
    """Other data that they were evaluated on later say nothing about these."""
    shared = first.digests.keys() & second.digests.keys()
    shared = {key for key in shared if key == data or key not in first.asked}
    other = ", but other data" if any(first.digests[key] != second.digests[key] for key in shared) else ""
    return f"{second.path} has the settings and the seed of {first.path}{other}: only the first is counted"


def number_or_text(word: str) -> tuple[int, float, str]:
    """Sorts numbers by value, before words."""
    try:
        return 0, float(word), ""
    except ValueError:
        return 1, 0.0, word


def _join_missing(records: Sequence[Record], keys: Sequence[str], rows: dict[RowKey, Row], metric: str | None) -> None:
    """Runs without scores count in the rows of their own configuration and task; else they are a row themselves."""
    for record in (record for record in records if not record.done):
        settings = {key: setting(record.settings, key) for key in keys}
        at = tuple(settings.values())
        homes = [row for (key, data, _, _), row in rows.items() if key == at and _is_of(record, data)]
        if not homes:
            homes = [rows.setdefault((at, record.task, metric or "", 0), Row(settings, record.task, metric or ""))]
        for home in homes:
            if record.seed not in home.values:
                home.missing.append(record)


def _is_of(record: Record, data: str) -> bool:
    return not record.task or data == record.task or task_and_split(data)[0] in record.task.split(" + ")


def _describe(row: Row) -> None:
    """Notes once per configuration, however many seeds say so; and the time."""
    runs = list(row.runs.values())
    said = [without_paths(note) for run in runs for note in run.notes.get(row.data, ())]
    notes = dict.fromkeys(_FOLD.sub(r"\1 each of \2 folds of ", note) if len(runs) > 1 else note for note in said)
    alarms = [run.alarms[row.data] for run in runs if run.alarms.get(row.data)]
    where = f"ALARM in {len(alarms)} of {counted(len(runs), row.unit)}"
    texts = dict.fromkeys(without_paths(told[0]) for told in alarms)
    such = ", such as" if len(texts) > 1 else ""  # seeds may be wrong in different ways
    row.notes = [*notes, *[f"{where}{such}: {text}" for text in list(texts)[:1]], *_missing_notes(row)]
    times = [run.seconds for run in runs if run.seconds is not None]
    row.seconds = stats.mean(times) if times else None


def _missing_notes(row: Row) -> list[str]:
    notes = [
        f"seed {run.seed} {run.state}" + (f": {short(without_paths(run.why))}" if run.why else "") for run in row.failed
    ]
    states = [run.state for run in row.missing if run not in row.failed]
    return notes + [f"{states.count(state)} {state}" for state in dict.fromkeys(states)]


# The three GLUE averages, which are three different things: ELECTRA's, AMOS's and the leaderboard's.


FEW = 2  # missing tasks that are worth a remark
Part = Callable[[Record], float | None]


def _task_metric(task: str, metric: str, split: str = "dev") -> Part:
    return lambda record: record.value(f"glue/{task}:{split}", metric)


def _both(first: Part, second: Part) -> Part:
    """The mean of two scores of one run; None if one is not there."""

    def score(record: Record) -> float | None:
        pair = first(record), second(record)
        return None if pair[0] is None or pair[1] is None else (pair[0] + pair[1]) / 2

    return score


_ELECTRA: dict[str, Part] = {
    "cola": _task_metric("cola", "mcc"),
    "stsb": _task_metric("stsb", "spearman"),
    **{task: _task_metric(task, "accuracy") for task in ("sst2", "mrpc", "qqp", "mnli", "qnli", "rte")},
}
_MNLI = _both(_task_metric("mnli", "accuracy"), _task_metric("mnli", "accuracy", "dev_mismatched"))
_F1 = {task: _both(_task_metric(task, "f1"), _task_metric(task, "accuracy")) for task in ("mrpc", "qqp")}

AVERAGES: dict[str, dict[str, Part]] = {
    "GLUE average (ELECTRA)": _ELECTRA,
    "GLUE average (AMOS)": {**_ELECTRA, "mnli": _MNLI},
    "GLUE average (leaderboard)": {
        **_ELECTRA,
        **_F1,
        "mnli": _MNLI,
        "stsb": _both(_task_metric("stsb", "pearson"), _task_metric("stsb", "spearman")),
        "wnli": _task_metric("wnli", "accuracy"),
    },
}


def average_rows(records: Sequence[Record]) -> tuple[list[Row], list[str]]:
    """A row for each average of each system whose tasks are all there; a remark where only a few are missing."""
    of_glue = [record for record in records if record.task.startswith("glue/") and record.done]
    keys, shown = [key for key in varying(of_glue) if key != TASKS], varying(records)
    systems: dict[tuple[str, ...], list[Record]] = {}
    for record in of_glue:
        systems.setdefault(tuple(setting(record.settings, key) for key in keys), []).append(record)
    rows, remarks = [], []
    for values, members in systems.items():
        settings = {key: dict(zip(keys, values, strict=True)).get(key, "") for key in shown}
        for name, parts in AVERAGES.items():
            row, lacking = _average(name, parts, settings, members)
            if row:
                rows.append(row)
            elif len(lacking) <= FEW:
                remarks.append(
                    f"no {name}{_which(keys, values)}: {', '.join(lacking)} are missing or have other settings"
                )
    return rows, remarks


def _which(keys: Sequence[str], values: Sequence[str]) -> str:
    return " of " + ", ".join(f"{k}={v}" for k, v in zip(keys, values, strict=True)) if keys else ""


def _average(
    name: str, parts: Mapping[str, Part], settings: Mapping[str, str], members: Sequence[Record]
) -> tuple[Row | None, list[str]]:
    """Means, medians and bests are averaged over tasks; sd is that of the average over seeds that all tasks share."""
    by_task: dict[str, dict[int | str, float]] = {}
    for task, part in parts.items():
        for record in members:
            value = part(record) if record.task == f"glue/{task}" else None
            if value is not None:
                by_task.setdefault(task, {}).setdefault(record.seed, value)
    lacking = [task for task in parts if task not in by_task]
    if lacking:
        return None, lacking
    each = [stats.summary(list(values.values())) for values in by_task.values()]
    shared = [seed for seed in next(iter(by_task.values())) if all(seed in values for values in by_task.values())]
    same = all(len(values) == len(shared) for values in by_task.values())
    per_seed = {seed: stats.mean([values[seed] for values in by_task.values()]) for seed in shared} if same else {}
    middle = [stats.mean([float(one[place] or 0.0) for one in each]) for place in (1, 3, 4)]
    sd = stats.sd(list(per_seed.values())) if per_seed else None
    whole = stats.Summary(min(one.n for one in each), middle[0], sd, middle[1], middle[2])
    notes = [] if same else ["tasks have different seeds: no sd"]
    return Row(settings, name, "average", per_seed, members=list(members), notes=notes, fixed=whole), []
