"""How hard each row of a pool is for runs that are at hand: from their dynamics, or from answers to these rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from encodery.data.out_of_fold import FILE as OUT_OF_FOLD
from encodery.data.out_of_fold import OutOfFold
from encodery.data.row_dynamics import FOLDER, Dynamics
from encodery.errors import UserError
from encodery.runs.directory import RunDir
from encodery.selectors.base import Numbers, Pool
from encodery.tasks.forms.classification import softmax


@dataclass(frozen=True)
class Difficulty:
    """Of each row, NaN where no run tells: wrong (0 to 1), p(label), and how much that varied; means over runs."""

    error: Numbers
    confidence: Numbers
    variability: Numbers

    def of(self, members: Numbers) -> dict[str, Any]:
        """Means over some rows; None where no run tells."""
        means: dict[str, Any] = {
            name: _mean(values[members])
            for name, values in (
                ("error", self.error), ("confidence", self.confidence), ("variability", self.variability),
            )
        }  # fmt: skip
        return means | {"rows": int((~np.isnan(self.error[members])).sum())}


def _mean(values: Numbers) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None


def difficulty(pool: Pool, runs: Sequence[str]) -> Difficulty | None:
    """Means over the runs; None where there are none. Out-of-fold answers alone have not seen the row."""
    each = [_of_run(pool, Path(run)) for run in runs]
    if not each:
        return None
    return Difficulty(*(_over_runs([getattr(one, name) for one in each]) for name in Difficulty.__dataclass_fields__))


def _over_runs(values: Sequence[Numbers]) -> Numbers:
    stacked = np.stack(values)
    known = ~np.isnan(stacked)
    sums = np.where(known, stacked, 0.0).sum(0)
    return np.asarray(np.where(known.any(0), sums / np.maximum(known.sum(0), 1), np.nan))


def _of_run(pool: Pool, run: Path) -> Difficulty:
    if (run / FOLDER / "meta.json").is_file():
        return _of_dynamics(pool, Dynamics.open(run))
    if (run / OUT_OF_FOLD).is_file() or run.name == OUT_OF_FOLD:
        return _of_answers(pool, OutOfFold.open(run).rows)
    task, split = pool.made_from.task, pool.made_from.split
    path = RunDir(run).predictions_path(str(task), str(split))
    if path.is_file():
        return _of_answers(pool, OutOfFold.open(path).rows)
    raise UserError(
        f"{run}: has neither dynamics, nor out-of-fold predictions, nor answers to {task}:{split}; "
        "train it with train.dynamics: true, or `encodery evaluate` it on these rows"
    )


def _of_dynamics(pool: Pool, dynamics: Dynamics) -> Difficulty:
    """Error at the last look at each row; a row that the run was not trained on stays unknown.

    A run that ended within its first epoch tells of the rows that it has seen until then.
    """
    dynamics.made_from.require_fit(str(dynamics.path), pool.made_from)
    at = {id: place for place, id in enumerate(dynamics.ids)}
    there = np.array([at.get(id, -1) for id in pool.ids])
    places = np.flatnonzero(there >= 0)
    logits = np.asarray(dynamics.in_order_of(pool.label_names), np.float64)[:, there[places]]
    whole = ~np.isnan(logits).any(axis=(1, 2))
    if not whole.any():
        seen = ~np.isnan(logits[0]).any(axis=1)
        places, logits, whole = places[seen], logits[:1, seen], np.array([True])
    own = softmax(logits[whole])[:, np.arange(len(places)), pool.labels[places]]
    wrong = logits[whole][-1].argmax(-1) != pool.labels[places]
    return _placed(len(pool), places, wrong.astype(float), own.mean(0), own.std(0))


def _of_answers(pool: Pool, rows: Any) -> Difficulty:
    """One answer to each row: nothing varies."""
    places = np.array([i for i, id in enumerate(pool.ids) if id in rows], np.int64)
    answers = [rows[pool.ids[i]] for i in places]
    labels = [pool.examples[i].label for i in places]
    wrong = [float(one["prediction"] != label) for one, label in zip(answers, labels, strict=True)]
    sure = [float(one["probabilities"].get(label, 0.0)) for one, label in zip(answers, labels, strict=True)]
    return _placed(len(pool), places, np.array(wrong), np.array(sure), np.full(len(places), np.nan))


def _placed(rows: int, places: Numbers, *values: Numbers) -> Difficulty:
    found = np.full((len(values), rows), np.nan)
    for line, own in zip(found, values, strict=True):
        line[places] = own
    return Difficulty(*found)
