"""What was answered: confusion matrices, answers against truth for numbers, calibration, and the worst examples."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from encodery.report import stats
from encodery.report.cells import scaled
from encodery.report.examples import is_right
from encodery.report.groups import Row
from encodery.report.page.chart import Chart, Heat, Picture, Section, Series, spread
from encodery.report.page.found import Found, Rows
from encodery.report.page.html import Html, choice, figure, heat, tag
from encodery.tasks import metrics

CONFIGURATIONS = 6  # of each data set that get a matrix and a curve of calibration
LABELS = 30  # more make a matrix that nobody reads
BINS = 15
DOTS = 1000


@dataclass(frozen=True)
class Answered:
    """The answers of one configuration's seeds to the rows of a data set."""

    row: Row
    rows: Rows
    answers: Sequence[Mapping[str, Mapping[str, Any]]]  # one mapping a seed

    @property
    def single(self) -> bool:
        """Whether each row has one label."""
        return bool(self.rows.task.labels) and all(isinstance(e.label, str) for e in self.rows.examples)

    @property
    def numbers(self) -> bool:
        """Whether answers are numbers."""
        return all(isinstance(e.label, float | int) for e in self.rows.examples)

    def pairs(self) -> Iterator[tuple[Any, Mapping[str, Any]]]:
        """Label and answer, over all seeds."""
        for answers in self.answers:
            yield from ((e.label, answers[e.id]) for e in self.rows.examples)


def answered(found: Found, row: Row) -> Answered | None:
    """The answers behind a row of the table; None where files or labels are missing."""
    runs = list(row.runs.values())
    rows = found.rows(runs[0], row.data) if any(found.answers(run, row.data) for run in runs) else None
    if rows is None or not rows.examples or any(e.label is None for e in rows.examples):
        return None
    whole = [
        answers
        for run in runs
        if (answers := found.answers(run, row.data)) and all(e.id in answers for e in rows.examples)
    ]
    return Answered(row, rows, whole) if whole else None


def section(found: Found) -> Section | None:
    """A part for each data set."""
    pictures: list[Picture] = []
    panels = []
    for number, data in enumerate(found.data):
        those = [one for row in found.rows_of(data)[:CONFIGURATIONS] if (one := answered(found, row))]
        if not those:
            continue
        body, drawn = _data(found, f"answers-{number}", those)
        if body:
            panels.append((data, body))
            pictures += drawn
    return Section("answers", "Answers", choice("answers-data", "Data", panels), pictures) if panels else None


def _data(found: Found, id: str, those: Sequence[Answered]) -> tuple[Html, list[Picture]]:
    first = those[0]
    if first.numbers:
        against = _against(found, id, first)
        return figure(against), [against]
    if not first.single or len(first.rows.task.labels) > LABELS:
        return Html(""), []
    matrices = [matrix(found, f"{id}-matrix-{i}", one) for i, one in enumerate(those)]
    panels = [(found.name(one.row) or one.row.data, heat(m)) for one, m in zip(those, matrices, strict=True)]
    left = choice(f"{id}-matrices", "Configuration", panels)
    chart = calibration(found, id, those)
    return tag("div", left, figure(chart) if chart else "", class_="grid"), [*matrices, *([chart] if chart else [])]


def matrix(found: Found, id: str, one: Answered) -> Heat:
    """Counts of all seeds together; colours by the share of the true label."""
    labels = list(one.rows.task.labels)
    pairs = [(gold, answer["prediction"]) for gold, answer in one.pairs()]
    known = [(gold, said) for gold, said in pairs if said in labels]
    counts = metrics.confusion([gold for gold, _ in known], [said for _, said in known], labels)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    texts = [
        [f"{n:,} ({s:.0%})" for n, s in zip(a, b, strict=True)] for a, b in zip(counts, shares.tolist(), strict=True)
    ]
    seeds = f" · {len(one.answers)} seeds together" if len(one.answers) > 1 else ""
    label = found.name(one.row)
    title = f"{one.row.data}{f' · {label}' if label else ''}{seeds}"
    return Heat(id, title, labels, labels, shares.tolist(), texts, x="said", y="truth", low=0.0, high=1.0)


def calibration(found: Found, id: str, those: Sequence[Answered]) -> Chart | None:
    """Accuracy against confidence in fifteen bins; below the diagonal a model is too sure of itself."""
    series = [one for answers in those if (one := _reliability(found, answers))]
    if not series:
        return None
    errors = [run.scores[those[0].row.data].get("ece") for run in those[0].row.runs.values()]
    known = [error for error in errors if error is not None]
    words = f"Expected calibration error of the best: {stats.mean(known):.3f}. " if known else ""
    note = words + "Below the diagonal a model is too sure of itself."
    title = f"Calibration on {those[0].row.data}"
    return Chart(
        f"{id}-calibration", title, "confidence", "accuracy", series, diagonal=True, note=note, y_range=(0, 1.02)
    )


def _reliability(found: Found, one: Answered) -> Series | None:
    sure, right = [], []
    for gold, answer in one.pairs():
        chances = answer.get("probabilities")
        if not chances:
            return None
        best = max(chances, key=chances.__getitem__)
        sure.append(chances[best])
        right.append(best == gold)
    confidence, mark = np.asarray(sure, dtype=np.float64), np.asarray(right, dtype=np.float64)
    which = np.clip(np.ceil(confidence * BINS).astype(np.int64) - 1, 0, BINS - 1)
    counts = np.bincount(which, minlength=BINS)
    here = np.flatnonzero(counts)
    x = np.bincount(which, confidence, BINS)[here] / counts[here]
    y = np.bincount(which, mark, BINS)[here] / counts[here]
    label = found.name(one.row) or one.row.data
    text = [f"{n:,} answers" for n in counts[here]]
    return Series(label, x.tolist(), y.tolist(), label, text=text)


def _against(found: Found, id: str, one: Answered) -> Chart:
    """Numbers: the answer against the truth."""
    drawn = spread(list(one.pairs()), DOTS)
    x, y = [float(gold) for gold, _ in drawn], [float(answer["prediction"]) for _, answer in drawn]
    title = f"{one.row.data}: answers against truth"
    note = f"{one.row.metric} {scaled(one.row, one.row.summary.mean)}"
    return Chart(id, title, "truth", "answer", [Series(one.row.data, x, y, kind="points")], diagonal=True, note=note)


def marks(one: Answered) -> list[tuple[float, int, str]]:
    """For each row: how bad its answers are (1 - chance of the truth, or error), how many are wrong, what was said."""
    found = []
    for example in one.rows.examples:
        given = [answers[example.id] for answers in one.answers]
        if one.numbers:
            errors = [abs(float(answer["prediction"]) - float(example.label)) for answer in given]  # type: ignore[arg-type]
            said = f"{stats.mean([float(answer['prediction']) for answer in given]):.2f}"
            found.append((stats.mean(errors), sum(error > 0 for error in errors), said))
            continue
        wrong = [not is_right(answer["prediction"], example.label) for answer in given]
        chances = [(answer.get("probabilities") or {}).get(example.label) for answer in given]
        bad = [float(w) if chance is None else 1.0 - chance for w, chance in zip(wrong, chances, strict=True)]
        said = Counter(str(answer["prediction"]) for answer in given).most_common(1)[0][0]
        found.append((stats.mean(bad), sum(wrong), said))
    return found
