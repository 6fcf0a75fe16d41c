"""A checked study: its options, its tasks, and what will be trained."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from encodery.config import load as config_load
from encodery.core.text import counted
from encodery.errors import UserError
from encodery.gradts.config import GradTS
from encodery.tasks.base import Task
from encodery.tasks.forms.metric_table import metric


@dataclass(frozen=True)
class Plan:
    """A checked study."""

    gradts: GradTS
    base: config_load.Resolved
    folder: Path
    allow_code: bool = False

    @cached_property
    def tasks(self) -> dict[str, Task]:
        """All tasks by name."""
        return {task.name: task for task, _ in self.base.tasks}

    @property
    def primaries(self) -> list[str]:
        """The tasks that should become better."""
        given = self.gradts.primary
        return list(self.tasks) if given == "all" else [given] if isinstance(given, str) else list(given)

    def candidates(self, primary: str) -> list[str]:
        return [name for name in self.tasks if name != primary]

    def metric(self, primary: str) -> str | None:
        """The score that decides, where one is named."""
        given = self.gradts.metric
        return given.get(primary) if isinstance(given, dict) else given

    @property
    def shares_runs(self) -> bool:
        """Whether one training of a set of tasks serves all its primaries: not where the mix treats the first task in
        another way, nor where patience ends a training by one task's scores, nor where each task needs weights of its
        own best step and adapters allow one merge."""
        return not self.why_apart

    @property
    def why_apart(self) -> str:
        """Why primaries cannot share a training of the same tasks; nothing where they can."""
        config, mix = self.base.config, cast(Any, self.base.mix)
        if config.train.patience is not None:
            return "train.patience ends each by its primary's scores"
        if config.train.select != "last" and config.model.tune == "lora":
            return "train.select chooses weights for its primary, and adapters are merged once"
        return "mix treats the first task in another way" if mix.has_main else ""

    @property
    def importance_cost(self) -> str:
        """What the ranking costs in trainings."""
        options, tasks, seeds = self.gradts, len(self.tasks), len(self.gradts.seed_list)
        wanted = options.importance_seeds
        line = f"{tasks * wanted} fine-tuning runs, whose heads are measured by {options.importance.estimator} "
        line += f"({counted(tasks, 'task')} × {counted(wanted, 'seed')}; importance_seeds: 1 costs {tasks}"
        if options.finetune:
            return f"{line}); the single-task runs have other settings and are additional"
        also = len(self.primaries) * min(wanted, seeds)
        return f"{line}); {also} of them are also the single-task runs"

    def lines(self) -> Iterator[str]:
        """What will be trained, for people."""
        options, tasks, seeds = self.gradts, len(self.tasks), len(self.gradts.seed_list)
        yield f"{counted(tasks, 'task')}: {', '.join(self.tasks)}"
        others = ", ".join(name for name in options.strategies if name != options.strategy)
        beside = f", beside {others}" if others else ""
        yield f"for {', '.join(self.primaries)}: {options.strategy}{beside}; {counted(seeds, 'seed')}"
        if options.ranks:
            yield self.importance_cost
        if {"trial", "fg"} & set(options.strategies):
            least, most = (len(self.primaries) * seeds * min(count, tasks - 1) for count in (2, tasks - 1))
            count = counted(most, "trial") if least == most else f"{least} to {most} trials"
            yield f"{count} (the primary with the first 1, 2, … candidates)"
        if "autosem" in options.strategies:
            bandit = options.autosem
            yield f"{len(self.primaries)} × {bandit.rounds} rounds of {bandit.steps} steps for autosem"
        once = "all" in options.strategies and self.shares_runs
        most = seeds * (len(self.primaries) * (len(options.strategies) - once) + once)
        yield f"at most {most} final training runs; identical ones are trained once" + (
            ", for whichever primary" if self.shares_runs else " for each primary: " + self.why_apart
        )


def load(file: str | Path, overrides: Sequence[str], folder: Path, allow_code: bool = False) -> Plan:
    """A study's file with the command line on top."""
    chosen, base, _ = config_load.load_around(GradTS, file, overrides, allow_code)
    plan = Plan(chosen, base, folder, allow_code)
    require_sound(plan)
    return plan


def require_sound(plan: Plan) -> None:
    """What could only fail after hours is refused now."""
    options, names = plan.gradts, list(plan.tasks)
    if len(names) < len(plan.base.tasks):
        raise UserError(f"tasks: every task needs a name of its own; there are {', '.join(names)}")
    unknown = [name for name in plan.primaries if name not in names]
    if unknown:
        raise UserError(f"primary: {unknown[0]} is not among the tasks ({', '.join(names)})")
    if len(names) < 2:
        raise UserError("tasks: a task selection needs the primary task and at least one candidate")
    plain = [name for name, task in plan.tasks.items() if not task.labelled]
    if plain:
        raise UserError(f"tasks: {plain[0]} is plain text; only tasks with labels can be chosen")
    if "fg" in options.strategies:
        if options.fg_threshold is None and options.keep_fraction is None:
            raise UserError("fg: give fg_threshold (0.40 to 0.62 as released) or keep_fraction; none fits all encoders")
        cut = [e["name"] for e in plan.base.config.tasks if e.get("subset") or e.get("count") or e["fraction"] != 1.0]
        if cut:
            raise UserError(f"fg: selects rows itself; remove subset, count and fraction from {cut[0]}")
    named = [options.metric] if isinstance(options.metric, str) else list((options.metric or {}).values())
    require_direction(named)


def require_direction(named: Sequence[str]) -> None:
    """A study asks which tasks raise a score."""
    for name in named:
        if (better := metric(name).better) != "higher":
            what = "better when lower" if better == "lower" else "neither better when higher nor when lower"
            raise UserError(f"metric: {name} is {what}; choose one that is better when higher")


def require_metrics(plan: Plan) -> None:
    """A score that a task does not have would be missed only after all its trainings."""
    for name in plan.primaries:
        task, wanted = plan.tasks[name], plan.metric(name)
        known = task.metric_names() if wanted is not None else ()
        if known and wanted not in known:
            raise UserError(f"metric: {name} has no {wanted}; it has {', '.join(known)}")
