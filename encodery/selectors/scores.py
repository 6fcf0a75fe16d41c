"""Anybody's scores: a file with an id and a number for each row, made by another program or by hand."""

import math
from pathlib import Path
from typing import Any, Literal

import numpy as np

from encodery.core import files
from encodery.errors import UserError
from encodery.selectors.base import Pool, Ranked, Selector


class Scores(Selector):
    """Rows by the scores in a file (csv, tsv, jsonl, Parquet) with the columns id and score."""

    file: str = ""
    """The file. Relative paths start at the folder of the config."""
    id: str = "id"
    """Column with the row ids: the values of the pool's id column, else row numbers from 0."""
    score: str = "score"
    """Column with the scores."""
    first: Literal["high", "low"] = "high"
    """Which scores come first."""

    def __call__(self, pool: Pool, count: int) -> Ranked:
        """Every row of the pool must have a score; rows that the pool has not are counted."""
        if not self.file:
            raise UserError("selector.file: the kind scores needs a file with the columns id and score")
        path = pool.folder / Path(self.file).expanduser()
        scores_by_id = self.read(path)
        lost = [id for id in pool.ids if id not in scores_by_id]
        if lost:
            raise UserError(f"{path}: has no score for {len(lost):,} of {len(pool):,} rows (first: {lost[0]})")
        scores = np.array([scores_by_id[id] for id in pool.ids])
        more = len(scores_by_id) - len(pool)
        notes = (f"{more:,} scores in {path.name} belong to rows that are not in the pool",) if more else ()
        about = {"scores_file": {"name": path.name, "sha256": files.sha256(path)}}
        return Ranked(pool.sorted(scores, highest=self.first == "high"), scores, notes=notes, about=about)

    def read(self, path: Path) -> dict[str, float]:
        """Id to score; what is not a finite number, or is there twice, is named by its line."""
        from encodery.tasks.sources.readers import need_columns, read, refuse

        sheet = read(path, [self.id, self.score])
        refuse(sheet.bad, "Correct them.")
        need_columns(sheet, [self.id, self.score])
        scores: dict[str, float] = {}
        for row in sheet.rows:
            id = str(row.values[self.id])
            if id in scores:
                raise UserError(f"{path}, line {row.line}: the id {id} occurs twice")
            scores[id] = number(row.values[self.score], f'{path}, line {row.line}, column "{self.score}"')
        return scores


def number(value: Any, where: str) -> float:
    """A finite number, written as a number or as text."""
    try:
        found = float(value) if not isinstance(value, bool) else math.nan
    except (TypeError, ValueError):
        found = math.nan
    if not math.isfinite(found):
        raise UserError(f"{where}: {value!r} is not a finite number")
    return found
