"""The trainings of a study: sweeps in its folder. What is done anywhere with the same content is not trained again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from encodery.config.load import Resolved, with_code_paths
from encodery.config.own_code import Code
from encodery.core import files
from encodery.core.progress import Progress
from encodery.errors import RunFailed
from encodery.gradts.config import GradTS
from encodery.runs.directory import RunDir, find_runs, task_and_split
from encodery.runs.metrics_log import MetricsFile
from encodery.runs.sweep_spec import PLAN, write_plan
from encodery.selection import study
from encodery.sweep.execute import execute
from encodery.sweep.fixed_plan import FixedPlan
from encodery.sweep.plan import Planner
from encodery.sweep.resolve import Resolver


@dataclass(frozen=True)
class Training:
    """A run of a study: its tasks, each with the rows it is cut down to, or None, and those that are scored.

    Where the first task is the primary alone, `train.select_on` goes by it. Where several primaries share the run, all
    of them are scored, each with its own best weights if a checkpoint is chosen.
    """

    tasks: tuple[tuple[str, str | None], ...]
    seed: int
    scored: tuple[str, ...]
    fine_tuning: bool = False  # one of the runs whose heads are measured, with settings of their own


class Runner:
    """Trains what is asked for, in sweeps, and says where each run lies."""

    def __init__(
        self, base: Resolved, options: GradTS, folder: Path, progress: Progress, executor: str, allow_code: bool = False
    ):
        self.options, self.folder, self.progress, self.executor = options, folder, progress, executor
        self.allow_code = allow_code
        entries = with_code_paths(base)["tasks"]
        self.entries = {task.name: plain for (task, _), plain in zip(base.tasks, entries, strict=True)}
        train = base.config.train
        self.base, self.select = base, train.select
        self.chooses = train.select != "last" or train.patience is not None
        self.asked: dict[str, list[Training]] = {}

    def begin(self) -> None:
        """Write what all runs begin with."""
        quiet = "end" if self.base.config.train.holdout else "never"  # scored on the way only if that chooses
        study.write_base(self.base, self.folder, quiet if self.options.rule == "sound" else None)

    def run(self, stage: str, wanted: Sequence[Training]) -> dict[Training, Path]:
        """All of these, and where they lie; a stage that is asked again keeps what it had."""
        lines = list(dict.fromkeys([*self.asked.get(stage, []), *wanted]))
        self.asked[stage] = lines
        folder = self.folder / stage
        file, text = study.sweep_of(self.folder, stage, {"zip": list(map(self.line, lines))})
        planner = Planner(file, folder, Resolver(Code(self.allow_code)))
        specs = planner.specs()
        if len(specs) != len(lines):
            raise RuntimeError(f"{folder}: {len(lines)} settings became {len(specs)} runs")
        done = self.done_elsewhere(folder)
        finished = {spec.id: path for spec in specs if (path := planner.done_in(spec, done))}
        left = [spec for spec in specs if spec.id not in finished]
        files.write_atomic(folder / "sweep.yaml", text)
        write_plan(folder, left, {"metric": {}})
        if left:
            options = self.options
            plan = FixedPlan(left)
            outcomes = execute(folder, plan, options.resources, options.limits, self.executor, self.progress)
            study.require_done(folder, left, outcomes)
        paths = (finished.get(spec.id) or folder / spec.name for spec in specs)
        return dict(zip(lines, paths, strict=True))

    def line(self, training: Training) -> dict[str, Any]:
        """One line of a sweep. Only primaries are evaluated, which is what a study goes by."""
        entries = []
        for name, subset in training.tasks:
            entry = dict(self.entries[name])
            entry |= {"subset": subset} if subset else {}
            entry |= {} if name in training.scored else {"evaluate_on": []}
            entries.append(entry)
        more = dict(self.options.finetune) if training.fine_tuning else {}
        if self.chooses:
            more["train.select_on"] = training.scored[0]
            more["train.select"] = "each" if len(training.scored) > 1 else self.select
        return {"tasks": entries, "seed": training.seed, **more}

    def done_elsewhere(self, folder: Path) -> dict[str, Path]:
        """Finished runs by their identity: of the other stages, and of the folders that `reuse` names."""
        places = [other for other in self.folder.iterdir() if other.is_dir() and other.resolve() != folder.resolve()]
        places = [place for place in places if (place / PLAN).is_file()]
        by_identity: dict[str, Path] = {}
        for one in find_runs(*places, *(Path(one) for one in self.options.reuse)):
            if one.problem is None and one.run.is_done and "identity" in (info := one.run.info()):
                by_identity.setdefault(str(info["identity"]), one.run.path)
        return by_identity


# What a run says


def scores_of(path: Path, task: str) -> dict[str, float]:
    """The scores of one of a run's tasks, on the first of its splits."""
    scores: Mapping[str, Mapping[str, float]] = RunDir(path).read_scores()["scores"]
    key = next((key for key in scores if task_and_split(key)[0] == task), None)
    if key is None:
        raise RunFailed(f"{path}: has no scores of {task}; it has {', '.join(scores) or 'none'}")
    return dict(scores[key])


def main_metric(path: Path, task: str) -> str:
    """The headline of a task in a run."""
    main: Mapping[str, str] = RunDir(path).read_scores()["main"]
    return next(name for key, name in main.items() if task_and_split(key)[0] == task)


def on_the_way(path: Path, task: str) -> list[dict[str, float]]:
    """What a run recorded of a task's scores while it was trained, evaluation by evaluation."""
    evaluations = []
    for record in MetricsFile(path / "metrics.jsonl").read():
        scores = {key.removeprefix("eval."): value for key, value in record.items() if key.startswith("eval.")}
        if "split" in record and record.get("task", task) == task and scores:
            evaluations.append({"step": record["step"], **scores})
    if not evaluations:
        raise RunFailed(f"{path}: recorded no scores of {task} during training; set train.evaluate to 1 epoch")
    return evaluations


def chosen_step(path: Path, task: str) -> int:
    """The step whose weights a run reports of a task."""
    chosen: Mapping[str, Any] = RunDir(path).read_scores()["chosen"]
    own = chosen.get("best_of", {}).get(task) if chosen.get("select") == "each" else None
    return int((own or chosen)["step"])
