"""From head importance to a ranking of candidates: correlations by seed, their intervals, and where chance decides."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from encodery.correlation import Kind, Numbers, correlations, resampled_means
from encodery.gradts.rules import ranked
from encodery.importance import SAME, Comparison, Importance, Norm, compare, flat, normalised
from encodery.report import stats
from encodery.report.task_choice import Candidate

DRAWS = 200  # of the bootstrap over examples
CHANCE = 0.05  # a neighbour that is ahead in more than so many draws is within noise

Heads = Mapping[int, Mapping[str, Importance]]  # seed → task → importance


@dataclass
class Correlations:
    """The correlations of all tasks, seed by seed; what was drawn for one task is kept."""

    heads: Heads
    kind: Kind
    norm: Norm

    def __post_init__(self) -> None:
        self.matrices: dict[int, Comparison] = {
            seed: compare(list(tasks.values()), self.kind, self.norm) for seed, tasks in self.heads.items()
        }
        self._drawn: dict[str, Numbers] = {}

    def between(self, first: str, second: str) -> dict[int, float]:
        """Of two tasks, by seed."""
        found = {}
        for seed, matrix in self.matrices.items():
            names = list(self.heads[seed])
            found[seed] = float(matrix.values[names.index(first), names.index(second)])
        return found

    def draws(self, primary: str, other: str) -> Numbers:
        """The correlation with examples drawn anew, again and again; first seed."""
        a, b = (self._means(name) for name in (primary, other))
        return np.diagonal(correlations(a, b, self.kind))

    def _means(self, name: str) -> Numbers:
        if name not in self._drawn:
            here = next(iter(self.heads.values()))[name]
            number = list(next(iter(self.heads.values()))).index(name)
            means = resampled_means(flat(here.instances), DRAWS, seed=number)
            self._drawn[name] = flat(normalised(means.reshape(DRAWS, *here.raw.shape), self.norm))
        return self._drawn[name]

    def ranking(self, primary: str, candidates: Sequence[str]) -> list[Candidate]:
        """The most alike first. The primary is never its own candidate."""
        values = {name: self.between(primary, name) for name in candidates if name != primary}
        order = ranked({name: stats.mean(list(by_seed.values())) for name, by_seed in values.items()})
        drawn = {name: self.draws(primary, name) for name in order}
        found = []
        for place, name in enumerate(order):
            low, high = np.quantile(drawn[name], [0.025, 0.975])
            after = order[place + 1 : place + 2]
            unsure = any(float(np.mean(drawn[name] <= drawn[other])) > CHANCE for other in after)
            found.append(Candidate(name, values[name], (float(low), float(high)), unsure))
        return found

    def stability(self) -> dict[str, float]:
        """How alike a task's own matrices of different seeds are; nothing where they began with other weights."""
        by_task: dict[str, list[Importance]] = {}
        for tasks in self.heads.values():
            for name, one in tasks.items():
                by_task.setdefault(name, []).append(one)
        found = {}
        for name, several in by_task.items():
            same = all(one.meta.get(key) == several[0].meta.get(key) for one in several for key in SAME)
            if len(several) > 1 and same:
                rows = flat(np.stack([one.matrix(self.norm) for one in several]))
                values = correlations(rows, rows, self.kind)
                found[name] = stats.mean([float(values[i, j]) for i, j in combinations(range(len(rows)), 2)])
        return found
