"""Head importance on disk, and how matrices of different tasks are compared. No torch: `heads compare` answers at once.

A folder holds instances.npy [n, layers, heads] (the raw |gradient| of each example, float32), task.npy (its mean over
the examples, float64), ids.json (the example of each row) and meta.json (last: the sign that everything is there).
Matrices are normalised when they are read, so that another normalisation needs no new pass:

l1    each layer divided by its sum (the GradTS release)        l2  by its norm (Michel et al. 2019)        none

then the whole matrix to [0, 1], which changes no rank. A layer of zeros becomes 1 / heads under l1 and l2.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from encodery.core import cache, files
from encodery.core.rank_correlation import Kind, Numbers, constant, correlations
from encodery.core.text import markdown_table
from encodery.errors import UserError

Norm = Literal["l1", "l2", "none"]
META, INSTANCES, TASK, IDS = "meta.json", "instances.npy", "task.npy", "ids.json"
MADE_FROM = "made_from"  # data/provenance.py writes it
SAME = ("estimator", "dropout", "base", "layers", "heads")  # what must be equal where matrices are compared
CHUNK = 4096  # instances that are normalised at once


@dataclass(frozen=True)
class Importance:
    """The importance of every head for a task, whole and example by example."""

    folder: Path

    @classmethod
    def open(cls, folder: Path | str) -> "Importance":
        """An existing folder, whole."""
        if not (Path(folder) / META).is_file():
            raise UserError(f"{folder} holds no finished head importance; run `encodery heads` again to resume")
        cache.require_intact(Path(folder), "run the `encodery heads` command that wrote it again to repair it")
        return cls(Path(folder))

    @cached_property
    def meta(self) -> dict[str, Any]:
        """What it is made of."""
        found: dict[str, Any] = files.read_json(self.folder / META)
        return found

    @cached_property
    def instances(self) -> np.ndarray:
        """Raw [n, layers, heads], mapped into memory."""
        found: np.ndarray = np.load(self.folder / INSTANCES, mmap_mode="r", allow_pickle=False)
        return found

    @cached_property
    def raw(self) -> Numbers:
        """The mean of the raw matrices over all examples."""
        found: Numbers = np.load(self.folder / TASK, allow_pickle=False)
        return found

    @property
    def ids(self) -> list[str]:
        """The example of each row."""
        found: list[str] = json.loads((self.folder / IDS).read_text(encoding="utf-8"))
        return found

    @property
    def name(self) -> str:
        return str(self.meta["task"])

    def matrix(self, norm: Norm = "l1") -> Numbers:
        """The task's matrix: the normalised mean of the raw ones, not the mean of normalised ones."""
        return normalised(self.raw, norm)

    def order(self, norm: Norm) -> list[tuple[int, int]]:
        """(layer, head), the most important first. Between layers the order depends on the normalisation."""
        places = np.argsort(-self.matrix(norm), axis=None, kind="stable")
        return [(int(place // self.raw.shape[1]), int(place % self.raw.shape[1])) for place in places]

    def correlation_of_instances(self, matrix: np.ndarray, norm: Norm = "l1", kind: Kind = "kendall") -> Numbers:
        """Of each example's own matrix with a task's matrix: [n]."""
        target = matrix.reshape(1, -1)
        parts = [
            correlations(flat(normalised(self.instances[i : i + CHUNK], norm)), target, kind)[:, 0]
            for i in range(0, len(self.instances), CHUNK)
        ]
        return np.concatenate(parts)

    def halves(self, norm: Norm = "l1", kind: Kind = "kendall") -> float:
        """The correlation of the matrices of two halves of the examples: how far the task's matrix has settled."""
        if len(self.instances) < 2:
            return 0.0
        each = [self.instances[start::2].mean(0, dtype=np.float64) for start in (0, 1)]
        first, second = (flat(normalised(half, norm)[None]) for half in each)
        return float(correlations(first, second, kind)[0, 0])


def flat(matrices: np.ndarray) -> Numbers:
    """[n, layers, heads] → [n, layers · heads]."""
    return np.asarray(matrices, np.float64).reshape(len(matrices), -1)


def normalised(raw: np.ndarray, norm: Norm = "l1") -> Numbers:
    """Each layer by its size, then the whole matrix to [0, 1]; any number of matrices [..., layers, heads]."""
    return to_unit(by_layer(raw, norm))


def by_layer(raw: np.ndarray, norm: Norm) -> Numbers:
    """Each layer divided by its size; a layer of zeros has nothing to tell its heads apart."""
    matrices = np.asarray(raw, np.float64)
    if norm == "none":
        return matrices
    size = matrices.sum(-1, keepdims=True) if norm == "l1" else np.linalg.norm(matrices, axis=-1, keepdims=True)
    return np.asarray(np.where(size > 0, matrices / np.where(size > 0, size, 1.0), 1.0 / matrices.shape[-1]))


def to_unit(matrices: Numbers) -> Numbers:
    """Smallest 0, largest 1; a constant matrix becomes zeros."""
    low, high = matrices.min((-2, -1), keepdims=True), matrices.max((-2, -1), keepdims=True)
    return np.asarray((matrices - low) / np.where(high > low, high - low, 1.0))


# Comparing


def require_comparable(given: Sequence[Importance]) -> None:
    """Matrices of other encoders, other starting weights or another estimator say nothing about each other.

    Nor do matrices of one split whose rows have changed in between.
    """
    first = given[0]
    by_split: dict[tuple[Any, Any], Importance] = {}
    for importance in given:
        split = importance.meta.get("split")
        before = by_split.setdefault((importance.meta.get("task"), split), importance)
        if before.meta.get("rows") != importance.meta.get("rows"):
            raise UserError(
                f"{before.folder} and {importance.folder} cannot be compared: both are of {importance.name}:{split}, "
                "but its rows have changed in between; measure the older one again"
            )
    for other in given[1:]:
        for key in SAME:
            mine, theirs = first.meta.get(key), other.meta.get(key)
            if mine != theirs:
                raise UserError(
                    f"{first.folder} and {other.folder} cannot be compared: {key} is {mine} there and {theirs} here"
                )


@dataclass(frozen=True)
class Comparison:
    """All pairwise correlations of tasks."""

    names: tuple[str, ...]
    kind: Kind
    norm: Norm
    values: Numbers
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {
            "names": list(self.names), "kind": self.kind, "norm": self.norm, "values": self.values.tolist(),
            "notes": list(self.notes),
        }  # fmt: skip


def compare(given: Sequence[Importance], kind: Kind = "kendall", norm: Norm = "l1") -> Comparison:
    """The correlation of every pair of tasks."""
    require_comparable(given)
    rows = flat(np.stack([importance.matrix(norm) for importance in given]))
    values = correlations(rows, rows, kind)
    still = constant(rows)
    np.fill_diagonal(values, np.where(still, 0.0, 1.0))
    flat_ones = [importance.folder for importance, equal in zip(given, still.tolist(), strict=True) if equal]
    notes = [f"{folder}: all heads are equally important, so its correlations count as 0" for folder in flat_ones]
    old = [importance.folder for importance in given if MADE_FROM not in importance.meta]
    notes += [f"{folder}: has no digest of the texts it was made from (it is of an older version)" for folder in old]
    return Comparison(labels_of(given), kind, norm, values, tuple(notes))


def labels_of(given: Sequence[Importance]) -> tuple[str, ...]:
    """Names of the tasks; folders where a task stands there more than once."""
    names = [one.name for one in given]
    return tuple(name if names.count(name) == 1 else str(one.folder) for name, one in zip(names, given, strict=True))


def table(found: Comparison) -> str:
    """Markdown: a row and a column for each task."""
    header = [f"{found.kind} ({found.norm})", *found.names]
    rows = [[name, *(f"{value:.3f}" for value in line)] for name, line in zip(found.names, found.values, strict=True)]
    return markdown_table(header, rows)
