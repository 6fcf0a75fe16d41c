"""Scores by the values of a column: genre, source, hard or easy; each with its interval over the rows."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from encodery.core.text import counted
from encodery.errors import UserError
from encodery.inference.evaluate import Evaluation
from encodery.report.stats import wilson
from encodery.tasks.base import Example
from encodery.tasks.forms.metric_table import spelled
from encodery.tasks.sources.columns import column, ordered

DRAWS = 200  # of a bootstrap over rows
FEWEST = 10  # rows of a bootstrap: fewer do not show how far others could be
SHARES = frozenset({"accuracy", "exact"})  # means of 0 and 1 over examples


def slices_of(evaluation: Evaluation, name: str) -> list[dict[str, Any]]:
    """One entry for each value of a column: numbers from low to high, names with the most rows first."""
    task, split = evaluation.asked
    if evaluation.scores is None:
        raise UserError(f"--by {name}: the labels of {evaluation.asked.key} are hidden, so nothing can be scored")
    values = column(task, split, name)
    rows: dict[str, list[Example]] = {}
    for example in task.examples(split):
        rows.setdefault(values[example.id], []).append(example)
    order = ordered({value: len(mine) for value, mine in rows.items()})
    return [{"value": value, "rows": len(rows[value]), **_scored(evaluation, rows[value])} for value in order]


def _scored(found: Evaluation, rows: Sequence[Example]) -> dict[str, Any]:
    scores = found.asked.task.score({row.id: found.answers[row.id] for row in rows}, rows)
    low, high = interval(found, rows, scores[found.main])
    return {"scores": scores, "low": low, "high": high}


def interval(evaluation: Evaluation, rows: Sequence[Example], score: float) -> tuple[float | None, float | None]:
    """95 % over rows: Wilson's of a share, else percentiles of a bootstrap; None of too few rows."""
    if spelled(evaluation.main) in SHARES:
        return wilson(score, len(rows))
    if len(rows) < FEWEST:
        return None, None
    rng, task = np.random.default_rng(0), evaluation.asked.task
    drawn = []
    for _ in range(DRAWS):
        some = [rows[i] for i in rng.integers(0, len(rows), len(rows))]
        drawn.append(task.score({row.id: evaluation.answers[row.id] for row in some}, some)[evaluation.main])
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(low), float(high)


def lines(evaluation: Evaluation) -> list[str]:
    """For people: a line for each value."""
    printed = []
    for name, entries in evaluation.slices.items():
        width = max(len(str(entry["value"])) for entry in entries)
        printed += [f"  {name} {entry['value']!s:{width}}  {_spelled(entry, evaluation.main)}" for entry in entries]
    return printed


def _spelled(entry: Mapping[str, Any], main: str) -> str:
    span = f"  95 % {entry['low']:.4f} to {entry['high']:.4f}" if entry["low"] is not None else ""
    return f"{main} {entry['scores'][main]:.4f}{span}  ({counted(entry['rows'], 'row')})"
