"""Run directories → records: settings, seed, how the run ended, all its scores, and what a reader must know of them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from encodery import files, shapes, yaml_reader
from encodery.config import flat
from encodery.errors import UserError
from encodery.finished import REMEDY
from encodery.identity import as_before
from encodery.report.plans import Plans
from encodery.rundir import RunDir, find_runs
from encodery.sweep.spec import RunSpec

# What names a run, or says where it was computed and where its data lay, does not make it another configuration.
IGNORED = ("seed.", "data", "device", "threads", "train.log", "train.save", "train.keep_checkpoints")
IGNORED_OF_TASKS = (".data", ".root")
TAIL = 1 << 16  # bytes of metrics.jsonl that are read: tables of a thousand runs must not read millions of lines


@dataclass(frozen=True)
class Record:
    """One run, as tables see it."""

    path: Path
    settings: Mapping[str, Any]  # dotted keys, seeds and places left out
    seed: int | str
    task: str
    state: str  # done, or why its scores do not count: failed, stopped, pruned, queued, …
    why: str = ""
    variant: str | None = None
    scores: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # glue/rte:dev -> accuracy -> 0.7
    main: Mapping[str, str] = field(default_factory=dict)  # glue/rte:dev -> accuracy
    notes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    alarms: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    digests: Mapping[str, str] = field(default_factory=dict)  # split -> digest of its rows
    seconds: float | None = None
    tree: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.path.name

    @property
    def done(self) -> bool:
        """Whether its scores count."""
        return self.state == "done"

    def value(self, data: str, metric: str) -> float | None:
        """A score; None where there is none."""
        return self.scores.get(data, {}).get(metric) if self.done else None


def read(folders: Sequence[str | Path], *, every: bool = False) -> tuple[list[Record], list[str]]:
    """The runs at and below the folders, and sentences about those that cannot be shown.

    In the folder of a sweep only what its plan names counts (all with `every`), and what was not started yet is queued.
    """
    plans = Plans()
    records, remarks, left = [], [], 0
    for item in find_runs(*folders):
        plan = plans.of(item.run.path)
        if plan and not every and not plan.has(item.run.path):
            left += 1
        else:
            records.append(_row(item.run, item.problem, plan.spec(item.run.path) if plan else None))
            if not records[-1].settings:  # its row has little room for the reason
                remarks.append(f"{item.run.path} is damaged: {records[-1].why}")
    seen = {record.path.resolve() for record in records}
    for path, spec in plans.planned(folders):
        if path.resolve() not in seen and spec.config is not None:
            records.append(_unseen(path, spec, spec.config))
    if left:
        remarks.append(f"{left} runs are no longer in the plan of their sweep and are left out (--all takes them in)")
    return records, remarks


def _unseen(path: Path, spec: RunSpec, config: Mapping[str, Any]) -> Record:
    """A planned run that has no directory of its own: it waits, or it failed before it could make one."""
    settings, seed = split_seed(config)
    told = _status(path / "status.json")
    task = task_name(config)
    state = str(told.get("state") or "queued")
    return Record(path, settings, seed, task, state, _last_line(told.get("error")), spec.variant, tree=config)


def _row(run: RunDir, problem: str | None, spec: RunSpec | None) -> Record:
    """A run, whatever is wrong with it: one whose settings nobody can read stands under its own name."""
    if problem and not run.config.is_file() and not (spec and spec.config):
        return Record(run.path, {}, "?", run.path.name, "damaged", problem)
    try:
        return _record(run, problem, spec)
    except (UserError, OSError) as error:
        return Record(run.path, {}, "?", run.path.name, "damaged", problem or str(error))


def _record(run: RunDir, problem: str | None, spec: RunSpec | None) -> Record:
    """The plan's settings where there is a plan: quick, and what a sweep changed to save memory makes no other row."""
    planned = spec.config if spec else None
    tree = planned or _tree(run)
    settings, seed = split_seed(tree)
    variant = spec.variant if spec else None
    if problem:
        return Record(run.path, settings, seed, task_name(tree), "damaged", problem, variant, tree=tree)
    info = {key: value for key, value in run.info().items() if value is not None}
    state, why = state_of(run, info)
    digests = {split: str(about.get("digest")) for split, about in info.get("data", {}).items() if about}
    known = Record(run.path, settings, seed, info.get("task", ""), state, why, variant, digests=digests, tree=tree)
    return _with_scores(known, run, info) if known.done else known


def _tree(run: RunDir) -> dict[str, Any]:
    """config.yaml as data; refused if it is not the config of a run."""
    tree = yaml_reader.read_text(run.config_text(), str(run.config)).tree
    if not isinstance(tree, dict):
        raise UserError(f"{run.config} is damaged: it is not a mapping of settings; {REMEDY}")
    shapes.require(tree, shapes.CONFIG, run.config, REMEDY)
    seed = tree.get("seed")
    parts = seed.values() if isinstance(seed, dict) else [seed]
    if not all(one is None or isinstance(one, int | str) for one in parts):
        raise UserError(f"{run.config} is damaged: seed is not a number; {REMEDY}")
    return tree


def task_name(tree: Mapping[str, Any]) -> str:
    """What the task of a config is called, without making it; empty for own code."""
    entry = (tree.get("tasks") or [{}])[0]
    name = str(entry.get("name") or "")
    if "kind" not in entry:
        return name
    file = entry.get("train") or entry.get("dev") or entry.get("test") or ""
    return f"table/{name.removeprefix('table/') or Path(file).stem}" if entry["kind"] == "table" else ""


def split_seed(tree: Mapping[str, Any]) -> tuple[dict[str, Any], int | str]:
    """The settings that make a configuration, and the seed: one number, or `1/2` where init and data differ."""
    settings = {
        key: value
        for key, value in flat(as_before(tree)).items()
        if not key.startswith(IGNORED) and not (key.startswith("tasks.") and key.endswith(IGNORED_OF_TASKS))
        if value is not None and value != {}
    }
    seed = tree.get("seed")
    if not isinstance(seed, Mapping):
        return settings, 0 if seed is None else seed
    init, data = seed.get("init", 1), seed.get("data", 1)
    for key in [key for key in settings if key.startswith("tasks.") and key.endswith(".subset")]:
        settings[key] = str(settings[key]).removesuffix(f"-seed-{data}")  # a curve has a selection for each seed
    return settings, init if init == data else f"{init}/{data}"


def state_of(run: RunDir, info: Mapping[str, Any]) -> tuple[str, str]:
    """How it ended. What a sweep gave up (pruned, timeout) is never final, even if it has scores."""
    ended = info.get("ended") or {}
    told = _status(run.path / "status.json")
    if run.is_done and told.get("state") not in ("pruned", "timeout"):
        return "done", ""
    if run.holder():
        return "running", ""
    state = told.get("state")
    if state in (None, "done", "running", "queued"):
        state = ended.get("state", "unfinished")
    return str(state), str(ended.get("error") or _last_line(told.get("error")))


def _last_line(text: object) -> str:
    """What a sweep keeps are the last lines that a run wrote."""
    lines = [line for line in str(text or "").splitlines() if line.strip()]
    return lines[-1] if lines else ""


def _status(path: Path) -> Mapping[str, Any]:
    """What a sweep wrote about the run; a torn file says nothing."""
    try:
        found = files.read_json(path) if path.is_file() else {}
    except UserError:
        found = {}
    return found if isinstance(found, dict) else {}


def _with_scores(record: Record, run: RunDir, info: Mapping[str, Any]) -> Record:
    result = {key: value for key, value in run.read_scores().items() if value is not None}
    scores, main = dict(result.get("scores", {})), dict(result.get("main", {}))
    for key, about in result.get("evaluations", {}).items():
        if about.get("scores") and about.get("main") and key not in scores:
            scores[key], main[key] = about["scores"], about["main"]
    if lost := next((key for key in scores if not main.get(key) or scores[key] is None), None):
        raise UserError(f"{run.scores} is damaged: {lost} has no scores, or no main metric; {REMEDY}")
    notes = {key: _notes(result, key, info) for key in scores}
    alarms = {key: _alarms(result, key, record.task) for key in scores}
    more = {"scores": scores, "main": main, "notes": notes, "alarms": alarms, "seconds": seconds_of(run)}
    return Record(**{**vars(record), **more})


def _notes(result: Mapping[str, Any], key: str, info: Mapping[str, Any]) -> tuple[str, ...]:
    task, _, split = key.rpartition(":")
    notes, data = [], info.get("data", {})
    if result.get("chosen", {}).get("chosen_on") == split:
        notes.append("best on dev, reported on dev")
    if (chosen_on := result.get("thresholds", {}).get(task, {}).get("chosen_on")) == split:
        notes.append(f"threshold chosen on {chosen_on}, reported on {chosen_on}")
    for name in ("train", split):
        origin = data.get(name) or data.get(f"{task}:{name}", {})  # a run of several tasks names them
        notes += [f"{name} {origin[part]}" for part in ("part", "note") if origin.get(part)]
    notes += result.get("notes", [])
    notes += [one["text"] for one in info.get("notices", []) if one["text"].startswith("went on with changed")]
    about = result.get("evaluations", {}).get(key, {})
    notes += [str(about[part]) for part in ("part", "note") if about.get(part)]
    return tuple(dict.fromkeys(notes))


def _alarms(result: Mapping[str, Any], key: str, task: str) -> tuple[str, ...]:
    """Those of this data set, those of the training, and those of a later evaluation."""
    others = tuple(f"{name}:" for name in task.split(" + "))
    mine = (key, f"{key.rpartition(':')[0]}: ")
    own = [a for a in result.get("alarms", []) if a.startswith(mine) or not a.startswith(others)]
    return (*own, *result.get("evaluations", {}).get(key, {}).get("alarms", []))


def seconds_of(run: RunDir) -> float | None:
    """Time spent in training steps: their number times the mean of those at the end of metrics.jsonl."""
    path = run.metrics_file.path
    if not path.is_file():
        return None
    with open(path, "rb") as stream:
        start = max(0, path.stat().st_size - TAIL)
        stream.seek(start)
        lines = stream.read().splitlines()[1 if start else 0 :]
    steps = [found for line in lines if (found := _step(line))]
    if not steps:
        return None
    return max(step for step, _ in steps) * sum(seconds for _, seconds in steps) / len(steps)


def _step(line: bytes) -> tuple[int, float] | None:
    try:
        found = json.loads(line)
        return int(found["step"]), float(found["seconds"])
    except (ValueError, KeyError, TypeError):
        return None  # an evaluation, or a line that is being written
