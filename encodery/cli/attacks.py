"""The part of `encodery evaluate` that attacks models."""

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

from encodery.errors import UserError

RADII = "0,0.1,0.3,1"
STEPS = 5


def require_complete(args: argparse.Namespace) -> None:
    """The options of an attack mean nothing without one, nor do some values."""
    given = [name for name in ("radius", "radius_scale", "attack_steps", "norm") if getattr(args, name) is not None]
    if given and not args.attack:
        raise UserError(f"--{given[0].replace('_', '-')} belongs to an attack; add --attack pgd")
    if args.attack_steps is not None and args.attack_steps < 1:
        raise UserError("--attack-steps: at least 1")
    if args.attack == "fgsm" and args.attack_steps not in (None, 1):
        raise UserError("--attack-steps: fgsm is one step; use --attack pgd for more")


def radii(text: str) -> list[float]:
    """`0,0.1,0.3,1`, smallest first."""
    try:
        found = sorted({float(word) for word in text.split(",")})
    except ValueError:
        found = []
    if not found or not all(0 <= radius < math.inf for radius in found):
        raise UserError(f"--radius: numbers of 0 or more are needed, such as {RADII}, not {text!r}")
    return found


def run(args: argparse.Namespace) -> int:
    """Attack every model on every split; keep and print."""
    from encodery.attack import Attack, require_labels, under_attack
    from encodery.classifier import open_classifier
    from encodery.on import asked
    from encodery.progress import Counting
    from encodery.report import attacks
    from encodery.rundir import RunDir

    runs = {path: RunDir.open(path) for path in args.models if Path(path, "run.json").is_file()}
    sizes = radii(args.radius or RADII)
    _require_places(args, list(runs.values()))
    steps = 1 if args.attack == "fgsm" else args.attack_steps or STEPS
    attack = Attack(args.attack, steps, args.norm or "l2", args.radius_scale or "absolute")
    own = list(runs.values())
    questions = [one for text in args.on for one in asked(text, args.data, own, allow_code=args.allow_code)]
    for one in questions:
        require_labels(one, one.task.examples(one.split))
    names = args.labels.split(",") if args.labels else None
    models = {path: open_classifier(path, args.device, labels=names, undecided=True) for path in args.models}
    printed: dict[str, Any] = {}
    for one in questions:
        rows = len(one.task.examples(one.split))
        about = {"data": one.key, "main": one.task.main_metric, "rows": rows, **_origin(one)}
        about |= {"attack": attack.kind, "steps": attack.steps, "norm": attack.norm}
        if attack.scale != "absolute":
            about["scale"] = attack.scale
        with Counting(one.key, rows * len(sizes) * len(models), args.quiet) as tick:
            found = {
                path: [level.plain() for level in under_attack(model, one, sizes, attack, args.head, tick)]
                for path, model in models.items()
            }
        pictures = _keep(args, runs, about, found)
        printed[one.key] = about | {"models": found}
        if not args.json:
            _print(about, attacks.table(found, one.task.main_metric), pictures, args.quiet)
    if args.json:
        print(json.dumps(printed, indent=1, ensure_ascii=False))
    return 0


def _origin(one: Any) -> dict[str, str]:
    """What must stand beside the figures: parts, and data that are not official."""
    origin = one.task.origin(one.split)
    return {key: value for key, value in (("part", origin.part), ("note", origin.note)) if value}


def _require_places(args: argparse.Namespace, runs: list[Any]) -> None:
    """What would be refused at the end is refused before the work."""
    from encodery.evaluate import require_folder, require_run

    if len(set(args.models)) < len(args.models):
        raise UserError("a model is named twice")
    if args.out:
        require_folder(Path(args.out))
        return
    for one in runs:
        require_run(one)


def _keep(args: argparse.Namespace, runs: dict[str, Any], about: dict[str, Any], found: dict[str, Any]) -> list[Path]:
    """All models together in the folder of -o, else each in its own run."""
    from encodery.report import attacks
    from encodery.rundir import RunDir

    if args.out:
        return [attacks.keep(RunDir(args.out), about, found)]
    pictures = []
    for path, one in runs.items():
        with one.lock():
            pictures.append(attacks.keep(one, about, {path: found[path]}))
    return pictures


def _print(about: dict[str, Any], table: str, pictures: list[Path], quiet: bool) -> None:
    from encodery.tasks._heuristics_report import caution

    if not quiet:
        for key in ("part", "note"):
            if key in about:
                print(f"WARNING {about['data']} {about[key]}", file=sys.stderr)
    unit = "mean token norm" if about["norm"] == "l2" else "mean token norm / √width"
    counted = f", in multiples of each model's {unit}" if "scale" in about else ""
    ascents = f", {about['steps']} steps" if about["attack"] != "fgsm" else ""
    label = about["data"] + caution(about.get("note"))
    print(f"{label}  {about['attack']}{ascents}, {about['norm']} radius per sequence{counted}\n\n{table}\n")
    for path in pictures:
        print(f"({path})")
