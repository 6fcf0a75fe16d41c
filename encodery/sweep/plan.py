"""From a sweep file to run specs: named by the hash of their content, each once, all points at the first seed first."""

import difflib
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from encodery.config.schema import interval
from encodery.core.files import as_name, check_name, digest_text
from encodery.core.text import counted
from encodery.core.yaml import Key
from encodery.errors import UserError
from encodery.runs.directory import RunDir
from encodery.runs.identity import earlier_identity, recognises
from encodery.runs.sweep_spec import RunSpec
from encodery.sweep import points
from encodery.sweep.points import FIRST, Variant
from encodery.sweep.resolve import Point, Resolver, Tree, near_key, with_model, with_seed
from encodery.sweep.sweep_file import Block, Stage, SweepFile
from encodery.tasks.forms.metric_table import METRICS, among, is_listed

if TYPE_CHECKING:
    from encodery.tasks.base import Task

_ID = 8  # hex digits
ON_THE_WAY = ("loss", "norm", "probe.", "method.")  # what a run records of training, besides its scores
_FOLDER = re.compile(r"([0-9a-f]{16}|[0-9a-f]{8})-.*")


@dataclass
class Exclusion:
    """An entry of exclude, and whether any run matches it."""

    values: Mapping[str, Any]
    where: str
    matches: bool = False

    @property
    def remark(self) -> str:
        """That it has no effect."""
        words = ", ".join(f"{key}: {value}" for key, value in self.values.items())
        return f"{self.where}: exclude: no run matches {{{words}}}"


def _equal(ids: Mapping[str, set[str]]) -> Iterator[str]:
    """Remarks on variants whose runs are those of an earlier variant."""
    for (first, earlier), (second, later) in itertools.combinations(ids.items(), 2):
        shared = len(earlier & later)
        if shared and earlier == later:
            yield f"{second} is equal to {first}: trained once"
        elif shared:
            yield f"{second} and {first} have {counted(shared, 'run')} in common: trained once"


@dataclass
class Planner:
    """Makes the run specs of a sweep. Folders of runs that are there already keep their names."""

    file: SweepFile
    folder: Path
    resolver: Resolver = field(default_factory=Resolver)
    left_out: dict[str, list[str]] = field(default_factory=dict)  # method → settings of others that it does not have
    remarks: list[str] = field(default_factory=list)  # on equal variants, and on exclusions without effect
    _compared: dict[str, None] = field(default_factory=dict)  # what early stopping compares, in the order of the points
    _full: dict[str, str] = field(default_factory=dict)  # id → whole hash
    _names: dict[str, str] = field(default_factory=dict)  # id → folder that is there
    _tasks: "dict[str, Sequence[Task]]" = field(default_factory=dict)  # id → its tasks
    _older: dict[tuple[type, ...], dict[str, str]] = field(default_factory=dict)  # by the tasks: identity → id

    def __post_init__(self) -> None:
        there = self.folder.iterdir() if self.folder.is_dir() else ()
        self._names = {m[1]: m[0] for path in there if path.is_dir() and (m := _FOLDER.fullmatch(path.name))}

    def specs(self) -> list[RunSpec]:
        """All runs, in the order in which they should start."""
        sweep = self.file.sweep
        if not sweep.stages:
            return list(self._block("main", sweep, (), {}))
        done: dict[str, list[RunSpec]] = {}
        for name in _in_order(sweep.stages, self.file):
            stage = sweep.stages[name]
            before = {needed: done[needed] for needed in stage.before}
            done[name] = list(self._block(name, stage, ("stages", name), before))
        return [spec for name in done for spec in done[name]]

    def identity(self, spec: RunSpec) -> str:
        """The whole hash of a run, which the run itself writes down too."""
        return self._full[spec.id]

    def main_metric(self, spec: RunSpec) -> str:
        """The headline of the task that a run is judged by."""
        return judged(self._tasks[spec.id], (spec.config or {})["tasks"])[0].main_metric

    @property
    def compared(self) -> str:
        """What early stopping compares: the metric as named, or the main metric of all runs."""
        return next(iter(self._compared))

    def done_in(self, spec: RunSpec, done: Mapping[str, Path]) -> Path | None:
        """The finished run that is this one, of those given by their identity; also one of an earlier version."""
        whole, tasks = self.identity(spec), self._tasks[spec.id]
        named = (path for path in done.values() if recognises(RunDir(path), whole, tasks))
        return done.get(whole) or next(named, None)

    def _adopted(self, full: str, tasks: "Sequence[Task]") -> str | None:
        """The id of this run's folder where an earlier version named it otherwise."""
        if full[:_ID] in self._names or full[: 2 * _ID] in self._names:
            return None
        kinds = tuple(map(type, tasks))
        if kinds not in self._older:
            self._older[kinds] = dict(self._identities(tasks))
        id = self._older[kinds].get(full)
        if id is not None:  # its own name for itself, which the runs of later stages were named by
            self._full[id] = str(RunDir(self.folder / self._names[id]).info()["identity"])
        return id

    def _identities(self, tasks: "Sequence[Task]") -> Iterator[tuple[str, str]]:
        """Identity, as it is reckoned now, to id: of the runs here that were named by an earlier version."""
        for id, name in self._names.items():
            run = RunDir(self.folder / name)
            if run.problem() is None and (found := earlier_identity(run, tasks)):
                yield found, id

    def trial(self, values: Mapping[str, Any]) -> list[RunSpec]:
        """The runs of one trial of a search, one for each seed."""
        space = self.file.sweep.search.space
        drawn = [
            one
            for key in space
            for one in points.chosen(key, values[key], self.file.location(("search", "space", key)))
        ]
        variant = Variant(None, (), (), (((tuple(drawn)),),), ())
        return list(self._runs("main", self.file.sweep, [variant], (), {}, vary=True))

    def _block(self, stage: str, block: Block, at: Key, before: Mapping[str, Sequence[RunSpec]]) -> Iterator[RunSpec]:
        blocks = points.variants(block, at, self.file, None if at else self.file.sweep.search)
        return self._runs(stage, block, blocks, at, before)

    def _runs(
        self,
        stage: str,
        block: Block,
        blocks: Sequence[Variant],
        at: Key,
        before: Mapping[str, Sequence[RunSpec]],
        vary: bool = False,
    ) -> Iterator[RunSpec]:
        keys = points.axis_keys(blocks)
        checked = self._points(block, blocks, at, keys)
        shown = keys if vary else _varying(checked, keys)
        excluded = self._excluded(block, at, {*keys, "seed", "variant"})
        seeds = [points.seeds(block, point.config["seed"]["init"]) for _, point in checked]
        seen: set[str] = set()
        ids: dict[str, set[str]] = {}  # of each variant
        for turn in range(max(map(len, seeds), default=0)):
            for (variant, point), mine in zip(checked, seeds, strict=True):
                seeded = with_seed(point, mine[turn] if block.seeds is not None else None)
                matching = [entry for entry in excluded if _matches(seeded.config, variant, entry.values)]
                for entry in matching:
                    entry.matches = True
                if matching:
                    continue
                for spec in self._specs(seeded, variant, shown, stage, before, at):
                    ids.setdefault(variant.name or "", set()).add(spec.id)
                    if spec.id not in seen:
                        seen.add(spec.id)
                        yield spec

        self.remarks += [*_equal(ids), *(entry.remark for entry in excluded if not entry.matches)]

    def _points(
        self, block: Block, blocks: Sequence[Variant], at: Key, keys: Sequence[str]
    ) -> list[tuple[Variant, Point]]:
        """Every point of every variant, checked."""
        sweep, file = self.file.sweep, self.file
        shared = points.settings(sweep.fixed, ("fixed",), file)
        own = points.settings(block.fixed, (*at, "fixed"), file) if at else ()
        kinds_vary = "method.kind" in keys or any(variant.sources for variant in blocks)
        checked = []
        for variant in blocks:
            sources = variant.sources or (*sweep.sources, *(block.sources if at else ()))
            axes = {one.key for factor in variant.axes for joint in factor for one in joint}
            constants = points.overlaid(shared, own, variant.settings)
            free = [one for one in constants if one.key not in axes or one in variant.settings]
            late = kinds_vary or bool(axes & set(FIRST))  # an axis decides which keys there are: it goes first
            ground = self.resolver.ground(sources, file.folder, () if late else free)
            for point in points.points(variant):
                settings = points.overlaid(free if late else (), point)
                checked.append((variant, self.resolver.point(ground, settings, kinds_vary)))
                self._check_steps(checked[-1][1])
                self._check_metric(checked[-1][1], at)
        self._check_dropped([point for _, point in checked])
        return checked

    def _check_dropped(self, checked: Sequence[Point]) -> None:
        """What one method has is left out for the others, but what no method has is a mistake."""
        for point in checked:
            keys = self.left_out.setdefault(str(point.config["method"]["kind"]), [])
            keys += [one.key for one in point.dropped if one.key not in keys]
        never = set.intersection(*({one.key for one in point.dropped} for point in checked)) if checked else set()
        for one in (one for point in checked for one in point.dropped):
            if one.key in never:
                near = near_key(one.key, self.left_out)
                raise UserError(f"{one.location.text}: {one.key}: no method of this sweep has this key{near}.")

    def notes(self) -> list[str]:
        """What a person should hear about a plan: settings that were left out, equal variants, idle exclusions."""
        left = [f"{kind} has no {', '.join(keys)}: left out there" for kind, keys in self.left_out.items() if keys]
        return left + self.remarks

    def _check_steps(self, point: Point) -> None:
        """Early stopping compares at equal steps, so there must be a score at each of them."""
        rule, train = self.file.sweep.early_stop, point.config["train"]
        if rule is None:
            return
        line = self.file.location(("early_stop",)).text
        name = self.file.sweep.metric.name or judged(point.tasks, point.config["tasks"])[0].main_metric
        self._compared[name] = None
        if len(self._compared) > 1:
            raise UserError(
                f"{line}: early_stop: the runs have different main metrics ({', '.join(self._compared)}); set the "
                "metric: {name: …} that it compares."
            )
        key = "log" if name.startswith("loss") else "evaluate"
        given = f"{train[key]} steps" if key == "log" else train[key]
        steps = interval(given, 1) if given.endswith(("step", "steps")) else interval("never", 1)
        if not steps.due(rule.unit):
            raise UserError(
                f"{line}: early_stop compares runs every {rule.unit} steps, but "
                f"train.{key} is '{train[key]}': set it to a number of steps that divides {rule.unit}."
            )

    def _check_metric(self, point: Point, at: Key) -> None:
        """A metric that the task does not have would be missed only after the first run."""
        metric, stages = self.file.sweep.metric, self.file.sweep.stages
        if metric.name is None or (at and any(at[1] in stage.before for stage in stages.values())):
            return
        on_the_way = metric.at != "last" or self.file.sweep.early_stop is not None
        if on_the_way and metric.name.startswith(ON_THE_WAY):
            return
        task, entry = judged(point.tasks, point.config["tasks"])
        metrics = self.resolver.metric_names(task, entry["objective"].get("kind"))
        if metrics and among(metric.name, metrics) not in metrics and not _of_readouts(metric.name, task):
            near = difflib.get_close_matches(metric.name, metrics, n=1, cutoff=0.6)
            hint = f" Did you mean {near[0]}?" if near else ""
            place = self.file.location(("metric", "name")).text
            raise UserError(
                f"{place}: metric.name: {task.name} has no {metric.name}.{hint} It has {', '.join(metrics)}."
            )

    def _excluded(self, block: Block, at: Key, keys: set[str]) -> list["Exclusion"]:
        entries = []
        for i, entry in enumerate(block.exclude):
            ones = points.settings(entry, (*at, "exclude", i), self.file)
            for one in ones:
                if one.key not in keys:
                    raise UserError(f"{one.location.text}: exclude: {one.key} does not vary in this sweep.")
            place = self.file.location((*at, "exclude", i)).text
            entries.append(Exclusion({one.key: one.value for one in ones}, place))
        return entries

    def _specs(
        self,
        point: Point,
        variant: Variant,
        keys: Sequence[str],
        stage: str,
        before: Mapping[str, Sequence[RunSpec]],
        at: Key,
    ) -> Iterator[RunSpec]:
        """One run, or one for each run of the stage that it starts from."""
        named = point.stages()
        for key, other in named.items():
            if other not in before:
                place = self.file.location(at).text
                raise UserError(f"{place}: model.{key}: stage:{other} is not among the stages that {stage} needs.")
        digests = self.resolver.digests(point)
        others = list(dict.fromkeys(named.values()))
        waits = [spec.id for name, specs in before.items() if name not in others for spec in specs]
        for chosen in itertools.product(*(before[other] for other in others)):
            runs = {key: chosen[others.index(other)] for key, other in named.items()}
            config = with_model(point, {key: str((self.folder / run.name).resolve()) for key, run in runs.items()})
            known = digests | {f"model.{key}": f"run:{self._full[run.id]}" for key, run in runs.items()}
            axes = axes_of(config, keys) | {f"model.{key}": run.name for key, run in runs.items()}
            full = self.resolver.identity(config, point.tasks, known)
            id = self._adopted(full, point.tasks) or short(full, self._full)
            self._tasks[id] = point.tasks
            needs = tuple(dict.fromkeys([*(run.id for run in chosen), *waits]))
            name = self._names.get(id) or name_of(id, stage, variant.name, axes)
            yield RunSpec(id, name, config, None, axes, variant.name, stage, needs, self.resolver.code.allowed)


def judged(tasks: "Sequence[Task]", entries: Sequence[Tree]) -> "tuple[Task, Tree]":
    """The task whose score counts for the sweep: the first that is scored at the end."""
    pairs = list(zip(tasks, entries, strict=True))
    return next((pair for pair in pairs if pair[1].get("evaluate_on") != []), pairs[0])


def short(full: str, taken: dict[str, str]) -> str:
    """The first digits of a hash; in the rare case that another run has them too, more."""
    id = full[:_ID]
    if taken.setdefault(id, full) != full:
        id = full[: 2 * _ID]
        taken[id] = full
    return id


def _of_readouts(name: str, task: "Task") -> bool:
    """`mlm_loss_4`: which layers AMOS reads out is known to its objective alone."""
    return not task.labelled and name not in METRICS and is_listed(name)


def _in_order(stages: Mapping[str, Stage], file: SweepFile) -> list[str]:
    """Stages after those that they need."""
    done: list[str] = []
    while len(done) < len(stages):
        ready = [name for name, stage in stages.items() if name not in done and set(stage.before) <= set(done)]
        if not ready:
            name, stage = next((n, s) for n, s in stages.items() if n not in done)
            missing = [needed for needed in stage.before if needed not in stages]
            what = f"there is no stage {missing[0]}" if missing else "the stages depend on each other in a cycle"
            raise UserError(f"{file.location(('stages', name, 'needs')).text}: stages.{name}.needs: {what}.")
        done += ready
    return done


def lookup(config: Tree, key: str) -> Any:
    """The value at a dotted key of a config; `tasks` is the names, `tasks.x` the one task's x, `seed` the seed."""
    if key == "seed":
        return config["seed"]["init"]
    if key == "tasks":
        return "+".join(str(entry.get("name") or entry.get("kind")) for entry in config["tasks"])
    at: Any = config
    for step in key.split("."):
        at = at[0] if isinstance(at, list) and len(at) == 1 and not step.isdigit() else at
        if isinstance(at, list) and step.isdigit() and int(step) < len(at):
            at = at[int(step)]
        elif isinstance(at, dict):
            at = at.get(step)
        else:
            return None
    return at


def _varying(found: Sequence[tuple[Variant, Point]], keys: Sequence[str]) -> list[str]:
    values = {key: {json.dumps(lookup(point.config, key)) for _, point in found} for key in keys}
    return [key for key in keys if len(values[key]) > 1]


def axes_of(config: Tree, keys: Sequence[str]) -> dict[str, Any]:
    """What is particular about a run: the values of the keys that vary, and the seed."""
    found = {key: lookup(config, key) for key in keys if key != "seed"}
    return {key: value for key, value in found.items() if value is not None} | {"seed": lookup(config, "seed")}


def _matches(config: Tree, variant: Variant, entry: Mapping[str, Any]) -> bool:
    return all((variant.name if key == "variant" else lookup(config, key)) == value for key, value in entry.items())


def name_of(id: str, stage: str, variant: str | None, axes: Mapping[str, Any]) -> str:
    """A folder name that says what is particular about the run: letters, digits, `.`, `_` and `-` only."""
    words = [id, *([stage] if stage != "main" else []), *([variant] if variant else [])]
    for key, value in axes.items():
        text = value if isinstance(value, str) else json.dumps(value).replace("e+", "e")  # a name has no plus sign
        start = earlier_run(key, value)
        named = "-".join(Path(part).name for part in text.split("+")) if "/" in text else text  # several tasks: a+b
        words.append(f"from-{start}" if start else f"{key.rpartition('.')[2]}-{named}")
    return check_name(as_name("-".join(words))[:100].rstrip("-."))


def earlier_run(key: str, value: Any) -> str | None:
    """The id of the run of an earlier stage, where an axis names one."""
    match = _FOLDER.fullmatch(value) if key.startswith("model.") and isinstance(value, str) else None
    return match[1] if match else None


def commands(path: Path) -> list[RunSpec]:
    """One run for each line of a file with shell commands; empty lines and those with # in front do not count."""
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read ({error}).") from None
    by_line: dict[str, RunSpec] = {}
    taken: dict[str, str] = {}
    for line in lines:
        if line and not line.startswith("#"):
            id = short(digest_text(line), taken)
            by_line.setdefault(line, RunSpec(id, check_name(f"{id}-{as_name(line)}"[:60].rstrip("-.")), command=line))
    if not by_line:
        raise UserError(f"{path}: it contains no commands.")
    return list(by_line.values())
