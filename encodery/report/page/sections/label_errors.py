"""Likely label errors: by the area under the margin of training dynamics, and by out-of-fold predictions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from encodery.core import label_errors
from encodery.core.redact import without_paths
from encodery.report.groups import short
from encodery.report.page.chart import Section
from encodery.report.page.data import PageData, below, json_lines
from encodery.report.page.html import Html, choice, join, table, tag
from encodery.report.page.row_marks import RowMarks, of_runs
from encodery.report.page.sections.hard_examples import texts
from encodery.tasks.base import Example

ROWS = 100
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
    """A table for each source, the most suspicious rows first."""
    panels = []
    for number, marks in enumerate(of_runs(page)):
        suspects, count = of_margins(marks)
        if suspects:
            words = (
                f"{count:,} of {len(marks.examples):,} rows have a negative area under the margin: over training "
                "another label was more likely than theirs (Pleiss et al. 2020). Hard rows are among them: read before "
                "you drop."
            )
            body = _table(page, f"suspects-aum-{number}", f"{marks.name}: lowest margins", suspects, "margin")
            panels.append((f"{marks.name}: area under the margin", join(tag("p", words, class_="note"), body)))
    for number, path in enumerate(below(page.folders, OUT_OF_FOLD)):
        try:
            panels += _of_folds(page, path, number)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            reason = without_paths(short(str(error), 200))
            page.remark(f"{path.parent.name}/{OUT_OF_FOLD} is damaged and not shown ({reason})")
    whole = choice("suspects-choice", "Found by", panels) if panels else ""
    return Section("label-errors", "Likely label errors", whole) if panels else None


def of_margins(marks: RowMarks) -> tuple[list[Suspect], int]:
    """The rows with the lowest margins, as far as these are negative, and how many there are."""
    order = np.argsort(marks.margin, kind="stable")
    bad = [int(place) for place in order if marks.margin[place] < 0]
    suspects = []
    for place in bad[:ROWS]:
        example, likelier = marks.examples[place], marks.labels[marks.predicted[place]]
        suspects.append(Suspect(example.id, example, str(example.label), likelier, float(marks.margin[place])))
    return suspects, len(bad)


def _of_folds(page: PageData, path: Path, number: int) -> list[tuple[str, Html]]:
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
    return [(f"{name}: out-of-fold predictions", join(tag("p", words, class_="note"), body))]


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
