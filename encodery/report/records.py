"""Run directories → records: settings, seed, how the run ended, all its scores, and what a reader must know of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

from encodery.config.load import flat
from encodery.core import yaml
from encodery.core.text import are, counted
from encodery.errors import UserError
from encodery.runs import json_schemas
from encodery.runs.directory import RunDir, find_runs, task_and_split
from encodery.runs.finished import REMEDY
from encodery.runs.identity import as_before
from encodery.runs.sweep_spec import PLAN, RunSpec, read_plan

# The plan of a sweep as tables need it: which folders belong to it, and what each run was meant to be.


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
        folder = folder.resolve()
        if folder not in self._known:
            here = (folder / PLAN).is_file()
            self._known[folder] = Plan(folder, {spec.name: spec for spec in read_plan(folder)}) if here else None
        return self._known[folder]

    def planned(self, folders: Sequence[str | Path]) -> Iterator[tuple[Path, RunSpec]]:
        """Every planned run of the sweeps at the folders, and of those that runs were found in below them."""
        for folder in map(Path, folders):
            self.at(folder)
        asked = [Path(folder).resolve() for folder in folders]
        for plan in filter(None, self._known.values()):
            if any(plan.root.is_relative_to(folder) for folder in asked):
                yield from ((plan.root / name, spec) for name, spec in plan.runs.items())


# What names a run, or says where it was computed and where its data lay, does not make it another configuration.
IGNORED = ("seed.", "data", "device", "threads", "train.log", "train.save", "train.keep_checkpoints")
TASKS = "tasks"
IGNORED_OF_TASKS = (".data", ".root", ".fold")  # folds of a cross-validation are one configuration
TAIL = 1 << 16  # bytes of metrics.jsonl that are read: tables of a thousand runs must not read millions of lines
CONTINUED = ("continued with changed", "went on with changed")  # notices of runs; the second in those of version 0.1


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
    majority: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # what the commonest label scores
    notes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    alarms: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    digests: Mapping[str, str] = field(default_factory=dict)  # split, or data of an evaluation -> digest of its rows
    asked: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)  # files that `evaluate` read
    seconds: float | None = None
    tree: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def fold(self) -> int | None:
        """The part of a cross-validation that it is scored on."""
        return fold_of(self.tree)

    @property
    def done(self) -> bool:
        """Whether its scores count."""
        return self.state == "done"

    def rows_digest(self, data: str) -> str:
        """The digest of the rows that it was scored on; blank where the run does not say."""
        task, split = task_and_split(data)
        return self.digests.get(data, self.digests.get(split, "") if task == self.task else "")

    def shared_rows(self, data: str) -> str:
        """The digest, where runs that can be compared have the same; each fold of a cross-validation has its own."""
        return "" if self.fold else self.rows_digest(data)

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
        gone = f"{counted(left, 'run')} {are(left)} no longer in the plan of {'its' if left == 1 else 'their'} sweep"
        remarks.append(f"{gone} and {are(left)} left out (--all includes {'it' if left == 1 else 'them'})")
    return with_short_paths(records), remarks


def with_short_paths(records: Sequence[Record]) -> list[Record]:
    """The records with each absolute path among their settings cut to its last part, or to so many parts as tell it
    from others: tables and pages are handed on, and say nothing of the machine that they were made on."""
    paths = {value for record in records for item in record.settings.values() for value in _paths_in(item)}
    tails = _unique_tails(paths)
    return [
        replace(record, settings={key: _with_tails(value, tails) for key, value in record.settings.items()})
        for record in records
    ]


def _paths_in(value: Any) -> list[str]:
    items = value if isinstance(value, list) else [value]
    return [item for item in items if isinstance(item, str) and item.startswith(("/", "~/")) and len(item) > 1]


def _unique_tails(paths: set[str]) -> dict[str, str]:
    tails = {}
    for path in paths:
        parts = PurePosixPath(path).parts
        others = [PurePosixPath(other).parts for other in paths if PurePosixPath(other).parts != parts]
        size = next((n for n in range(1, len(parts)) if all(parts[-n:] != other[-n:] for other in others)), len(parts))
        tails[path] = "/".join(parts[-size:]).removeprefix("//")
    return tails


def _with_tails(value: Any, tails: Mapping[str, str]) -> Any:
    if isinstance(value, list):
        return [_with_tails(item, tails) for item in value]
    return tails.get(value, value) if isinstance(value, str) else value


def _unseen(path: Path, spec: RunSpec, config: Mapping[str, Any]) -> Record:
    """A planned run that has no directory of its own."""
    task = task_name(config)
    return Record(path, *split_seed(config, task), task, *state_unseen(path), spec.variant, tree=config)


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
    variant = spec.variant if spec else None
    if problem:
        task = task_name(tree)
        return Record(run.path, *split_seed(tree, task), task, "damaged", problem, variant, tree=tree)
    info = {key: value for key, value in run.info().items() if value is not None}
    settings, seed = split_seed(tree, info.get("task", ""))
    state, why = state_of(run, info)
    digests = {split: str(about.get("digest")) for split, about in info.get("data", {}).items() if about}
    known = Record(run.path, settings, seed, info.get("task", ""), state, why, variant, digests=digests, tree=tree)
    return _with_scores(known, run, info) if known.done else known


def _tree(run: RunDir) -> dict[str, Any]:
    """config.yaml as data; refused if it is not the config of a run."""
    tree = yaml.read_text(run.config_text(), str(run.config)).tree
    if not isinstance(tree, dict):
        raise UserError(f"{run.config} is damaged: it is not a mapping of settings; {REMEDY}")
    json_schemas.require(tree, json_schemas.CONFIG, run.config, REMEDY)
    seed = tree.get("seed")
    parts = seed.values() if isinstance(seed, dict) else [seed]
    if not all(one is None or isinstance(one, int | str) for one in parts):
        raise UserError(f"{run.config} is damaged: seed is not a number; {REMEDY}")
    return tree


def task_name(tree: Mapping[str, Any]) -> str:
    """What the tasks of a config are called, without making them; empty for own code."""
    names = [_name_of_entry(entry) for entry in tree.get("tasks") or [{}]]
    return " + ".join(names) if all(names) else ""


def _name_of_entry(entry: Mapping[str, Any]) -> str:
    name = str(entry.get("name") or "")
    if "kind" not in entry:
        return name
    file = entry.get("train") or entry.get("dev") or entry.get("test") or ""
    return f"table/{name.removeprefix('table/') or Path(file).stem}" if entry["kind"] == "table" else ""


def split_seed(tree: Mapping[str, Any], task: str = "") -> tuple[dict[str, Any], int | str]:
    """The settings that make a configuration, and the seed: one number, or `1/2` where init and data differ.

    Folds of a cross-validation have a seed each, such as `1 fold 2`: what is over seeds elsewhere is over folds there.
    Among the settings is `tasks`: what the run was trained on, which need not be what it is scored on.
    """
    settings = {TASKS: task} if task else {}
    settings |= {
        key: value
        for key, value in flat(as_before(tree)).items()
        if not key.startswith(IGNORED) and not (key.startswith("tasks.") and key.endswith(IGNORED_OF_TASKS))
        if value is not None and value != {}
    }
    fold = fold_of(tree)
    part = "" if fold is None else f" fold {fold}"
    seed = tree.get("seed")
    if not isinstance(seed, Mapping):
        return settings, f"{seed or 0}{part}" if part else seed or 0
    init, data = seed.get("init", 1), seed.get("data", 1)
    for key in [key for key in settings if key.startswith("tasks.") and key.endswith(".subset")]:
        settings[key] = str(settings[key]).removesuffix(f"-seed-{data}")  # a curve has a selection for each seed
    told = init if init == data else f"{init}/{data}"
    return settings, f"{told}{part}" if part else told


def fold_of(tree: Mapping[str, Any]) -> int | None:
    """The fold that the config of a run leaves out of its training; None without a cross-validation."""
    found = (entry.get("fold") for entry in tree.get("tasks") or () if isinstance(entry, Mapping))
    return next((fold for fold in found if isinstance(fold, int)), None)


def state_of(run: RunDir, info: Mapping[str, Any]) -> tuple[str, str]:
    """How it ended. What a sweep gave up (pruned, timeout) is never final, even if it has scores."""
    ended = info.get("ended") or {}
    told = run.read_status()
    if run.is_done and told.get("state") not in ("pruned", "timeout"):
        return "done", ""
    if run.holder():
        return "running", ""
    state = told.get("state")
    if state in (None, "done", "running", "queued"):
        state = ended.get("state", "unfinished")
    return str(state), str(ended.get("error") or _last_line(told.get("error")))


def state_unseen(path: Path) -> tuple[str, str]:
    """Of a planned run that has no directory of its own: it waits, or it failed before it could make one."""
    told = RunDir(path).read_status()
    return str(told.get("state") or "queued"), _last_line(told.get("error"))


def _last_line(text: object) -> str:
    """What a sweep keeps are the last lines that a run wrote."""
    lines = [line for line in str(text or "").splitlines() if line.strip()]
    return lines[-1] if lines else ""


def _with_scores(record: Record, run: RunDir, info: Mapping[str, Any]) -> Record:
    result = {key: value for key, value in run.read_scores().items() if value is not None}
    scores, main, later = dict(result.get("scores", {})), dict(result.get("main", {})), run.evaluations()
    own = set(scores)
    for key, about in later.items():
        if about.get("scores") and about.get("main") and key not in scores:
            scores[key], main[key] = about["scores"], about["main"]
    if lost := next((key for key in scores if not main.get(key) or scores[key] is None), None):
        raise UserError(f"{run.scores} is damaged: {lost} has no scores, or no main metric; {REMEDY}")
    seconds, trouble = _seconds(run)
    notes = {key: (*_notes(result, key, info), *trouble) for key in scores}
    alarms = {key: _alarms(result, key, record.task) for key in scores}
    majority = {key: about for key, about in result.get("majority", {}).items() if isinstance(about, Mapping)}
    more = {"scores": scores, "main": main, "notes": notes, "alarms": alarms, "seconds": seconds}
    asked = {key: about for key, about in later.items() if isinstance(about.get("task"), dict) and key not in own}
    more["asked"] = {key: about["task"] for key, about in asked.items()}
    more["digests"] = {**record.digests, **{key: str(about.get("digest") or "") for key, about in asked.items()}}
    return Record(**{**vars(record), **more, "majority": majority})


def _notes(result: Mapping[str, Any], key: str, info: Mapping[str, Any]) -> tuple[str, ...]:
    task, split = task_and_split(key)
    notes, data = [], info.get("data", {})
    if result.get("chosen", {}).get("chosen_on") == split:
        notes.append(f"best on {split}, reported on {split}")
    if (chosen_on := result.get("thresholds", {}).get(task, {}).get("chosen_on")) == split:
        notes.append(f"threshold chosen on {chosen_on}, reported on {chosen_on}")
    for name in ("train", split):
        origin = data.get(name) or data.get(f"{task}:{name}", {})  # a run of several tasks names them
        notes += [f"{name} {origin[part]}" for part in ("part", "note") if origin.get(part)]
    notes += result.get("notes", [])
    notes += [one["text"] for one in info.get("notices", []) if one["text"].startswith(CONTINUED)]
    about = result.get("evaluations", {}).get(key, {})
    later = [str(about[part]) for part in ("part", "note", "seen") if about.get(part)]
    notes += [note for note in later if f"{split} {note}" not in notes]  # the run says the same of its own split
    return tuple(dict.fromkeys(notes))


def _alarms(result: Mapping[str, Any], key: str, task: str) -> tuple[str, ...]:
    """Those of this data set, those of the training, and those of a later evaluation."""
    others = tuple(f"{name}:" for name in task.split(" + "))
    mine = (key, f"{task_and_split(key)[0]}: ")
    own = [a for a in result.get("alarms", []) if a.startswith(mine) or not a.startswith(others)]
    return (*own, *result.get("evaluations", {}).get(key, {}).get("alarms", []))


def _seconds(run: RunDir) -> tuple[float | None, list[str]]:
    """The time of training, or why it is not known: the scores count all the same."""
    try:
        return run.seconds(TAIL), []
    except UserError:
        what = "damaged" if run.metrics_file.path.exists() else "missing"
        return None, [f"no training time: {run.metrics_file.path.name} is {what}"]
