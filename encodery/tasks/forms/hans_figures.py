"""The figures of HANS: by heuristic, subcase and template, as text, JSON, CSV and Markdown."""

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from encodery.core.text import markdown_table
from encodery.tasks.base import Answer, Example
from encodery.tasks.forms.classification import Classification, paired

ENTAILED = "entailment"
Z = 1.959963984540054  # of a 95 % interval
CAUSES = (
    "Usual causes: a model that has collapsed to one answer (look at its score on its own dev set), segment ids that "
    "were set in training but not in evaluation, and a wrong order of the model's labels"
)
REGENERATED = "regenerated HANS, drawn again from the authors' templates: NOT the published file"
NOT_PUBLISHED = "regenerated, not the published HANS"


def caution(*notes: str | None) -> str:
    """What stands beside every figure of rows with these notes, such as ` (regenerated, not the published HANS)`."""
    return f" ({NOT_PUBLISHED})" if any(note and "regenerated HANS" in note for note in notes) else ""


@dataclass(frozen=True)
class Cell:
    """Right answers of a kind of pair."""

    right: int
    rows: int

    @property
    def rate(self) -> float:
        """The share of right answers."""
        return self.right * 1.0 / self.rows

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval; the pairs of a template are alike, so the truth is wider."""
        n, p = self.rows, self.rate
        centre = (p + Z * Z / (2 * n)) / (1 + Z * Z / n)
        half = Z * math.sqrt(p * (1 - p) / n + Z * Z / (4 * n * n)) / (1 + Z * Z / n)
        return max(0.0, centre - half), min(1.0, centre + half)

    def to_dict(self) -> dict[str, Any]:
        return {"accuracy": self.rate, "right": self.right, "rows": self.rows, "interval": list(self.interval)}


Cells = Mapping[str, Cell]


@dataclass(frozen=True)
class Report:
    """All figures of one model; names stand in the order of their first appearance in the data."""

    entailed: Cells
    non_entailed: Cells
    subcases: Cells
    templates: Cells
    confusion: Mapping[str, Mapping[str, int]]  # what was said -> gold label -> how often
    rows: int

    @classmethod
    def of(cls, answers: Sequence[Answer], examples: Sequence[Example]) -> "Report":
        """Of folded answers in the order of the examples."""
        right = [answer["prediction"] == example.label for answer, example in zip(answers, examples, strict=True)]

        marked = list(zip(examples, right, strict=True))

        def by(name: str, entails: bool | None = None) -> dict[str, Cell]:
            order = dict.fromkeys(str(e.extra[name]) for e in examples if name in e.extra)
            wanted = [(e, mark) for e, mark in marked if entails is None or (e.label == ENTAILED) == entails]
            return _cells(order, ((str(e.extra.get(name)), mark) for e, mark in wanted))

        confusion: dict[str, dict[str, int]] = {}
        for answer, example in zip(answers, examples, strict=True):
            row = confusion.setdefault(str(answer.get("said", answer["prediction"])), {})
            row[str(example.label)] = row.get(str(example.label), 0) + 1
        halves = by("heuristic", True), by("heuristic", False)
        return cls(*halves, by("subcase"), by("template"), confusion, len(examples))

    @property
    def right(self) -> int:
        """Right answers in all."""
        return sum(cell.right for part in (self.entailed, self.non_entailed) for cell in part.values())

    @property
    def said_yes(self) -> int:
        """How many pairs were called entailed."""
        wrong = sum(cell.rows - cell.right for cell in self.non_entailed.values())
        return sum(cell.right for cell in self.entailed.values()) + wrong

    def scores(self) -> dict[str, float]:
        """Flat numbers for scores.json and tables."""
        rates = {"accuracy": self.right / self.rows, "predicted_entailment": self.said_yes / self.rows}
        for name, part in (("entailed", self.entailed), ("non_entailed", self.non_entailed)):
            rates |= {f"{name}_{heuristic}": cell.rate for heuristic, cell in part.items()}
        both = [name for name in self.entailed if name in self.non_entailed]
        return rates | {f"mean_{name}": (self.entailed[name].rate + self.non_entailed[name].rate) / 2 for name in both}

    def text(self) -> str:
        """As McCoy's evaluate_heur_output.py prints it."""
        parts = {
            "Heuristic entailed results:": self.entailed,
            "Heuristic non-entailed results:": self.non_entailed,
            "Subcase results:": self.subcases,
            "Template results:": self.templates,
        }
        blocks = ["\n".join([title, *(f"{n}: {c.rate}" for n, c in cells.items())]) for title, cells in parts.items()]
        return "\n\n".join(blocks) + "\n"

    def to_dict(self) -> dict[str, Any]:
        names = ("entailed", "non_entailed", "subcases", "templates")
        cells = {name: {key: cell.to_dict() for key, cell in getattr(self, name).items()} for name in names}
        return {"rows": self.rows, "scores": self.scores(), **cells, "confusion": self.confusion}

    def json(self) -> str:
        return json.dumps(self.to_dict(), indent=1) + "\n"

    def csv(self) -> str:
        """One line for each cell."""
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["kind", "name", "accuracy", "low", "high", "rows"])
        for kind in ("entailed", "non_entailed", "subcases", "templates"):
            for name, cell in getattr(self, kind).items():
                writer.writerow([kind, name, cell.rate, *cell.interval, cell.rows])
        return stream.getvalue()

    def markdown(self) -> str:
        """Heuristics, then subcases, then what the model said."""
        scores, rows = self.scores(), []
        for name in {**self.entailed, **self.non_entailed}:
            two = [_spell(part.get(name)) for part in (self.entailed, self.non_entailed)]
            mean = scores.get(f"mean_{name}")
            rows.append([name, *two, "" if mean is None else f"{100 * mean:.1f}"])
        gold = sorted({label for row in self.confusion.values() for label in row})
        predicted = f"entailment predicted {100 * scores['predicted_entailment']:.1f} %"
        blocks = [
            markdown_table(["heuristic", "entailed", "non-entailed", "mean"], rows),
            f"accuracy {100 * scores['accuracy']:.1f}, {predicted}",
            markdown_table(["subcase", "accuracy"], [[name, _spell(cell)] for name, cell in self.subcases.items()]),
            markdown_table(
                ["predicted", *gold], [[said, *(row.get(g, 0) for g in gold)] for said, row in self.confusion.items()]
            ),
        ]
        return "\n\n".join(blocks) + "\n"


def _cells(order: Mapping[str, None], marks: Iterable[tuple[str, bool]]) -> dict[str, Cell]:
    """Counts by name, without names that do not occur."""
    right, rows = dict.fromkeys(order, 0), dict.fromkeys(order, 0)
    for name, mark in marks:
        if name in rows:
            right[name] += mark
            rows[name] += 1
    return {name: Cell(right[name], rows[name]) for name in order if rows[name]}


def _spell(cell: Cell | None) -> str:
    if cell is None:
        return ""
    low, high = cell.interval
    return f"{100 * cell.rate:.1f} ({100 * low:.1f}-{100 * high:.1f})"


def alarm(report: Report, collapsed: str | None = None) -> str | None:
    """A sentence if no healthy model of entailment gives such figures. `collapsed`: how the run shows on its own data
    that it has learnt nothing, which then is the cause.

    Nearly everything called entailed is no sign of a fault: published models that go by word overlap (McCoy's ESIM,
    decomposable attention) say it of 98 to 99 % of all pairs, but of none of them of every single one.
    """
    yes = report.said_yes / report.rows
    if report.entailed and all(cell.rate < 0.5 for cell in report.entailed.values()):
        rates = ", ".join(f"{name} {cell.rate:.2f}" for name, cell in report.entailed.items())
        finding = f"entailed pairs are mostly called non-entailed ({rates})"
    elif report.said_yes == report.rows or (collapsed and not 0.02 < yes < 0.98):
        finding = f"{100 * yes:.1f} % of all pairs are called entailed"
    else:
        return None
    if collapsed:
        return f"{finding}. The run has collapsed on its own data ({collapsed}): these figures tell no more than that."
    return f"{finding}. {CAUSES}."


def together(reports: Sequence[Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Mean, standard deviation and range of each score over seeds."""
    by_score = {}
    for name in reports[0]:
        values = [report[name] for report in reports]
        mean = math.fsum(values) / len(values)
        spread = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1)) if len(values) > 1 else 0.0
        by_score[name] = {"mean": mean, "sd": spread, "low": min(values), "high": max(values)}
    return by_score


# HANS and its kin: does a premise entail a hypothesis made of its words? Three answers are folded into two.
#
# argmax  the likeliest of the head's labels; all but `entailment` are non-entailment (McCoy's way)
# sum     non-entailment where the other labels together are likelier than entailment


YES, NO = "entailment", "non-entailment"


class Heuristics(Classification):
    """Base: a subclass gives name, splits, examples and origin; examples have heuristic and subcase in `extra`."""

    also_labels: ClassVar[tuple[tuple[str, ...], ...]] = (
        (YES, "neutral", "contradiction"),
        (YES, "not_entailment"),
    )
    free_labels: ClassVar[bool] = True
    more_ids: ClassVar[bool] = True

    collapse: Literal["argmax", "sum"] = "argmax"
    """How three classes become two. argmax: as in McCoy et al.; sum: add the probabilities of neutral and
    contradiction."""

    @property
    def labels(self) -> tuple[str, ...]:
        """In the hub's order."""
        return YES, NO

    def fold(self, answer: Answer) -> Answer:
        """The answer of any head that fits, as one of two; what it said itself is kept as `said`."""
        said = str(answer.get("said", answer["prediction"]))
        chances = answer.get("probabilities")
        yes = said == YES
        if self.collapse == "sum" and chances:
            yes = yes and chances[YES] >= sum(chance for label, chance in chances.items() if label != YES)
        return {**answer, "prediction": YES if yes else NO, "said": said}

    def decode(self, rows: Any, examples: Sequence[Example] = ()) -> dict[str, Answer]:
        """Answers of a head that was trained on this very task."""
        return {id: self.fold(answer) for id, answer in super().decode(rows, examples).items()}

    def score(self, answers: Mapping[str, Answer], examples: Sequence[Example]) -> dict[str, float]:
        """Accuracy, and the same by heuristic for pairs that entail and for those that do not."""
        return self.summary(answers, examples).scores()

    def summary(self, answers: Mapping[str, Answer], examples: Sequence[Example]) -> Report:
        _, found = paired(self.name, answers, examples)
        return Report.of([self.fold(answer) for answer in found], examples)

    def alarms(
        self, answers: Mapping[str, Answer], examples: Sequence[Example], collapsed: str | None = None
    ) -> list[str]:
        """What no healthy model gives; `collapsed` says that the run behind it is none."""
        sentence = alarm(self.summary(answers, examples), collapsed)
        return [sentence] if sentence else []

    def pages(self, answers: Mapping[str, Answer], examples: Sequence[Example]) -> dict[str, str]:
        """McCoy's text and predictions, and our JSON, CSV and Markdown."""
        report = self.summary(answers, examples)
        official = "pairID,gold_label\n" + "".join(f"{e.id},{answers[e.id].get('said')}\n" for e in examples)
        return {
            "report.txt": report.text(), "report.json": report.json(), "report.csv": report.csv(),
            "report.md": report.markdown(), "mccoy.txt": official,
        }  # fmt: skip
