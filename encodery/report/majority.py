"""Runs that are not better than the majority baseline: a mean over seeds hides them."""

from collections.abc import Sequence

from encodery.core.text import are
from encodery.errors import AFTER_ALARM
from encodery.report.groups import Row
from encodery.report.records import Record

NAMED = 3  # runs of a row
FEW = 6  # rows that are told one by one


def no_better(row: Row) -> list[tuple[Record, float, float]]:
    """Runs of a row whose score needs no model, with the score and what the commonest label gets."""
    low = []
    for seed, run in row.runs.items():
        score, easy = row.values.get(seed), run.majority.get(row.data, {}).get(row.metric)
        if score is None or easy is None or row.about.better == "neither":
            continue
        right = row.about.better == "higher" and score == 1  # all answers are right, as those of the baseline are
        if not right and (score >= easy if row.lower else score <= easy):
            low.append((run, score, easy))
    return low


def sentence(row: Row) -> str | None:
    """`1 of 2 runs of lr=1e-3 on table/tickets:dev is not better than the majority baseline (…)`; None if all are."""
    low = no_better(row)
    if not low:
        return None
    whole, settings = len(row.runs), ", ".join(f"{key}={value}" for key, value in row.settings.items() if value)
    who = f"{len(low)} of {whole} runs" if whole > 1 else "the only run"
    of = f" of {settings}" if settings else ""
    told = [f"{run.name}: {row.about.text(score)} against {row.about.text(easy)}" for run, score, easy in low[:NAMED]]
    told += [f"and {len(low) - NAMED} more"] if len(low) > NAMED else []
    runs = f"{who}{of} {are(len(low))}"
    return f"{row.data}: {runs} not better than the majority baseline ({'; '.join(told)}); {AFTER_ALARM}"


def remarks(rows: Sequence[Row]) -> list[str]:
    """A sentence for each row that has such runs, up to a few."""
    sentences = [line for row in rows if (line := sentence(row))]
    more = len(sentences) - FEW
    if more < 2:
        return sentences
    return [*sentences[:FEW], f"{more} more rows have runs that are not better than the majority baseline"]
