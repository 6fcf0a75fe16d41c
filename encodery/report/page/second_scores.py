"""What belongs beside a score: what the commonest label gets, and the second metric of the same predictions."""

from dataclasses import dataclass

from encodery.report import stats
from encodery.report.groups import Row
from encodery.tasks.forms import metric_table

BETTER = ("macro_f1", "f1", "mcc", "spearman", "exact", "accuracy")  # what a reader asks for first


@dataclass(frozen=True)
class Second:
    """Another metric of a row."""

    name: str
    mean: float

    @property
    def text(self) -> str:
        return metric_table.metric(self.name).text(self.mean)


def majority(row: Row) -> float | None:
    """The score of the commonest label (or the mean) on the row's data, as the mean over its seeds."""
    found = [run.majority.get(row.data, {}).get(row.metric) for run in row.runs.values()]
    known = [value for value in found if value is not None]
    return stats.mean(known) if known else None


def second_metric(row: Row) -> Second | None:
    """The metric that a reader asks for next: a well-known one, else the first that has a better side."""
    runs = list(row.runs.values())
    shared = [name for name in runs[0].scores.get(row.data, {}) if name != row.metric] if runs else []
    kinds = [name for name in shared if metric_table.metric(name).better != "neither"]
    name = next((name for name in BETTER if name in kinds), kinds[0] if kinds else None)
    values = [run.scores.get(row.data, {}).get(name or "") for run in runs]
    known = [value for value in values if value is not None]
    return Second(name, stats.mean(known)) if name and known else None


def below_majority(row: Row) -> bool:
    """Whether a row's mean is no better than what needs no model."""
    easy, mean = majority(row), row.summary.mean
    if easy is None or mean is None or row.about.better == "neither":
        return False
    if row.about.better == "higher" and all(run.scores[row.data][row.metric] == 1 for run in row.runs.values()):
        return False  # all answers are right, as those of the majority are
    return mean >= easy if row.lower else mean <= easy
