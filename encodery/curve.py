"""Retraining curves: methods × fractions × seeds, every method beside random choice, 100 % trained once.

A curve is two sweeps with a choice between them. full/ holds the runs on everything, whose dynamics and embeddings the
selectors use; selections/ the chosen rows; parts/ the runs on parts. Run again = go on.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from encodery import files, yaml_reader
from encodery.curve_plan import Curve, Plan, load, spelled
from encodery.data.subset import META, share
from encodery.errors import RunFailed, Stopped
from encodery.evaluate import evaluate, keep_in_run
from encodery.on import asked
from encodery.paths import as_name
from encodery.progress import Progress
from encodery.report.curves import Curves, Point, write
from encodery.rundir import RunDir
from encodery.selection import choose, from_plain
from encodery.sweep.execute import execute
from encodery.sweep.plan import read_plan
from encodery.sweep.read import parse
from encodery.sweep.search import source
from encodery.sweep.spec import RunSpec

__all__ = ["Curve", "Plan", "load", "run", "spelled"]


# The runs


def run(plan: Plan, progress: Progress, executor: str = "local") -> Curves:
    """Everything that is not there yet; then tables and pictures."""
    plan.folder.mkdir(parents=True, exist_ok=True)
    write_base(plan)
    needs: set[str] = {need for one in plan.selectors.values() for need in one.needs}
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
    """The config that all runs share, with paths that hold from everywhere; scored once, unless evaluation chooses."""
    tree = plan.base.config.plain()
    for key in ("name", "init_from", "tokenizer"):
        path = plan.base.folder / str(tree["model"][key])
        if tree["model"][key] and path.exists():
            tree["model"][key] = str(path.resolve())
    if tree["train"]["select"] == "last" and tree["train"]["patience"] is None:
        tree["train"]["evaluate"] = "never"
    files.write_atomic(plan.folder / "base.yaml", yaml_reader.write(tree))


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
    for (name, seed), folder in chosen.items():
        for fraction in plan.curve.parts_of(name)[:-1]:
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
    needs = plan.selectors[name].needs
    plain: dict[str, Any] = {
        "selector": plan.curve.selectors[name],
        "seed": seed,
        "fraction": plan.curve.parts_of(name)[-2],  # the largest part that is not everything
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
            for fraction in plan.curve.parts_of(name):
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
