"""Predictions: confusion matrices, predicted against actual numbers, calibration, and how bad each row's are."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from encodery.core.text import counted as number_of
from encodery.report import stats
from encodery.report.examples import is_right
from encodery.report.groups import Row
from encodery.report.page.chart import Chart, Heat, Picture, Section, Series, spread
from encodery.report.page.data import PageData, Rows
from encodery.report.page.html import Html, choice, figure, heat, table, tag
from encodery.report.table import scaled
from encodery.tasks.base import Example
from encodery.tasks.forms import metrics

CONFIGURATIONS = 6  # of each data set that get a matrix and a curve of calibration
LABELS = 30  # more make a matrix that nobody reads
FEW = 8  # labels whose counts fit into the cells
BESIDE = 4  # labels whose matrix fits beside a chart
CONFUSED = 15
DOTS = 1000


@dataclass(frozen=True)
class Answered:
    """The answers of one configuration's seeds to the rows of a data set."""

    row: Row
    rows: Rows
    answers: Sequence[Mapping[str, Mapping[str, Any]]]  # one mapping a seed; folds that share no rows are one
    runs: int = 1  # that the answers come from

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


def answered(page: PageData, row: Row) -> Answered | None:
    """The answers behind a row of the table; None where files or labels are missing."""
    runs = list(row.runs.values())
    rows = page.rows(runs[0], row.data) if any(page.answers(run, row.data) for run in runs) else None
    if rows is None or not rows.examples or any(e.label is None for e in rows.examples):
        return None
    if row.unit == "fold" and any(page.rows(run, row.data) is not rows for run in runs):
        return _of_folds(page, row, rows)
    complete = [
        answers
        for run in runs
        if (answers := page.answers(run, row.data)) and all(e.id in answers for e in rows.examples)
    ]
    return Answered(row, rows, complete, len(complete)) if complete else None


def _of_folds(page: PageData, row: Row, first: Rows) -> Answered | None:
    """Each fold has rows of its own: all of them, answered by the run of their fold."""
    examples: dict[str, Example] = {}
    together: dict[str, dict[str, Mapping[str, Any]]] = {}  # by the seed of the cross-validation
    used = 0
    for seed, run in row.runs.items():
        mine, answers = page.rows(run, row.data), page.answers(run, row.data)
        if mine is not None and all(e.id in answers for e in mine.examples):
            examples |= {e.id: e for e in mine.examples}
            together.setdefault(str(seed).partition(" fold ")[0], {}).update(answers)
            used += 1
    complete = [answers for answers in together.values() if examples.keys() <= answers.keys()]
    return Answered(row, Rows(first.task, list(examples.values())), complete, used) if complete else None


def section(page: PageData) -> Section | None:
    """A part for each data set."""
    pictures: list[Picture] = []
    panels = []
    for number, data in enumerate(page.data):
        those = [one for row in page.rows_of(data)[:CONFIGURATIONS] if (one := answered(page, row))]
        if not those:
            continue
        body, drawn = _data(page, f"answers-{number}", those)
        if body:
            panels.append((data, body))
            pictures += drawn
    return Section("answers", "Predictions", choice("answers-data", "Data", panels), pictures) if panels else None


def _data(page: PageData, id: str, those: Sequence[Answered]) -> tuple[Html, list[Picture]]:
    first = those[0]
    if first.numbers:
        against = _against(id, first)
        return figure(against), [against]
    if not first.single:
        return Html(""), []
    shown = those if len(first.rows.task.labels) <= LABELS else []
    matrices = [matrix(page, f"{id}-matrix-{i}", one) for i, one in enumerate(shown)]
    if not shown:
        count = len(first.rows.task.labels)
        page.remark(f"{first.row.data}: {count} labels, so no confusion matrix is drawn (at most {LABELS})")
    panels = [(page.name(one.row) or one.row.data, heat(m)) for one, m in zip(shown, matrices, strict=True)]
    left = choice(f"{id}-matrices", "Configuration", panels) if panels else ""
    chart = calibration(page, id, those)
    wide = "grid wide" if len(first.rows.task.labels) > BESIDE else "grid"
    mixed = confused(f"{id}-confused", first) if len(first.rows.task.labels) > FEW else ""
    parts = [left, mixed, figure(chart) if chart else ""]
    return tag("div", *filter(None, parts), class_=wide), [*matrices, *([chart] if chart else [])]


def counted(one: Answered) -> tuple[list[str], Any]:
    """Labels, and how often each (actual, predicted) was seen over all seeds; predictions of no label are left out."""
    labels = list(one.rows.task.labels)
    pairs = [(gold, answer["prediction"]) for gold, answer in one.pairs()]
    known = [(gold, said) for gold, said in pairs if said in labels]
    return labels, metrics.confusion([gold for gold, _ in known], [said for _, said in known], labels)


def matrix(page: PageData, id: str, answered: Answered) -> Heat:
    """Counts of all seeds together; colours by the share of the actual label. Of many labels only shares fit."""
    labels, counts = counted(answered)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    cells = [list(zip(a, b, strict=True)) for a, b in zip(counts.tolist(), shares.tolist(), strict=True)]
    many = len(labels) > FEW
    texts = [[_cell(n, s, many) for n, s in line] for line in cells]
    hints = [
        [f"actual {gold}, predicted {said}: {n:,} ({s:.1%})" for said, (n, s) in zip(labels, line, strict=True)]
        for gold, line in zip(labels, cells, strict=True)
    ]
    seeds = f" · {answered.runs} {answered.row.unit}s together" if answered.runs > 1 else ""
    label = page.name(answered.row)
    title = f"{answered.row.data}{f' · {label}' if label else ''}{seeds}"
    note = "In each row: % of the rows with that actual label; blank is none. Touch a cell for counts." if many else ""
    return Heat(
        id, title, labels, labels, shares.tolist(), texts, x="predicted", y="actual", low=0.0, high=1.0, note=note,
        hints=hints,
    )  # fmt: skip


def _cell(count: int, share: float, many: bool) -> str:
    if not many:
        return f"{count:,} ({share:.0%})"
    return f"{100 * share:.0f}" if share >= 0.005 else "·" if count else ""


def confused(id: str, answered: Answered) -> Html:
    """The commonest mistakes, where a matrix is too large to find them."""
    labels, counts = counted(answered)
    of = counts.sum(axis=1)
    wrong = [
        (int(counts[i, j]), i, j) for i in range(len(labels)) for j in range(len(labels)) if i != j and counts[i, j]
    ]
    ranked = sorted(wrong, key=lambda mistake: -mistake[0])[:CONFUSED]
    rows = [[labels[i], labels[j], f"{n:,}", f"{n / of[i]:.1%}"] for n, i, j in ranked]
    header = ["actual", "predicted", "rows", "of the actual label"]
    return (
        table(header, rows, id=id, caption=f"{answered.row.data}: commonest mistakes", numbers=header[2:])
        if rows
        else Html("")
    )


def calibration(page: PageData, id: str, those: Sequence[Answered]) -> Chart | None:
    """Accuracy against confidence in fifteen bins; below the diagonal a model is too sure of itself."""
    series = [one for answers in those if (one := _reliability(page, answers))]
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


def _reliability(page: PageData, answered: Answered) -> Series | None:
    sure, right = [], []
    for gold, answer in answered.pairs():
        chances = answer.get("probabilities")
        if not chances:
            return None
        best = max(chances, key=chances.__getitem__)
        sure.append(chances[best])
        right.append(best == gold)
    confidence, mark = np.asarray(sure, dtype=np.float64), np.asarray(right, dtype=np.float64)
    which = metrics.confidence_bins(confidence)
    counts = np.bincount(which)
    here = np.flatnonzero(counts)
    x = np.bincount(which, confidence)[here] / counts[here]
    y = np.bincount(which, mark)[here] / counts[here]
    label = page.name(answered.row) or answered.row.data
    text = [number_of(n, "prediction") for n in counts[here]]
    return Series(label, x.tolist(), y.tolist(), label, text=text)


def _against(id: str, answered: Answered) -> Chart:
    """Numbers: the answer against the truth."""
    drawn = spread(list(answered.pairs()), DOTS)
    x, y = [float(gold) for gold, _ in drawn], [float(answer["prediction"]) for _, answer in drawn]
    title = f"{answered.row.data}: predicted against actual"
    note = f"{answered.row.metric} {scaled(answered.row, answered.row.summary.mean)}"
    return Chart(
        id, title, "actual", "predicted", [Series(answered.row.data, x, y, kind="points")], diagonal=True, note=note
    )


def marks(answered: Answered) -> list[tuple[float, int, str]]:
    """For each row: how bad its answers are (1 - chance of the truth, or error), how many are wrong, what was said."""
    marked = []
    for example in answered.rows.examples:
        given = [answers[example.id] for answers in answered.answers]
        if answered.numbers:
            errors = [abs(float(answer["prediction"]) - float(example.label)) for answer in given]  # type: ignore[arg-type]
            said = f"{stats.mean([float(answer['prediction']) for answer in given]):.2f}"
            marked.append((stats.mean(errors), sum(error > 0 for error in errors), said))
            continue
        wrong = [not is_right(answer["prediction"], example.label) for answer in given]
        chances = [(answer.get("probabilities") or {}).get(example.label) for answer in given]
        bad = [float(w) if chance is None else 1.0 - chance for w, chance in zip(wrong, chances, strict=True)]
        said = Counter(str(answer["prediction"]) for answer in given).most_common(1)[0][0]
        marked.append((stats.mean(bad), sum(wrong), said))
    return marked
