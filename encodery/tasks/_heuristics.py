"""HANS and its kin: does a premise entail a hypothesis made of its words? Three answers are folded into two.

argmax  the likeliest of the head's labels; all but `entailment` are non-entailment (McCoy's way)
sum     non-entailment where the other labels together are likelier than entailment
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from encodery.tasks._heuristics_report import Report, alarm
from encodery.tasks.base import Answer, Example
from encodery.tasks.classify import Classification, paired

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
    """How three answers become two: argmax (McCoy's), or sum (neutral and contradiction together)."""

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
        """All figures."""
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
