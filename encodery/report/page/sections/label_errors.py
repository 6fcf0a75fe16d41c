"""Likely label errors: by the area under the margin of training dynamics, and by out-of-fold predictions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from encodery.core import label_errors
from encodery.core.redact import without_paths
from encodery.core.text import short
from encodery.report.page.chart import Chart, Heat, Picture, Section, Series
from encodery.report.page.data import PageData, below, json_lines
from encodery.report.page.html import Html, choice, figure, heat, join, table, tag
from encodery.report.page.row_marks import RowMarks, of_runs
from encodery.report.page.sections.hard_examples import texts
from encodery.tasks.base import Example

ROWS = 100
BINS = 40
LABELS = 20  # of a matrix
OUT_OF_FOLD = "out_of_fold.jsonl"


@dataclass(frozen=True)
class Suspect:
    """A row whose label looks wrong."""

    id: str
    example: Example | None
    label: str
    likelier: str
    score: float


def section(page: PageData) -> Section | None:
    """A picture and a table for each source, the most suspicious rows first."""
    panels: list[tuple[str, Html]] = []
    pictures: list[Picture] = []
    for number, marks in enumerate(of_runs(page)):
        suspects, count = of_margins(marks)
        if suspects:
            words = (
                f"{count:,} of {len(marks.examples):,} rows have a negative area under the margin: over training "
                "another label was more likely than theirs (Pleiss et al. 2020). Hard rows are among them: read before "
                "you drop."
            )
            chart = margins(f"margins-{number}", marks)
            pictures.append(chart)
            body = _table(page, f"suspects-aum-{number}", f"{marks.name}: lowest margins", suspects, "margin")
            parts = join(tag("p", words, class_="note"), figure(chart), body)
            panels.append((f"{marks.name}: area under the margin", parts))
    for number, path in enumerate(below(page.folders, OUT_OF_FOLD)):
        try:
            panels += _of_folds(page, path, number, pictures)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            reason = without_paths(short(str(error), 200))
            page.remark(f"{path.parent.name}/{OUT_OF_FOLD} is damaged and not shown ({reason})")
    whole = choice("suspects-choice", "Found by", panels) if panels else ""
    return Section("label-errors", "Likely label errors", whole, pictures) if panels else None


def margins(id: str, marks: RowMarks) -> Chart:
    """How many rows have which margin, the negative ones in a colour of their own; the ends hold what is beyond."""
    low, high = (float(np.quantile(marks.margin, share)) for share in (0.005, 0.995))
    width = max((high - low) / BINS, 1e-9)
    bins = np.floor(np.clip(marks.margin, low, high) / width).astype(int)  # zero is an edge
    first, last = int(bins.min()), int(bins.max())
    counts = np.bincount(bins - first, minlength=last - first + 1)
    x = [(first + place + 0.5) * width for place in range(len(counts))]
    parts = (("another label is likelier", [at < 0 for at in x]), ("its own label is likelier", [at > 0 for at in x]))
    series = [
        Series(name, x, [int(count) if mine else 0 for count, mine in zip(counts, those, strict=True)], kind="bars")
        for name, those in parts
    ]
    title = f"{marks.name}: area under the margin of {len(marks.examples):,} rows"
    return Chart(
        id,
        title,
        "logit of the row's label − highest other logit, mean over training",
        "rows",
        series[::-1],
        stacked=True,
    )


def of_margins(marks: RowMarks) -> tuple[list[Suspect], int]:
    """The rows with the lowest margins, as far as these are negative, and how many there are."""
    order = np.argsort(marks.margin, kind="stable")
    bad = [int(place) for place in order if marks.margin[place] < 0]
    suspects = []
    for place in bad[:ROWS]:
        example, likelier = marks.examples[place], marks.labels[marks.predicted[place]]
        suspects.append(Suspect(example.id, example, str(example.label), likelier, float(marks.margin[place])))
    return suspects, len(bad)


def _of_folds(page: PageData, path: Path, number: int, pictures: list[Picture]) -> list[tuple[str, Html]]:
    """Confident learning over the predictions of models that had not seen the row."""
    rows = [
        row
        for row in json_lines(path)
        if isinstance(row.get("probabilities"), dict) and isinstance(row.get("label"), str)
    ]
    labels = list(dict.fromkeys(name for row in rows for name in row["probabilities"]))
    rows = [row for row in rows if row["label"] in labels]
    if not rows:
        return []
    chances = np.array([[float(row["probabilities"].get(name, 0.0)) for name in labels] for row in rows])
    gold = np.array([labels.index(row["label"]) for row in rows])
    suspicion, flagged = label_errors.confident(chances, gold)
    order = [int(place) for place in np.argsort(-suspicion, kind="stable") if flagged[place]]
    name = path.resolve().parent.name
    if not order:
        return []
    suspects = _suspects(_examples(page, path), rows, [(place, float(suspicion[place])) for place in order[:ROWS]])
    words = (
        f"{len(order):,} of {len(rows):,} labels are likely wrong by confident learning (Northcutt et al. 2021): a "
        "model that had not seen the row is surer of another label than it usually is of that one."
    )
    body = _table(page, f"suspects-folds-{number}", f"{name}: most suspicious labels", suspects, "suspicion")
    drawn = [mistaken(f"mistaken-{number}", name, labels, gold, chances, order)] if len(labels) <= LABELS else []
    pictures += drawn
    parts = join(tag("p", words, class_="note"), *map(heat, drawn), body)
    return [(f"{name}: out-of-fold predictions", parts)]


def mistaken(
    id: str, name: str, labels: Sequence[str], gold: np.ndarray, chances: np.ndarray, flagged: Sequence[int]
) -> Heat:
    """Which label the suspicious rows carry, and which is likelier."""
    counts = np.zeros((len(labels), len(labels)), int)
    for place in flagged:
        counts[gold[place], chances[place].argmax()] += 1
    texts = [[f"{count:,}" if count else "" for count in line] for line in counts.tolist()]
    note = "Rows whose label is likely wrong: the label they carry, and the one that the models find likelier."
    values: list[list[float]] = counts.tolist()
    return Heat(
        id,
        f"{name}: which labels are mistaken",
        labels,
        labels,
        values,
        texts,
        x="likelier",
        y="label",
        low=0.0,
        note=note,
    )


def _suspects(
    examples: Mapping[str, Example], rows: Sequence[Mapping[str, Any]], chosen: Sequence[tuple[int, float]]
) -> list[Suspect]:
    suspects = []
    for place, score in chosen:
        row = rows[place]
        likelier = max(row["probabilities"], key=row["probabilities"].__getitem__)
        suspects.append(Suspect(str(row["id"]), examples.get(str(row["id"])), row["label"], likelier, score))
    return suspects


def _examples(page: PageData, path: Path) -> dict[str, Example]:
    """The rows of the folds: of the runs in this folder, whose train and dev sets are together the whole."""
    near = [record for record in page.records if record.path.resolve().parent == path.resolve().parent]
    for record in near:
        known: dict[str, Example] = {}
        for split in ("train", "dev"):
            rows = page.rows(record, f"{record.task}:{split}")
            known |= {example.id: example for example in rows.examples} if rows else {}
        if known:
            return known
    return {}


def _table(page: PageData, id: str, caption: str, suspects: Sequence[Suspect], score: str) -> Html:
    header = ["id", *(["text"] if page.text else []), "label", "likelier", score]
    lines = []
    for one in suspects:
        words = [texts(one.example) if one.example else ""] if page.text else []
        lines.append([one.id, *words, one.label, one.likelier, f"{one.score:.3f}"])
    return table(header, lines, id=id, caption=caption, numbers=[score], search="Search the rows")
