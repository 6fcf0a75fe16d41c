"""The data map of training dynamics (Swayamdipta et al. 2020): confidence × variability, and the rows at its ends."""

import math
from collections.abc import Sequence

import numpy as np

from encodery.report.page.chart import Dots, Picture, Section
from encodery.report.page.data import PageData
from encodery.report.page.html import Html, choice, dots, join, paragraphs, table, tag
from encodery.report.page.point_map import POINTS, thinned
from encodery.report.page.row_marks import RowMarks, columns_of, of_runs
from encodery.report.page.sections.hard_examples import texts
from encodery.tasks.base import Example

ROWS = 60  # of a table
MAPS = 4
SOMETIMES = 0.2  # variability above which a row is called ambiguous in a sentence


def section(page: PageData) -> Section | None:
    """A map and three tables for each configuration that recorded dynamics."""
    every = of_runs(page)
    if len(every) > MAPS:
        page.remark(f"Data map: the first {MAPS} of {len(every)} configurations are drawn; give fewer folders")
    panels, pictures = [], []
    for number, marks in enumerate(every[:MAPS]):
        drawn = _map(page, f"data-map-{number}", marks, POINTS // min(len(every), MAPS))
        pictures.append(drawn)
        panels.append((marks.name, join(paragraphs(told(marks), "results"), dots(drawn), _tables(page, number, marks))))
    body = choice("data-map-choice", "Configuration", panels) if panels else ""
    shown: list[Picture] = [*pictures]
    return Section("data-map", "Data map", body, shown) if panels else None


def told(marks: RowMarks) -> list[str]:
    """How many rows are easy, ambiguous, and never learnt."""
    count = len(marks.examples)
    never, always = int((marks.correctness == 0).sum()), int((marks.correctness == 1).sum())
    between = int((marks.variability > SOMETIMES).sum())
    where, nowhere = _always_and_never(marks.looks, marks.runs)
    return [
        f"Of {count:,} rows {always:,} ({always / count:.0%}) are predicted correctly {where}, and {never:,} "
        f"({never / count:.1%}) {nowhere}.",
        f"{between:,} rows ({between / count:.0%}) are ambiguous: their confidence varies by more than {SOMETIMES:g}.",
    ]


def _always_and_never(looks: int, runs: int) -> tuple[str, str]:
    """`at each of 5 records and 3 seeds` and `at none`."""
    if looks > 1:
        return f"at each of {looks} records" + (f" and {runs} seeds" if runs > 1 else ""), "at none"
    return (f"by each of {runs} seeds", "by none") if runs > 1 else ("at the only record", "are not")


def _map(page: PageData, id: str, marks: RowMarks, most: int) -> Dots:
    places = thinned(len(marks.examples), most)
    examples = [marks.examples[place] for place in places]
    columns: dict[str, Sequence[str | float | None]] = {
        "correctness": [float(marks.correctness[place]) for place in places],
        "label": [str(example.label) for example in examples],
        "predicted": [marks.labels[marks.predicted[place]] for place in places],
        **columns_of(examples),
    }
    how = {"train": "during each epoch, with dropout", "eval": "after each epoch"}.get(marks.record, marks.record)
    note = (
        "Confidence is the mean probability of the row's label over all records, variability its standard deviation, "
        f"correctness the share of records with the right prediction. Records: {how}."
    )
    return Dots(
        id, f"{marks.name}: {len(marks.examples):,} training rows", [example.id for example in examples],
        marks.variability[places].tolist(), marks.confidence[places].tolist(), columns,
        texts=[" | ".join(example.texts) for example in examples] if page.text else (),
        x_name="variability", y_name="confidence", note=note, of=len(marks.examples),
        fixed={"y": (0.0, 1.0), "x": (0.0, _edge(float(marks.variability.max()))), "correctness": (0.0, 1.0)},
    )  # fmt: skip


def _edge(most: float) -> float:
    """The end of the axis: the next twentieth, so that runs of few epochs do not draw half an empty map."""
    return max(0.1, math.ceil(20 * most) / 20)


def _tables(page: PageData, number: int, marks: RowMarks) -> Html:
    never = np.flatnonzero(marks.correctness == 0)
    kinds = {
        "Hardest (least confident)": np.argsort(marks.confidence, kind="stable")[:ROWS],
        "Most ambiguous (most variable)": np.argsort(-marks.variability, kind="stable")[:ROWS],
        f"Never learnt ({len(never):,})": never[np.argsort(marks.confidence[never], kind="stable")][:ROWS],
    }
    panels = [
        (name, row_table(page, f"data-map-{number}-{i}", name, marks, places.tolist()))
        for i, (name, places) in enumerate(kinds.items())
        if len(places)
    ]
    return tag("div", choice(f"data-map-{number}-rows", "Rows", panels), class_="rows")


def row_table(page: PageData, id: str, name: str, marks: RowMarks, places: Sequence[int]) -> Html:
    """Rows with their marks, to search and sort."""
    header = ["id", *(["text"] if page.text else []), "label", "predicted", "confidence", "variability", "correctness"]
    header.append("margin")
    lines = [_line(page, marks, marks.examples[place], place) for place in places]
    caption = f"{marks.name}: {name.lower()}"
    return table(header, lines, id=id, caption=caption, numbers=header[-4:], search="Search the rows")


def _line(page: PageData, marks: RowMarks, example: Example, row: int) -> list[str]:
    numbers = (marks.confidence, marks.variability, marks.correctness)
    return [
        example.id,
        *([texts(example)] if page.text else []),
        str(example.label),
        marks.labels[marks.predicted[row]],
        *(f"{values[row]:.3f}" for values in numbers),
        f"{marks.margin[row]:.2f}",
    ]
