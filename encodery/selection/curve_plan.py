"""What a curve trains: its options, the config of its runs, and everything that can be refused before the first step.

Methods × fractions × seeds, every method beside random choice, 100 % once; `curve.py` does it.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

from encodery.config import load as config_load
from encodery.config.layers import Layer
from encodery.config.own_code import Code
from encodery.config.schema import Dynamics, TrainOptions, percent
from encodery.core.options import Options
from encodery.core.text import counted
from encodery.data.embeddings import EmbedOptions
from encodery.data.subset import share
from encodery.errors import UserError
from encodery.inference.answer_head import form_of
from encodery.inference.evaluate import as_said
from encodery.inference.task_argument import resolve_split
from encodery.models import locate
from encodery.selection.select import selector_of
from encodery.selectors._clustering import ROWS_EACH
from encodery.selectors._dynamics import AfterEpoch
from encodery.selectors.base import Selector
from encodery.selectors.clusters import ByCluster
from encodery.sweep.sweep_file import Limits, Resources
from encodery.tasks import split_name
from encodery.tasks.base import Task

Match = Literal["epochs", "updates"]
RANDOM = "random"


class Vectors(EmbedOptions):
    """Embeddings for the selectors."""

    model: str = "full"
    """full: the run on the full training set with the first seed; or a run, a model folder or a hub name."""


class Curve(Options):
    """Which curves; settings of the runs stand beside these keys, or in what the file extends."""

    methods: dict[str, dict[str, Any] | str] = {}
    """Maps a name to a selector: {kind: clusters, k: 512}, or its kind alone. random is always added."""
    fractions: list[float] | str = Field(default="0.1:1.0:0.1")
    """Fractions of the training set: [0.1, 30%, 1.0], or first:last:step."""
    fewer: dict[str, list[float]] = {}
    """Methods to run at some of the fractions only, to save time: {kcenter: [0.1]}."""
    seeds: int | list[int] = 3
    """A number of seeds, or a list."""
    match: list[Match] = ["epochs", "updates"]
    """What runs have in common. epochs: smaller fractions train for fewer steps, as in the original study; updates: all
    train for as many steps as the full set."""
    on: list[str] = []
    """Additional data to evaluate every run on, such as [hans, glue/mnli:dev_mismatched]."""
    embed: Vectors = Vectors()
    """Embeddings for clusters, kcenter and facility."""
    dynamics: Dynamics = "eval"
    """How the runs on the full set record the logits that el2n, cartography and others use; values as in
    train.dynamics."""
    scores: dict[str, Any] | None = None
    """Settings of separate runs that record the dynamics, such as {train.epochs: 1}, instead of the runs on the full
    set."""
    score_seeds: int | None = Field(default=None, ge=1)
    """Number of such runs to average for a selection. Default: one, or with shared selections as many as there are
    seeds."""
    selections: Literal["per_seed", "shared"] = "per_seed"
    """per_seed: each seed selects with its own runs and embeddings, so that the bands include the variance of the
    selection; shared: all seeds use one selection, from the mean over the same runs and the embeddings of the first
    seed."""
    metric: str | None = None
    """Metric of the curves. Default: the task's main metric."""
    resources: Resources = Resources()
    """Devices for the runs, as in a sweep."""
    limits: Limits = Limits()
    """Timeouts and retries, as in a sweep."""

    @field_validator("fractions", mode="before")
    @classmethod
    def _percents(cls, given: Any) -> Any:
        return [percent(one) for one in given] if isinstance(given, list) else given

    @field_validator("fewer", mode="before")
    @classmethod
    def _percents_of_each(cls, given: Any) -> Any:
        each = given.items() if isinstance(given, dict) else ()
        return {name: cls._percents(parts) for name, parts in each} if each else given

    @field_validator("match", "on", mode="before")
    @classmethod
    def _one_or_more(cls, given: Any) -> Any:
        """One word is a list of one; `a,b` is what people type for [a, b]."""
        return given.split(",") if isinstance(given, str) else given

    @property
    def parts(self) -> list[float]:
        """Fractions in order, 1 always among them."""
        fractions = spelled(self.fractions) if isinstance(self.fractions, str) else list(self.fractions)
        wrong = next((one for one in fractions if not 0 < one <= 1), None)
        if wrong is not None:
            raise UserError(f"fractions: {wrong:g} is not above 0 and at most 1; write 0.3 or 30%")
        if not set(fractions) - {1.0}:
            raise UserError("fractions: there is none below 1, so nothing is chosen; write [0.1, 0.3] or 0.1:1.0:0.1")
        return sorted({*fractions, 1.0})

    def parts_of(self, method: str) -> list[float]:
        """The fractions at which a method is tried, 1 always among them."""
        return sorted({*self.fewer.get(method, self.parts), 1.0})

    @property
    def seed_list(self) -> list[int]:
        return list(range(1, self.seeds + 1)) if isinstance(self.seeds, int) else list(self.seeds)

    def score_seeds_of(self, seed: int) -> list[int]:
        """Seeds of the runs of `scores` that a seed chooses by."""
        if self.selections == "shared":
            return self.seed_list[: self.score_seeds]
        stride = max(self.seed_list) + 1  # so that no two seeds share a run
        return [seed + i * stride for i in range(self.score_seeds or 1)]

    @property
    def score_seed_list(self) -> list[int]:
        return list(dict.fromkeys(one for seed in self.seed_list for one in self.score_seeds_of(seed)))

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
    base: config_load.Resolved
    folder: Path
    rows: int
    selectors: Mapping[str, Selector]
    allow_code: bool = False

    @property
    def steps(self) -> int:
        """Of a run on everything."""
        return steps_of(self.base.config.train, self.rows)

    def per_epoch(self, rows: int) -> int:
        """Steps of a pass over so many rows."""
        return -(-rows // self.base.config.train.batch_size)

    @property
    def pool(self) -> int:
        """Examples that are chosen from: a pair that is trained on in both orders is one."""
        return self.rows // (2 if self.base.tasks[0][1].double_unordered else 1)

    def steps_of(self, fraction: float, match: Match) -> int:
        """Of a run on a part: as many epochs, or as many steps."""
        return self.steps if fraction == 1.0 else self.steps_for(share(self.pool, fraction), match)

    def steps_for(self, examples: int, match: Match) -> int:
        """Of a run on so many examples of the pool."""
        if match == "updates":
            return self.steps
        passes = Fraction(self.steps, self.per_epoch(self.rows))
        own = self.per_epoch(examples * self.rows // self.pool)
        return max(1, math.ceil(own * passes - Fraction(1, 10**9)))

    @property
    def needs(self) -> set[str]:
        """What the selectors look at."""
        return {need for one in self.selectors.values() for need in one.needs}

    @property
    def score_runs(self) -> list[int]:
        """Seeds of the runs of `scores`, where a selector needs such runs."""
        wanted = self.curve.scores is not None and self.needs & {"dynamics", "models"}
        return self.curve.score_seed_list if wanted else []

    def scored(self) -> TrainOptions:
        """Of the runs whose dynamics are looked at: runs of their own, or those on everything."""
        given = {"train.dynamics": self.curve.dynamics, **(self.curve.scores or {})}
        words = [f"{key}={json.dumps(value)}" for key, value in given.items()]
        return config_load.load(config_load.with_code_paths(self.base), words, allow_code=self.allow_code).config.train

    @property
    def runs(self) -> int:
        """How many at most: equal ones are trained once."""
        parts = sum(len(self.curve.parts_of(name)) - 1 for name in self.selectors)
        return len(self.curve.seed_list) * (1 + parts * len(self.curve.match)) + len(self.score_runs)

    def lines(self) -> Iterator[str]:
        """What will be trained, for people."""
        yield f"{self.rows:,} rows, batches of {self.base.config.train.batch_size}; 100 %: {self.steps:,} steps, once"
        for fraction in self.curve.parts[:-1]:
            found = ", ".join(f"{match}-matched {self.steps_of(fraction, match):,} steps" for match in self.curve.match)
            yield f"{100 * fraction:g} % = {share(self.pool, fraction):,} rows: {found}"
        if self.score_runs:
            each = len(self.curve.score_seeds_of(self.curve.seed_list[0]))
            yield f"{len(self.score_runs)} scoring runs, {each} for each selection"


def load(file: str | Path, overrides: Sequence[str], folder: Path, allow_code: bool = False) -> Plan:
    """A curve file with the command line on top."""
    curve, base, layer = config_load.load_around(Curve, file, overrides, allow_code)
    require_parts(curve)
    chosen, code = {}, Code(allow_code)
    for name, plain in curve.selectors.items():
        places = {("selector", *key[2:]): p for key, p in layer.places.items() if key[:2] == ("methods", name)}
        chosen[name] = selector_of(plain, Layer({}, places), base.folder, code)
    plan = Plan(curve, base, folder, rows_of(base), chosen, allow_code)
    require_rows(plan)
    require_data(plan)
    require_vectors(plan)
    require_dynamics(plan)
    return plan


def rows_of(base: config_load.Resolved) -> int:
    """Rows of the whole training set; what would make parts of it unclear is refused."""
    task, entry = base.tasks[0]
    if len(base.tasks) > 1 or not task.labelled:
        raise UserError("curve: needs exactly one labelled task")
    if base.config.train.holdout or entry.subset or entry.fraction != 1.0 or entry.count:
        raise UserError("curve: train.holdout, tasks.subset, fraction and count are for single runs; remove them")
    return len(task.examples("train")) * (2 if entry.double_unordered else 1)


def steps_of(train: TrainOptions, rows: int) -> int:
    """Of a run on so many rows."""
    return train.max_steps or math.ceil(-(-rows // train.batch_size) * train.epochs - 1e-9)


def looks_of(train: TrainOptions, rows: int) -> int:
    """How often a run will have looked at all of its rows."""
    steps, per_epoch = steps_of(train, rows), -(-rows // train.batch_size)
    if train.dynamics in (True, "train"):
        return steps // per_epoch
    every = str(train.dynamics).split()[0]
    return math.ceil(steps / (int(every) if every.isdigit() else per_epoch))


# What can be refused at once


def require_parts(curve: Curve) -> None:
    """Fractions that are parts, of methods that there are."""
    fractions = curve.parts
    for name, parts in curve.fewer.items():
        if name not in curve.selectors:
            raise UserError(f"fewer: there is no method {name}; there are {', '.join(curve.selectors)}")
        odd = [part for part in parts if part not in fractions]
        if odd or not set(parts) - {1.0}:
            listed = ", ".join(f"{part:g}" for part in fractions)
            raise UserError(f"fewer.{name}: {odd[0] if odd else parts}: give some of the fractions {listed}")


def require_rows(plan: Plan) -> None:
    """Every part has a row, and no method wants more clusters than there are rows."""
    if less := [part for part in plan.curve.parts if share(plan.pool, part) < 1]:
        raise UserError(f"fractions: {less[0]:g} of {plan.pool:,} rows is less than one row; leave it out")
    for name, selector in plan.selectors.items():
        if (
            not isinstance(selector, ByCluster)
            or selector.algorithm == "dbscan"
            or "k" not in selector.model_fields_set
        ):
            continue
        if selector.k > plan.pool:
            fewer = max(1, plan.pool // ROWS_EACH)
            raise UserError(
                f"methods.{name}.k: {selector.k} clusters of {plan.pool:,} rows; ask for fewer, such as {fewer}"
            )


def require_data(plan: Plan) -> None:
    """What every run is evaluated on: it must be here, and the runs' labels must fit it."""
    own = plan.base.tasks[0][0]
    for text in plan.curve.on:
        name, split = split_name(text)
        try:
            asking = [(own, split or "dev")] if name == own.name else resolve_split(text, plan.base.config.data)
        except UserError as error:
            raise UserError(f"on: {error}") from None
        for task, one in asking:
            if one not in task.splits() or not task.has(one):
                raise UserError(
                    f"on: {task.name}:{one} is not here; it has {', '.join(filter(task.has, task.splits()))}"
                )
            require_fit(own, task)


def require_fit(own: Task, task: Task) -> None:
    """A model of one task must be able to answer the other."""
    if not task.labelled or as_said(task, form_of(own), own.labels) is None:
        have = ", ".join(own.labels) or "numbers"
        raise UserError(f"on: models of {own.name} ({have}) do not answer {task.name} ({', '.join(task.labels)})")


def require_vectors(plan: Plan) -> None:
    """The model of the vectors, before everything else is trained; one of the hub is fetched now."""
    name = plan.curve.embed.model
    if name != "full" and any("embeddings" in one.needs for one in plan.selectors.values()):
        try:
            locate.resolve(name, near=plan.base.folder)
        except UserError as error:
            raise UserError(f"embed.model: {error}") from None


def require_dynamics(plan: Plan) -> None:
    """Selectors that look at dynamics need as many looks as they ask for."""
    asking = {name: one for name, one in plan.selectors.items() if "dynamics" in one.needs}
    if not asking:
        return
    train = plan.scored()
    looks, steps = looks_of(train, plan.rows), steps_of(train, plan.rows)
    late = [name for name, one in asking.items() if isinstance(one, AfterEpoch) and not one.during]
    if late and train.dynamics in (True, "train"):
        raise UserError(
            f"methods.{late[0]}: reads the logits after an epoch, but dynamics: train records them during the epoch, "
            f"with dropout; set dynamics: eval, or methods.{late[0]}.during: true"
        )
    whose = "the runs on the full set" if plan.curve.scores is None else "the scoring runs"
    for name, one in asking.items():
        wanted = one.records_needed
        if looks < wanted:
            raise UserError(
                f"methods.{name}: needs {counted(wanted, 'record')} of all rows, but {whose} give {looks}: {steps:,} "
                f"steps of {train.batch_size} rows, dynamics: {train.dynamics}; train longer, or set dynamics: "
                f'"{max(1, steps // wanted)} steps"'
            )
