"""Run directories made by hand: everything a table reads, and nothing is trained."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from encodery.runs.directory import RunDir

GOLD = ["entailment", "neutral", "contradiction"]


def tree(task: str = "toy/nli", seed: int = 1, **settings: Any) -> dict[str, Any]:
    """A config as a run stores it, with dotted keys laid over it."""
    whole: dict[str, Any] = {
        "model": {"name": "some/encoder", "new": None, "init_from": None},
        "tasks": [{"name": task, "data": None, "weight": 1.0, "objective": {}}],
        "method": {"kind": "plain"},
        "optim": {"lr": 2e-05, "clip": 1.0},
        "train": {"epochs": 3.0, "batch_size": 32, "log": 10},
        "seed": {"init": seed, "data": seed},
        "data": None,
        "device": "auto",
    }
    for key, value in settings.items():
        at: Any = whole
        *steps, last = key.replace("__", ".").split(".")
        for step in steps:
            at = at[int(step)] if step.isdigit() else at.setdefault(step, {})
        at[last] = value
    return whole


def run(
    folder: Path,
    scores: Mapping[str, float] | float | None,
    task: str = "toy/nli",
    seed: int = 1,
    *,
    state: str | None = None,
    alarms: Sequence[str] = (),
    origins: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
    more: Mapping[str, Mapping[str, float]] | None = None,
    **settings: Any,
) -> Path:
    """A finished run with these scores on dev (accuracy, if one number); without scores one that ended in `state`."""
    made = RunDir.create(folder)
    made.write_config(json.dumps(config or tree(task, seed, **settings)))
    ended = {"state": state, "error": f"it was {state}"} if state else None
    made.update_info(task=task, ended=ended, data=origins or {"dev": {"digest": "d", "rows": 3}}, identity="0" * 64)
    if scores is None:
        return folder
    named = {"accuracy": scores} if isinstance(scores, float | int) else dict(scores)
    every = {f"{task}:dev": named} | {f"{task}:{split}": found for split, found in (more or {}).items()}
    main = {key: next(iter(found)) for key, found in every.items()}
    made.write_scores({"scores": every, "main": main, "majority": {}, "chosen": {}, "alarms": list(alarms)})
    for step in (10, 20):
        made.record(step, loss=1.0, seconds=0.5)
    made.mark_done()
    return folder


def seeds(folder: Path, values: Sequence[float], first: int = 1, **settings: Any) -> Path:
    """A folder with one run per seed."""
    for seed, value in enumerate(values, first):
        run(folder / f"seed-{seed}", value, seed=seed, **settings)
    return folder
