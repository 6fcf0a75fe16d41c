"""Classification of anyone's own data: metrics by name, and thresholds."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, model_validator

from encodery.errors import UserError
from encodery.tasks.base import Answer, Example
from encodery.tasks.forms import metric_names as by_name
from encodery.tasks.forms.classification import Classification, paired
from encodery.tasks.forms.metric_names import ParsedMetric
from encodery.tasks.forms.thresholds import choose, decide, unfit

if TYPE_CHECKING:
    from encodery.tasks.forms.label_metrics import Tables


class Scored(Classification):
    """Base: a subclass says what form its answers have and which labels there are."""

    metric: str | None = None
    """Main metric, such as f1, f1_spam, macro_f1, mcc, roc_auc. Default: accuracy, micro_f1 (multilabel) or spearman
    (regression)."""
    metrics: list[str] | None = None
    """Metrics to report besides the main metric. Default: the usual ones for the form."""
    positive_label: str | int | None = Field(default=None, alias="positive")
    """With two labels: the positive one, for f1, precision, recall, roc_auc, average_precision and threshold. Default:
    the second label."""
    threshold: Literal["dev", "dev_each"] | float | dict[str, float] | None = None
    """Probability above which the positive label, or each label of a multilabel task, is predicted. Default: 0.5. dev:
    the threshold with the best main metric on dev (or train.holdout), stored in the model; dev_each: one per label
    (multilabel); or numbers."""

    @model_validator(mode="after")
    def _metrics_fit(self) -> Self:
        for name in [*([self.metric] if self.metric else []), *(self.metrics or [])]:
            by_name.parse(name, self.answer_form)
        limits = self.threshold.values() if isinstance(self.threshold, dict) else [self.threshold]
        if any(isinstance(limit, float) and not 0 <= limit <= 1 for limit in limits):
            raise ValueError("threshold: expected a probability from 0 to 1")
        if self.threshold is not None and self.answer_form == "regression":
            raise ValueError("threshold: a regression has none")
        if self.threshold == "dev_each" and self.answer_form != "multilabel":
            raise ValueError("threshold: dev_each is for multilabel; use dev")
        if self.chooses_thresholds and (why := unfit(self._main)):
            raise ValueError(f"threshold: {why}; set metric to f1, macro_f1, mcc or another one to choose it by")
        return self

    @property
    def main_metric(self) -> str:
        """As named, else that of the form."""
        return self.metric or super().main_metric

    @property
    def _main(self) -> ParsedMetric:
        return by_name.parse(self.main_metric, self.answer_form)

    @property
    def chooses_thresholds(self) -> bool:
        """Whether thresholds are chosen after training."""
        return isinstance(self.threshold, str)

    @property
    def thresholds(self) -> Mapping[str, float]:
        """Those that are fixed by the settings."""
        if self.threshold is None or isinstance(self.threshold, str):
            return {}
        if isinstance(self.threshold, dict):
            return self.threshold
        return dict.fromkeys(self.labels if self.answer_form == "multilabel" else [self._yes], self.threshold)

    @property
    def _yes(self) -> str:
        return self.labels[-1] if self.positive_label is None else str(self.positive_label)

    def _require_fitting_labels(self, labels: Sequence[str]) -> None:
        """What can be refused once the labels are known."""
        form, two = self.answer_form, self.answer_form == "single" and len(labels) == 2
        for name in [*([self.metric] if self.metric else []), *(self.metrics or [])]:
            if why := by_name.fit(by_name.parse(name, form), labels, form):
                raise UserError(f"{self.name}: metric {name}: {why}")
        if self.positive_label is not None and (not two or str(self.positive_label) not in labels):
            raise UserError(
                f"{self.name}: positive: {self.positive_label} is not one of the two labels: {', '.join(labels)}"
            )
        if self.threshold is not None and form == "single" and not two:
            raise UserError(
                f"{self.name}: threshold is for two labels or form multilabel; there are {len(labels)} labels"
            )
        if isinstance(self.threshold, dict):
            unknown = [label for label in self.threshold if label not in labels]
            if unknown or (two and len(self.threshold) != 1):
                wanted = "one of the two labels" if two else f"labels among {', '.join(labels)}"
                raise UserError(f"{self.name}: threshold: expected {wanted}, not {', '.join(self.threshold)}")

    def choose_thresholds(self, answers: Mapping[str, Answer], examples: Sequence[Example]) -> dict[str, Any] | None:
        """The thresholds that are best for the main metric on these rows, and how good they are."""
        if not self.chooses_thresholds:
            return None
        tables = self._tables(*paired(self.name, answers, examples))
        found = choose(tables, self._main, by_label=self.threshold == "dev_each")
        return {**found.to_dict(), "metric": self.main_metric, "rows": len(examples)}

    def decided(self, answers: Mapping[str, Answer], thresholds: Mapping[str, float]) -> dict[str, Answer]:
        """The answers with other thresholds."""
        several = self.answer_form == "multilabel"
        return {
            id: {**answer, "prediction": decide(answer["probabilities"], thresholds, several)}
            for id, answer in answers.items()
        }

    def score(self, answers: Mapping[str, Answer], examples: Sequence[Example]) -> dict[str, float]:
        """The named metrics, or the usual ones with the main metric."""
        usual = {} if self.metrics is not None else super().score(answers, examples)
        wanted = list(dict.fromkeys([self.main_metric, *(self.metrics or []), *self._of_positive()]))
        missing = [by_name.parse(name, self.answer_form) for name in wanted if name not in usual]
        if not missing:
            return usual
        gold, paired_answers = paired(self.name, answers, examples)
        if self.answer_form == "regression":
            every = super().score(answers, examples)
            return {name: every[name] for name in wanted}
        tables = self._tables(gold, paired_answers)
        values = {metric.name: tables.value(metric) for metric in missing}
        if values.get(self.main_metric, 0.0) is None:
            raise UserError(
                f"{self.name}: {self.main_metric} needs the probability of each label; the answers have none"
            )
        return {**{name: value for name, value in values.items() if value is not None}, **usual}

    def _of_positive(self) -> list[str]:
        """Who names a positive label wants its F1."""
        return ["f1"] if self.positive_label is not None and self.metrics is None else []

    def _tables(self, gold: Sequence[Any], answers: Sequence[Answer]) -> "Tables":
        import numpy as np

        from encodery.tasks.forms.label_metrics import Tables

        single, labels = self.answer_form == "single", self.labels
        guess = [answer["prediction"] for answer in answers]
        rows = ([[one] for one in gold], [[one] for one in guess]) if single else (gold, guess)
        chances = None
        if all(set(labels) == set(answer.get("probabilities") or ()) for answer in answers):
            chances = np.asarray([[answer["probabilities"][label] for label in labels] for answer in answers])
        positive = self._yes if single and len(labels) == 2 else None
        return Tables(labels, self._table(rows[0]), self._table(rows[1]), chances, positive, single)
