"""A selector puts the examples of a pool in an order; the first ones are the best to train on.

The pool is in an order of its own, which depends on the ids alone, so that a selection does not change when somebody
shuffles the file. Ties are broken by draws from (seed, id).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from encodery.core.options import Options
from encodery.data import rng
from encodery.data.out_of_fold import OutOfFold
from encodery.data.provenance import UNKNOWN, Provenance
from encodery.data.row_dynamics import Dynamics
from encodery.errors import UserError
from encodery.tasks.base import Example

Need = Literal["embeddings", "dynamics", "models", "predictions"]
Numbers = np.ndarray


def id_hash(ids: Sequence[str]) -> np.ndarray:
    """64 bits of each id."""
    return np.array([int.from_bytes(blake2b(id.encode(), digest_size=8).digest(), "big") for id in ids], np.uint64)


class Pool:
    """What is chosen from, in the order of the ids' hashes."""

    def __init__(
        self,
        examples: Sequence[Example],
        labels: Sequence[str] = (),
        seed: int = 1,
        vectors: Callable[[], tuple[Sequence[str], np.ndarray]] | None = None,
        dynamics: Sequence[Dynamics] = (),
        models: Sequence[str] = (),
        made_from: Provenance = UNKNOWN,
        folds: Sequence[OutOfFold] = (),
        split: Callable[[str], Sequence[Example]] | None = None,
        folder: Path = Path(),
    ):
        hashes = id_hash([example.id for example in examples])
        self.file_order = np.argsort(hashes, kind="stable")  # of each row of the pool in the file
        self.hashes = hashes[self.file_order]
        self.examples = [examples[i] for i in self.file_order]
        self.ids = [example.id for example in self.examples]
        self.label_names, self.seed, self.models = tuple(labels), seed, tuple(models)
        self._vectors, self.dynamics, self.made_from = vectors, dynamics, made_from
        self.folds, self.folder, self._split = folds, folder, split
        self.kept: dict[object, Any] = {}  # what a selector computed and somebody else may look at

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def draws(self) -> Numbers:
        """A random number in 64 bits for each example, from (seed, id)."""
        return rng.bits(rng.key(self.seed, "select"), self.hashes, 1)[:, 0]

    @cached_property
    def labels(self) -> Numbers:
        """The number of each example's label."""
        number: dict[object, int] = {name: i for i, name in enumerate(self.label_names)}
        missing = next((e.id for e in self.examples if e.label not in number), None)
        if missing is not None:
            raise UserError(f"select: this needs one label for every row; example {missing} has none")
        return np.array([number[e.label] for e in self.examples])

    @cached_property
    def vectors(self) -> Numbers:
        """[n, width], rows as in this pool."""
        if self._vectors is None:
            raise UserError("select: this selector needs vectors: give embed.model, or a folder under embeddings")
        ids, vectors = self._vectors()
        at = {id: i for i, id in enumerate(ids)}
        lost = next((id for id in self.ids if id not in at), None)
        if lost is not None:
            raise UserError(f"embeddings: there is no vector for example {lost}; embed the same split")
        return np.asarray(vectors[np.array([at[id] for id in self.ids])])

    @cached_property
    def logits(self) -> list[Numbers]:
        """[epochs, n, labels] of each run, rows as in this pool."""
        if not self.dynamics:
            raise UserError("select: this selector needs runs that were trained with train.dynamics: name them in runs")
        return [one.aligned(self.ids, self.label_names) for one in self.dynamics]

    @cached_property
    def predictions(self) -> list[Numbers]:
        """[n, labels] of each cross-validation: probabilities from models that have not seen the row."""
        if not self.folds:
            raise UserError(
                "select: this selector needs out-of-fold predictions: name the folder of `train --folds` in runs"
            )
        gold = [example.label for example in self.examples]
        return [one.aligned(self.ids, gold, self.label_names) for one in self.folds]

    def split(self, name: str) -> Sequence[Example]:
        """Another split of the pool's task."""
        if self._split is None:
            raise UserError(f"select: this pool has no split {name}")
        return self._split(name)

    def sorted(self, scores: Numbers, highest: bool = True) -> Numbers:
        """Positions by score; equal scores in random order."""
        return np.lexsort((self.draws, -scores if highest else scores))


@dataclass(frozen=True)
class Ranked:
    """Positions in the pool, best first, and what is known of each position."""

    order: Numbers
    scores: Numbers | None = None
    clusters: Numbers | None = None
    weights: Numbers | None = None
    notes: tuple[str, ...] = field(default_factory=tuple)
    about: Mapping[str, Any] = field(default_factory=dict)  # what else the meta file tells


class Selector(Options):
    """Options of a selector; calling it orders a pool."""

    needs: ClassVar[tuple[Need, ...]] = ()

    @property
    def records_needed(self) -> int:
        """Of the training dynamics, so that they say something."""
        return 1

    def __call__(self, pool: Pool, count: int) -> Ranked:
        """At least `count` positions, or all that it chooses; a selector may stop there if more is costly."""
        raise NotImplementedError


def prepared(vectors: Numbers, normalise: bool, pca: int | None, seed: int) -> Numbers:
    """Vectors of length 1 if asked for, then their principal components."""
    found = np.asarray(vectors, np.float32)
    if normalise:
        found = found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12)
    if pca is not None and pca < min(found.shape):
        from sklearn.decomposition import PCA

        found = PCA(pca, svd_solver="covariance_eigh", random_state=seed).fit_transform(found).astype(np.float32)
    return found


def apportioned(sizes: Sequence[int] | Numbers) -> Numbers:
    """A sequence of groups, as long as all of them together, in which every prefix has each group's share within 1.

    Tijdeman's rule for the chairman assignment problem: of the groups that are behind, the one whose next turn is due
    first. So subsets are nested and stratified at once.
    """
    sizes = np.asarray(sizes, np.float64)
    groups = np.flatnonzero(sizes > 0)
    total, shares = int(sizes.sum()), sizes[groups] / sizes.sum()
    if len(groups) < 2:
        return np.repeat(groups, total)
    slack = 1 / (2 * len(groups) - 2)
    given, sequence = np.zeros(len(groups)), np.empty(total, np.int64)
    for k in range(1, total + 1):
        behind = k * shares - given
        due = np.where((behind >= slack - 1e-12) & (given < sizes[groups]), (1 - slack - behind) / shares, np.inf)
        chosen = int(due.argmin())
        given[chosen] += 1
        sequence[k - 1] = groups[chosen]
    return sequence


def interleaved(groups: Sequence[Numbers], turns: Numbers) -> Numbers:
    """The members of the groups, each in its own order, as the turns say."""
    iterators = [iter(group.tolist()) for group in groups]
    return np.array([next(iterators[turn]) for turn in turns], np.int64)
