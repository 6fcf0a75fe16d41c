"""The parts of a curve: which rows each method really takes, which runs train them, and where they are drawn.

A selector may take fewer rows than it is asked for (centroid, whole, drop_right). Its point is then drawn at the share
it has, its epochs are counted over those rows, a set that repeats that of a smaller fraction is no further point, and
random choice is tried with as many rows.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from encodery.core.files import digest
from encodery.data.label_mix import labels_of, shares_of
from encodery.data.subset import Subset, share
from encodery.selection.curve_plan import RANDOM, Match, Plan
from encodery.selectors.clusters import ByCluster

Chosen = Mapping[tuple[str, int], Path]  # (method, seed) -> the folder of its selection


@dataclass(frozen=True)
class Taken:
    """The rows that a method takes with one seed at a fraction."""

    folder: Path
    asked: float
    rows: int
    digest: str  # of the set: equal sets are one training
    labels: Mapping[str, float]  # share of each label


@dataclass(frozen=True)
class Part:
    """One point of a curve below 100 %, with one seed."""

    method: str
    match: Match
    seed: int
    taken: Taken
    fraction: float  # where it is drawn: the share of the pool that it has, in the mean over seeds
    steps: int

    @property
    def training(self) -> tuple[int, str, int]:
        """What decides the weights: equal ones are trained once."""
        return self.seed, self.taken.digest, self.steps

    @property
    def line(self) -> dict[str, Any]:
        """As a line of a sweep."""
        taken = self.taken
        return {
            "seed": self.seed, "tasks.subset": str(taken.folder), "tasks.fraction": taken.asked,
            "train.max_steps": self.steps,
        }  # fmt: skip


@dataclass(frozen=True)
class Group:
    """A method at one fraction: what each seed takes."""

    method: str
    fraction: float
    taken: Mapping[int, Taken]


def parts_of(plan: Plan, chosen: Chosen) -> list[Part]:
    """All points below 100 %."""
    labels = labels_of(plan.base.tasks[0][0].examples("train"))
    groups = [group for name in plan.curve.selectors for group in groups_of(plan, name, chosen, labels)]
    known = {(group.method, group.fraction) for group in groups}
    for group in list(groups):
        if (RANDOM, group.fraction) not in known:  # a share that only a method that stopped short has
            known.add((RANDOM, group.fraction))
            groups.append(beside(plan, group, chosen, labels))
    return [
        Part(group.method, match, seed, taken, group.fraction, plan.steps_for(taken.rows, match))
        for group in groups
        for match in plan.curve.match
        for seed, taken in group.taken.items()
    ]


def groups_of(plan: Plan, method: str, chosen: Chosen, labels: Mapping[str, str]) -> Iterator[Group]:
    """A method's fractions, without those at which it takes the same rows as before."""
    whole = {seed: Subset.read(chosen[method, seed]) for seed in plan.curve.seed_list}
    before: list[str] = []
    for asked in plan.curve.parts_of(method)[:-1]:
        taken = {seed: taken_of(chosen[method, seed], one, asked, labels) for seed, one in whole.items()}
        sets = [one.digest for one in taken.values()]
        if sets != before:
            yield Group(method, drawn_at(plan, asked, list(taken.values())), taken)
        before = sets


def beside(plan: Plan, group: Group, chosen: Chosen, labels: Mapping[str, str]) -> Group:
    """Random choice of as many rows as a method took that stopped short."""
    taken = {}
    for seed, one in group.taken.items():
        folder = chosen[RANDOM, seed]
        taken[seed] = taken_of(folder, Subset.read(folder), one.rows / plan.pool, labels)
    return Group(RANDOM, group.fraction, taken)


def taken_of(folder: Path, whole: Subset, asked: float, labels: Mapping[str, str]) -> Taken:
    """The rows of a selection at a fraction."""
    part = whole.first(asked, None)
    weights = part.weights or [1.0] * len(part.ids)
    mix = shares_of(labels[id] for id in part.ids if id in labels)
    return Taken(folder, asked, len(part.ids), digest(sorted(zip(part.ids, weights, strict=True))), mix)


def drawn_at(plan: Plan, asked: float, taken: Sequence[Taken]) -> float:
    """The share of the pool that was taken, as the fraction of the file that has as many rows, if there is one."""
    for fraction in (asked, *plan.curve.parts):
        if all(one.rows == share(plan.pool, fraction) for one in taken):
            return fraction
    return sum(one.rows for one in taken) / len(taken) / plan.pool


def lines_of(parts: Sequence[Part]) -> list[Part]:
    """One of each training, in order."""
    return list({part.training: part for part in reversed(parts)}.values())[::-1]


# What a reader of the figures must know


def remarks(plan: Plan, parts: Sequence[Part]) -> Iterator[str]:
    """Sentences for the head of the tables."""
    short: dict[tuple[str, float], dict[int, int]] = {}
    for part in parts:
        if part.method != RANDOM and part.taken.rows < share(plan.pool, part.taken.asked):
            short.setdefault((part.method, part.fraction), {})[part.seed] = part.taken.rows
    for (method, fraction), rows in short.items():
        least, most = min(rows.values()), max(rows.values())
        count = f"{least:,}" if least == most else f"{least:,} to {most:,}"
        yield (
            f"{method} takes no more than {count} of {plan.pool:,} rows: it is drawn at {100 * fraction:.4g} %, beside "
            "as many random rows"
        )
    clusters = {name: one for name, one in plan.selectors.items() if isinstance(one, ByCluster)}
    sharing = [name for name, one in clusters.items() if one.order_within == "random"]
    if sharing:
        yield (
            f"{', '.join(sharing)} and random of one seed share their random draws: they have more rows in common than "
            "independent choices, and their difference varies less"
        )
    if plan.curve.selections == "shared":
        yield "all seeds share one selection: the spread over seeds does not include that of the selection"
