"""Retraining curves: methods × fractions × seeds, every method beside random choice, 100 % trained once.

A curve is two sweeps with a choice between them. full/ holds the runs on everything, whose dynamics and embeddings the
selectors use; selections/ the chosen rows; parts/ the runs on parts. Run again = go on.
"""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

from encodery import config, files, layers, yaml_reader
from encodery.check import options
from encodery.data.subset import META, share
from encodery.embed import EmbedOptions
from encodery.errors import RunFailed, Stopped, UserError
from encodery.evaluate import evaluate, keep_in_run
from encodery.layers import Layer, Place
from encodery.on import asked
from encodery.options import Options
from encodery.paths import as_name
from encodery.progress import Progress
from encodery.report.curves import Curves, Point, write
from encodery.rundir import RunDir
from encodery.schema import Config, Dynamics, percent
from encodery.selection import choose, from_plain, selector_of
from encodery.sweep.execute import execute
from encodery.sweep.file import Limits, Resources
from encodery.sweep.plan import read_plan
from encodery.sweep.read import parse
from encodery.sweep.search import source
from encodery.sweep.spec import RunSpec

Match = Literal["epochs", "updates"]
RANDOM = "random"


class Vectors(EmbedOptions):
    """Which vectors the selectors see."""

    model: str = "full"
    """full: the run on everything with the first seed; or a run, a model folder or a hub name."""


class Curve(Options):
    """Which curves; settings of the runs stand beside these keys, or in what the file extends."""

    methods: dict[str, dict[str, Any] | str] = {}
    """Name to selector ({kind: clusters, k: 512} or its name); random is always added."""
    fractions: list[float] | str = Field(default="0.1:1.0:0.1")
    """Parts of the training set: [0.1, 30%, 1.0], or first:last:step."""
    seeds: int | list[int] = 3
    """How many, or which."""
    match: list[Match] = ["epochs", "updates"]
    """epochs: smaller parts take fewer steps, as in the original; updates: all take as many steps as the whole set."""
    on: list[str] = []
    """Further data on which every run is evaluated, such as [hans, glue/mnli:dev_mismatched]."""
    embed: Vectors = Vectors()
    """Vectors for clusters, kcenter and facility."""
    dynamics: Dynamics = "train"
    """How the runs on everything record what el2n, cartography and their kin need, as train.dynamics says it."""
    scores: dict[str, Any] | None = None
    """Settings of runs of their own for the dynamics ({train.epochs: 1}), instead of the runs on everything."""
    score_seeds: int | None = Field(default=None, ge=1)
    """How many such runs; default: as many as there are seeds."""
    metric: str | None = None
    """Score that the curves show; default: the task's main one."""
    resources: Resources = Resources()
    """Where the runs run, as in a sweep."""
    limits: Limits = Limits()
    """When a run is given up, as in a sweep."""

    @field_validator("fractions", mode="before")
    @classmethod
    def _percents(cls, given: Any) -> Any:
        return [percent(one) for one in given] if isinstance(given, list) else given

    @property
    def parts(self) -> list[float]:
        """Fractions in order, 1 always among them."""
        found = spelled(self.fractions) if isinstance(self.fractions, str) else list(self.fractions)
        wrong = next((one for one in found if not 0 < one <= 1), None)
        if wrong is not None:
            raise UserError(f"fractions: {wrong:g} is not above 0 and at most 1; write 0.3 or 30%")
        return sorted({*found, 1.0})

    @property
    def seed_list(self) -> list[int]:
        """The seeds."""
        return list(range(1, self.seeds + 1)) if isinstance(self.seeds, int) else list(self.seeds)

    @property
    def selectors(self) -> dict[str, dict[str, Any]]:
        """Name to selector, random first."""
        given = {n: {"kind": one} if isinstance(one, str) else dict(one) for n, one in self.methods.items()}
        return {RANDOM: given.pop(RANDOM, {"kind": RANDOM}), **given}


def spelled(text: str) -> list[float]:
    """`0.1:1.0:0.1` as numbers, exactly."""
    try:
        first, last, step = (Fraction(part) for part in text.split(":"))
        if step <= 0:
            raise ValueError
    except (ValueError, ZeroDivisionError):
        raise UserError(f"fractions: {text!r} is not first:last:step, such as 0.1:1.0:0.1") from None
    return [float(first + i * step) for i in range(int((last - first) / step) + 1)]


@dataclass(frozen=True)
class Plan:
    """A checked curve: its options, the config of its runs, and how many steps each part takes."""

    curve: Curve
    base: config.Resolved
    folder: Path
    rows: int

    @property
    def steps(self) -> int:
        """Of a run on everything."""
        train = self.base.config.train
        return train.max_steps or math.ceil(self.per_epoch(self.rows) * train.epochs - 1e-9)

    def per_epoch(self, rows: int) -> int:
        """Steps of a pass over so many rows."""
        return -(-rows // self.base.config.train.batch_size)

    def steps_of(self, fraction: float, match: Match) -> int:
        """Of a run on a part: as many epochs, or as many steps."""
        if match == "updates" or fraction == 1.0:
            return self.steps
        passes = Fraction(self.steps, self.per_epoch(self.rows))
        return max(1, math.ceil(self.per_epoch(share(self.rows, fraction)) * passes - Fraction(1, 10**9)))

    def lines(self) -> Iterator[str]:
        """What will be trained, for people."""
        yield f"{self.rows:,} rows, batches of {self.base.config.train.batch_size}; 100 %: {self.steps:,} steps, once"
        for fraction in self.curve.parts[:-1]:
            found = ", ".join(f"{match}-matched {self.steps_of(fraction, match):,} steps" for match in self.curve.match)
            yield f"{100 * fraction:g} % = {share(self.rows, fraction):,} rows: {found}"


def load(file: str | Path, overrides: Sequence[str], folder: Path) -> Plan:
    """A curve file with the command line on top."""
    layer = layers.from_source(str(file), Path())
    for above in layers.from_overrides(overrides, Place("command line", Path.cwd())):
        layer.lay(above)
    ours = {key: value for key, value in layer.tree.items() if key not in Config.model_fields}
    curve = options(Curve, Layer(ours, layer.places))
    _ = curve.parts  # refuses what is no part
    for name, plain in curve.selectors.items():
        places = {("selector", *key[2:]): p for key, p in layer.places.items() if key[:2] == ("methods", name)}
        selector_of(plain, Layer({}, places))
    inner = Layer({key: value for key, value in layer.tree.items() if key in Config.model_fields}, layer.places)
    base = config.of_layer(inner, Path(file).resolve().parent, Path(file).stem)
    return Plan(curve, base, folder, rows_of(base))


def rows_of(base: config.Resolved) -> int:
    """Rows of the whole training set; what would make parts of it unclear is refused."""
    task, entry = base.tasks[0]
    if len(base.tasks) > 1 or not task.labelled:
        raise UserError("curve: one task with labels at a time")
    if base.config.train.holdout or entry.subset or entry.fraction != 1.0 or entry.count:
        raise UserError("curve: train.holdout, tasks.subset, fraction and count are for single runs; leave them away")
    return len(task.examples("train")) * (2 if entry.double_unordered else 1)


# The runs


def run(plan: Plan, progress: Progress, executor: str = "local") -> Curves:
    """Everything that is not there yet; then tables and pictures."""
    plan.folder.mkdir(parents=True, exist_ok=True)
    write_base(plan)
    needs = {need for one in _selectors(plan).values() for need in one.needs}
    full = sweep(plan, "full", {"fixed": _dynamics(plan, needs), "seeds": plan.curve.seed_list}, progress, executor)
    scored = full
    if plan.curve.scores is not None and needs & {"dynamics", "models"}:
        fixed = {"train.dynamics": plan.curve.dynamics, **plan.curve.scores}
        seeds = plan.curve.seed_list[: plan.curve.score_seeds]
        scored = sweep(plan, "scores", {"fixed": fixed, "seeds": seeds}, progress, executor)
    chosen = {
        (name, seed): select(plan, name, seed, full, scored, progress)
        for name in plan.curve.selectors
        for seed in plan.curve.seed_list
    }
    lines = list(part_lines(plan, chosen))
    parts = sweep(plan, "parts", {"zip": lines}, progress, executor) if lines else {}
    for path in [*full.values(), *parts.values()]:
        look(plan, path, progress)
    found = gather(plan, chosen, full, parts)
    write(plan.folder, found)
    return found


def write_base(plan: Plan) -> None:
    """The config that all runs share, with paths that hold from everywhere; evaluation at the end unless it chooses."""
    tree = plan.base.config.plain()
    for key in ("name", "init_from", "tokenizer"):
        path = plan.base.folder / str(tree["model"][key])
        if tree["model"][key] and path.exists():
            tree["model"][key] = str(path.resolve())
    if tree["train"]["select"] == "last" and tree["train"]["patience"] is None:
        tree["train"]["evaluate"] = "end"
    files.write_atomic(plan.folder / "base.yaml", yaml_reader.write(tree))


def _selectors(plan: Plan) -> dict[str, Any]:
    return {name: selector_of(plain, Layer()) for name, plain in plan.curve.selectors.items()}


def _dynamics(plan: Plan, needs: set[str]) -> dict[str, Any]:
    return {"train.dynamics": plan.curve.dynamics} if "dynamics" in needs and plan.curve.scores is None else {}


Runs = dict[Any, Path]


def sweep(plan: Plan, name: str, block: Mapping[str, Any], progress: Progress, executor: str) -> Runs:
    """A sweep in a folder of the curve; its runs by what they are: seed, or (seed, subset, fraction, steps)."""
    folder = plan.folder / name
    folder.mkdir(exist_ok=True)
    text = yaml_reader.write({"base": str((plan.folder / "base.yaml").resolve()), **block})
    file = parse(text, f"{plan.folder.name}/{name}", plan.folder, name)
    runs = source(file, folder, {"metric": file.sweep.metric.plain()})
    files.write_atomic(folder / "sweep.yaml", text)
    try:
        outcomes = execute(folder, runs, plan.curve.resources, plan.curve.limits, executor, progress)
    finally:
        runs.close()
    specs = {spec.id: spec for spec in read_plan(folder)}
    ended = [outcome for outcome in outcomes if outcome.id in specs]
    bad = [f"{specs[one.id].name} {one.state}: {one.error or ''}".rstrip() for one in ended if one.state != "done"]
    if any(one.state == "stopped" for one in ended):
        raise Stopped(f"{folder}: stopped; the same command goes on")
    if bad:
        raise RunFailed(f"{folder}: {len(bad)} runs are not done; run the same command again\n" + "\n".join(bad[:5]))
    return {key_of(spec): folder / spec.name for spec in specs.values()}


def key_of(spec: RunSpec) -> Any:
    """What a run is in the curve."""
    assert spec.config is not None
    entry, seed = spec.config["tasks"][0], spec.config["seed"]["data"]
    if entry["subset"] is None:
        return seed
    return seed, entry["subset"], entry["fraction"], spec.config["train"]["max_steps"]


def part_lines(plan: Plan, chosen: Mapping[tuple[str, int], Path]) -> Iterator[dict[str, Any]]:
    """One line of a sweep for each run on a part; equal ones once."""
    seen: set[tuple[Any, ...]] = set()
    for (_, seed), folder in chosen.items():
        for fraction in plan.curve.parts[:-1]:
            for match in plan.curve.match:
                key = (seed, str(folder), fraction, plan.steps_of(fraction, match))
                if key not in seen:
                    seen.add(key)
                    names = ("seed", "tasks.subset", "tasks.fraction", "train.max_steps")
                    yield dict(zip(names, key, strict=True))


# The choice


def select(plan: Plan, name: str, seed: int, full: Runs, scored: Runs, progress: Progress) -> Path:
    """The selection of a method and seed, from the folder or made now."""
    task, _ = plan.base.tasks[0]
    model = plan.curve.embed.model
    vectors = plan.curve.embed.plain() | {"model": str(full[plan.curve.seed_list[0]]) if model == "full" else model}
    needs = _selectors(plan)[name].needs
    plain: dict[str, Any] = {
        "selector": plan.curve.selectors[name],
        "seed": seed,
        "fraction": plan.curve.parts[-2:][0],  # the largest part that is not everything
        "embed": vectors if "embeddings" in needs else None,
        "runs": [str(path) for path in scored.values()] if {"dynamics", "models"} & set(needs) else [],
        "device": plan.base.config.device,
    }
    asking = from_plain(plain, task, plan.base.folder)
    folder = (plan.folder / "selections" / f"{as_name(name)}-seed-{seed}").resolve()
    key = hashlib.sha256(json.dumps([plain, made_of(plain), task.origin("train").digest]).encode()).hexdigest()
    if (folder / META).is_file() and files.read_json(folder / META).get("key") == key:
        return folder
    progress.say(f"choosing by {name}, seed {seed}")
    subset = choose(asking, progress.say)
    replace(subset, meta={**subset.meta, "key": key}).write(folder)
    return folder


def made_of(plain: Mapping[str, Any]) -> list[str]:
    """What stands for the runs that a selection is made of: their scores, which follow from their weights."""
    paths = [*plain["runs"], *([plain["embed"]["model"]] if plain["embed"] else [])]
    return [files.sha256(Path(path) / "scores.json") for path in paths if (Path(path) / "scores.json").is_file()]


# The scores


def look(plan: Plan, path: Path, progress: Progress) -> None:
    """Evaluate a finished run on what it was not evaluated on yet."""
    from encodery.classifier import open_classifier

    run = RunDir.open(path)
    known = run.read_scores()
    data = plan.base.config.data
    wanted = [one for text in plan.curve.on for one in asked(text, data, [run])]
    left = [one for one in wanted if one.key not in {**known["scores"], **known.get("evaluations", {})}]
    if not left:
        return
    model = open_classifier(path, plan.base.config.device)
    for one in left:
        progress.say(f"{path.name} on {one.key}")
        found = evaluate([model], one)
        keep_in_run(run, found)
        for sentence in found.alarms:
            progress.say(f"ALARM {path.name} on {one.key}: {sentence}")


def gather(plan: Plan, chosen: Mapping[tuple[str, int], Path], full: Runs, parts: Runs) -> Curves:
    """All scores, by method, match, fraction and seed."""
    points = []
    for (name, seed), folder in chosen.items():
        for match in plan.curve.match:
            for fraction in plan.curve.parts:
                steps = plan.steps_of(fraction, match)
                path = full[seed] if fraction == 1.0 else parts[seed, str(folder), fraction, steps]
                scores, alarms = scores_of(path)
                points.append(Point(name, match, fraction, seed, steps, share(plan.rows, fraction), scores, alarms))
    main = RunDir(full[plan.curve.seed_list[0]]).read_scores()["main"]
    metric = {key: plan.curve.metric or name for key, name in main.items()}
    return Curves(points, next(iter(metric)), metric, tuple(plan.lines()))


def scores_of(path: Path) -> tuple[dict[str, dict[str, float]], tuple[str, ...]]:
    """All scores of a run, also the later ones, and its alarms."""
    found = RunDir(path).read_scores()
    later = {key: about["scores"] for key, about in found.get("evaluations", {}).items() if about.get("scores")}
    told = [f"{key}: {one}" for key, about in found.get("evaluations", {}).items() for one in about.get("alarms", [])]
    return {**found["scores"], **later}, (*found.get("alarms", []), *told)
