"""Retraining curves: methods × fractions × seeds, every method beside random choice, 100 % trained once.

A curve is two sweeps with a choice between them. full/ holds the runs on everything, whose dynamics and embeddings the
selectors use; selections/ the chosen rows; parts/ the runs on parts. Run again to resume.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from encodery.core import files
from encodery.core.files import as_name
from encodery.core.progress import Progress
from encodery.data.label_mix import labels_of, shares_of
from encodery.data.subset import META
from encodery.report.data_curves import Curves, Point, write
from encodery.runs.directory import RunDir
from encodery.runs.sweep_spec import RunSpec, read_plan
from encodery.selection import study
from encodery.selection.curve_parts import Chosen, Part, lines_of, parts_of, remarks
from encodery.selection.curve_plan import RANDOM, Curve, Plan, load, spelled
from encodery.selection.further_scores import FurtherScores
from encodery.selection.select import choose, from_plain
from encodery.sweep.execute import execute
from encodery.sweep.slots import find_slots
from encodery.sweep.sources import source
from encodery.tasks.forms.hans_figures import caution

__all__ = ["Curve", "Plan", "load", "run", "spelled"]


# The runs


def run(plan: Plan, progress: Progress, executor: str = "local") -> Curves:
    """Everything that is not there yet; then tables and pictures. A second command on the folder is refused."""
    with study.locked(plan.folder):
        return _made(plan, progress, executor)


def _made(plan: Plan, progress: Progress, executor: str) -> Curves:
    study.write_base(plan.base, plan.folder, "never")  # scored once, unless evaluation chooses
    seeds = plan.curve.seed_list
    full = sweep(plan, "full", {"fixed": _dynamics(plan), "seeds": seeds}, progress, executor)
    scored = {seed: [full[one] for one in (seeds if plan.curve.selections == "shared" else [seed])] for seed in seeds}
    if plan.curve.scores is not None and plan.score_runs:
        fixed = {"train.dynamics": plan.curve.dynamics, **plan.curve.scores}
        own = sweep(plan, "scores", {"fixed": fixed, "seeds": plan.score_runs}, progress, executor)
        scored = {seed: [own[one] for one in plan.curve.score_seeds_of(seed)] for seed in seeds}
    chosen = {
        (name, seed): select(plan, name, seed, full, scored, progress)
        for name in plan.curve.selectors
        for seed in seeds
    }
    parts = parts_of(plan, chosen)
    paths = train_parts(plan, parts, full, progress, executor)
    if plan.curve.on:
        # Beside a cluster's runs nothing is known of devices here but this process's own.
        slots = find_slots(plan.curve.resources) if executor == "local" else []
        further = FurtherScores(plan.curve.on, plan.base.config)
        further.of_all(list(dict.fromkeys([*full.values(), *paths.values()])), slots, progress)
    found = gather(plan, chosen, parts, full, paths)
    write(plan.folder, found)
    return found


def _dynamics(plan: Plan) -> dict[str, Any]:
    return {"train.dynamics": plan.curve.dynamics} if "dynamics" in plan.needs and plan.curve.scores is None else {}


Runs = dict[Any, Path]


def sweep(plan: Plan, name: str, block: Mapping[str, Any], progress: Progress, executor: str) -> Runs:
    """A sweep in a folder of the curve; its runs by what they are: seed, or (seed, subset, fraction, steps)."""
    folder = plan.folder / name
    file, text = study.sweep_of(plan.folder, name, dict(block))
    runs = source(file, folder, {"metric": file.sweep.metric.to_dict()}, plan.allow_code)
    files.write_atomic(folder / "sweep.yaml", text)
    try:
        outcomes = execute(folder, runs, plan.curve.resources, plan.curve.limits, executor, progress)
    finally:
        runs.close()
    specs = read_plan(folder)
    study.require_done(folder, specs, outcomes)
    return {key_of(spec): folder / spec.name for spec in specs}


def key_of(spec: RunSpec) -> Any:
    """What a run is in the curve."""
    assert spec.config is not None
    entry, seed = spec.config["tasks"][0], spec.config["seed"]["data"]
    if entry["subset"] is None:
        return seed
    return seed, entry["subset"], entry["fraction"], spec.config["train"]["max_steps"]


def train_parts(
    plan: Plan, parts: Sequence[Part], full: Runs, progress: Progress, executor: str
) -> dict[tuple[int, str, int], Path]:
    """The runs on parts, each training once; a part that is everything is the run on everything."""
    once = lines_of(parts)
    on_everything = {
        one.training: full[one.seed] for one in once if (one.taken.rows, one.steps) == (plan.pool, plan.steps)
    }
    left = [one for one in once if one.training not in on_everything]
    if not left:
        return on_everything
    ran = sweep(plan, "parts", {"zip": [one.line for one in left]}, progress, executor)
    return on_everything | {one.training: ran[tuple(one.line.values())] for one in left}


# The choice


def select(
    plan: Plan, name: str, seed: int, full: Runs, scored: Mapping[int, Sequence[Path]], progress: Progress
) -> Path:
    """The selection of a method and seed, from the folder or made now."""
    task, _ = plan.base.tasks[0]
    model, own = plan.curve.embed.model, plan.curve.selections == "per_seed"
    source = str(full[seed if own else plan.curve.seed_list[0]]) if model == "full" else model
    vectors = plan.curve.embed.to_dict() | {"model": source}
    needs = plan.selectors[name].needs
    parts = plan.curve.parts if name == RANDOM else plan.curve.parts_of(name)  # random stands beside all others
    plain: dict[str, Any] = {
        "selector": plan.curve.selectors[name],
        "seed": seed,
        "fraction": parts[-2],  # the largest part that is not everything
        "embed": vectors if "embeddings" in needs else None,
        "runs": [str(path) for path in scored[seed]] if {"dynamics", "models"} & set(needs) else [],
        "device": plan.base.config.device,
    }
    asking = from_plain(plain, task, plan.base.folder, plan.allow_code)
    folder = (plan.folder / "selections" / f"{as_name(name)}-seed-{seed}").resolve()
    own_code = [dict(asking.code)] if asking.code else []
    key = files.digest_text(json.dumps([plain, made_of(plain), task.origin("train").digest, *own_code]))
    if (folder / META).is_file() and files.read_json(folder / META).get("key") == key:
        return folder
    progress.say(f"choosing by {name}, seed {seed}")
    subset = choose(asking, progress.say)
    replace(subset, meta={**subset.meta, "key": key}).write(folder)
    return folder


def made_of(plain: Mapping[str, Any]) -> list[str]:
    """What stands for the runs that a selection is made of: their scores, which follow from their weights.

    Those of later evaluations do not count: the curve itself adds some (`on`), and would choose all again.
    """
    paths = [*plain["runs"], *([plain["embed"]["model"]] if plain["embed"] else [])]
    runs = [RunDir(path) for path in paths if RunDir(path).scores.is_file()]
    return [files.digest({k: v for k, v in run.read_scores().items() if k != "evaluations"}) for run in runs]


# The scores


def gather(
    plan: Plan, chosen: Chosen, parts: Sequence[Part], full: Runs, paths: Mapping[tuple[int, str, int], Path]
) -> Curves:
    """All scores, by method, match, fraction and seed."""
    points = []
    for one in parts:
        where = one.method, one.match, one.fraction, one.seed, one.steps, one.taken.rows
        points.append(Point(*where, *scores_of(paths[one.training]), one.taken.asked, one.taken.labels))
    mix = shares_of(labels_of(plan.base.tasks[0][0].examples("train")).values())
    for name, seed in chosen:
        scores = scores_of(full[seed])
        points += [
            Point(name, match, 1.0, seed, plan.steps, plan.pool, *scores, 1.0, mix) for match in plan.curve.match
        ]
    main = RunDir(full[plan.curve.seed_list[0]]).read_scores()["main"]
    metric = {key: plan.curve.metric or name for key, name in main.items()}
    cautions = {key: text for path in {*full.values(), *paths.values()} for key, text in cautions_of(path).items()}
    told = (*plan.lines(), *remarks(plan, parts), *notes_of(chosen))
    return Curves(points, next(iter(metric)), metric, told, cautions)


def notes_of(chosen: Chosen) -> list[str]:
    """What the selections say of themselves, each sentence of a method once."""
    metas = {name: files.read_json(folder / META) for (name, _), folder in chosen.items()}
    return list(dict.fromkeys(f"{name}: {note}" for name, meta in metas.items() for note in meta.get("notes", [])))


def cautions_of(path: Path) -> dict[str, str]:
    """What must stand beside the figures of a run's data."""
    run = RunDir(path)
    known = {key: about.get("note") for key, about in run.evaluations().items()}
    return {key: text for key, note in known.items() if (text := caution(note))}


def scores_of(path: Path) -> tuple[dict[str, dict[str, float]], tuple[str, ...]]:
    """All scores of a run, also the later ones, and its alarms."""
    run = RunDir(path)
    told = [f"{key}: {one}" for key, about in run.evaluations().items() for one in about.get("alarms", [])]
    return run.all_scores(), (*run.read_scores().get("alarms", []), *told)
