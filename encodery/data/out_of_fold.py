"""Out-of-fold predictions of `train --folds`, for reading: each row answered by a model that has not seen it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from encodery.errors import UserError
from encodery.tasks.base import Label

FILE = "out_of_fold.jsonl"


@dataclass(frozen=True)
class OutOfFold:
    """The answers to all rows of a training file, by id."""

    path: Path
    rows: Mapping[str, Mapping[str, Any]]

    @classmethod
    def open(cls, source: Path | str) -> "OutOfFold":
        """Of the folder of a cross-validation, or of its file."""
        path = Path(source) / FILE if Path(source).is_dir() else Path(source)
        if not path.is_file():
            raise UserError(f"{source}: has no {FILE}; `encodery train … --folds 5 -o {source}` makes it")
        rows = {}
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            try:
                row = json.loads(line)
                rows[str(row["id"])] = row
                if not isinstance(row["probabilities"], dict):
                    raise ValueError("its probabilities are not an object")
            except (ValueError, KeyError, TypeError) as error:
                raise UserError(f"{path}, line {number}: is not a prediction with probabilities ({error})") from None
        return cls(path, rows)

    def aligned(self, ids: Sequence[str], gold: Sequence[Label], labels: Sequence[str]) -> np.ndarray:
        """Probabilities [n, labels] of these examples; a row with another label than now is refused."""
        lost = [id for id in ids if id not in self.rows]
        if lost:
            raise UserError(f"{self.path}: has no prediction for {len(lost):,} of {len(ids):,} rows (first: {lost[0]})")
        other = [id for id, label in zip(ids, gold, strict=True) if self.rows[id].get("label") != label]
        if other:
            raise UserError(
                f"{self.path}: {len(other):,} of {len(ids):,} rows have another label there (first: {other[0]}): it "
                "belongs to other rows, or the labels were changed since; train the folds again"
            )
        aligned = np.empty((len(ids), len(labels)))
        for row, id in enumerate(ids):
            chances = self.rows[id]["probabilities"]
            if set(chances) != set(labels):
                raise UserError(
                    f"{self.path}: row {id} has probabilities of {', '.join(chances)}, not of the pool's labels"
                )
            aligned[row] = [chances[label] for label in labels]
        return aligned
