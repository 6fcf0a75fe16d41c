"""What a trained head says: enough of a task to turn raw text into tokens and outputs into answers."""

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import Field

from encodery.errors import UserError
from encodery.tasks.base import Answer, Task
from encodery.tasks.forms.classification import Classification, Form
from encodery.tasks.forms.ranking import Ranking
from encodery.tasks.forms.spans import Spans
from encodery.tasks.forms.tagging import SPECIAL, Tagging


class AnswerCard(Task):
    """What the card beside the weights says of any head."""

    called: str
    """The task it was trained on, or `foreign`."""
    names: list[str] = []
    """Labels in the order of the outputs."""
    texts: int | None = None
    """Texts of an example; None where unknown, or where the number may differ."""
    max_length: int = Field(ge=4)
    """Longest sequence."""

    @property
    def name(self) -> str:
        return self.called

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels in the order of the outputs."""
        return tuple(self.names)

    @property
    def answer_kind(self) -> str:
        """What kind of answer: single, multilabel, regression, tagging, span, ranking."""
        raise NotImplementedError

    @property
    def unnamed(self) -> bool:
        """Whether the labels are transformers' placeholders, which say nothing."""
        return bool(self.names) and all(name.startswith("LABEL_") for name in self.names)

    def told(self, answer: Answer) -> Answer:
        """An answer as `predict` and `serve` give it: without what no file would hold."""
        return {key: value for key, value in answer.items() if key not in self.unwritten}


class Head(AnswerCard, Classification):
    """A head that gives a label, several, or a number."""

    form: Form
    """One label, several, or a number."""
    limits: tuple[float, float] | None = None
    """Numbers are cut to this range."""
    factor: float = 1.0
    """Numbers are multiplied by this."""
    offset: float = 0.0
    """Then this is added to them."""
    window_stride: int | None = None
    """Long texts are read in windows that begin so many pieces apart."""
    label_thresholds: list[float | None] = []
    """Probability above which each label is given, in the order of the outputs; None: none of its own."""

    @property
    def answer_kind(self) -> str:
        return self.form

    @property
    def answer_form(self) -> Form:
        return self.form

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Numbers are cut to this range."""
        return self.limits

    @property
    def scale(self) -> float:
        """Numbers are multiplied by this."""
        return self.factor

    @property
    def shift(self) -> float:
        """Then this is added to them."""
        return self.offset

    @property
    def thresholds(self) -> Mapping[str, float]:
        """Those that are kept beside the weights, under the names that the labels have now."""
        if not self.label_thresholds:
            return {}
        pairs = zip(self.names, self.label_thresholds, strict=True)
        return {name: limit for name, limit in pairs if limit is not None}

    @property
    def windows(self) -> int | None:
        """As it was trained."""
        return self.window_stride


class TagHead(AnswerCard, Tagging):
    """A head that gives a tag for every word."""

    @property
    def answer_kind(self) -> str:
        return "tagging"


class SpanHead(AnswerCard, Spans):
    """A head that finds the answer to a question in a text."""

    none_allowed: bool = True
    """Whether it may say that there is no answer."""

    @property
    def answer_kind(self) -> str:
        """A stretch of the text."""
        return "span"

    @property
    def unanswerable(self) -> bool:
        """Whether it may say that there is no answer."""
        return self.none_allowed

    def told(self, answer: Answer) -> Answer:
        """`text` and `start` are those of the prediction: of no answer there are none. Scores need the best stretch
        all the same."""
        none = {} if answer["prediction"] else {"text": "", "start": None}
        return {**super().told(answer), **none}


class RankHead(AnswerCard, Ranking):
    """A head that chooses among candidates."""

    @property
    def answer_kind(self) -> str:
        return "ranking"


AnyHead = Head | TagHead | SpanHead | RankHead


def form_of(task: Task) -> str:
    """One label, several, a number, tags, a stretch of text, or a candidate."""
    return task.answer_form if isinstance(task, Classification) else str(task.objective()["kind"])


def speaks(about: Mapping[str, Any]) -> bool:
    """Whether a head answers texts; those of pretraining do not."""
    objective = about["objective"]
    return objective["kind"] in MAKERS or {"form", "labels"} <= objective.keys()  # as derived from the classifier


def no_such_head(source: str | Path, wanted: str, names: Sequence[str], what: str = "head") -> str:
    """What to say of a head that a model does not have, or of a task: `houses` is nearly table/houses."""
    spelt = {part: name for name in names for part in (name.rpartition("/")[2], name)}
    near = get_close_matches(wanted, spelt, n=1)
    hint = f"; did you mean {spelt[near[0]]}?" if near else ""
    return f"{source}: has no {what} {wanted}; it has {', '.join(names)}{hint}"


def head_of(name: str, about: Mapping[str, Any]) -> AnyHead:
    """A head from the card that lies beside the weights."""
    kind = about["objective"]["kind"]
    if not speaks(about):
        raise UserError(f"this model was trained on {name} ({kind}) and has no prediction head")
    return MAKERS.get(kind, _label_head)(name, about)


def _label_head(name: str, about: Mapping[str, Any]) -> Head:
    objective = about["objective"]
    low, high = objective.get("low"), objective.get("high")
    return Head(
        called=name,
        form=objective["form"],
        names=objective["labels"],
        limits=None if low is None or high is None else (low, high),
        factor=about.get("scale", 1.0),
        offset=about.get("shift", 0.0),
        texts=about.get("texts"),
        max_length=about["max_length"],
        label_thresholds=_thresholds(about),
        **_trained(about, "window_stride"),
    )


def _thresholds(about: Mapping[str, Any]) -> list[float | None]:
    """The thresholds of a card, in the order of the outputs; empty if it has none."""
    kept: Mapping[str, float] = (about.get("thresholds") or {}).get("labels", {})
    return [kept.get(label) for label in about["objective"]["labels"]] if kept else []


def _tag_head(name: str, about: Mapping[str, Any]) -> TagHead:
    outputs: list[str] = about["objective"]["labels"]
    options = _trained(about, "stride", "train_on_special_labels")
    extra = [label for label in SPECIAL if options.get("train_on_special_labels") and label not in about["labels"]]
    names = outputs[: len(outputs) - len(extra)]
    return TagHead(called=name, names=names, texts=1, max_length=about["max_length"], **options)


def _span_head(name: str, about: Mapping[str, Any]) -> SpanHead:
    return SpanHead(
        called=name,
        head=about["objective"]["span_head"],
        none_allowed=about["objective"]["impossible"],
        texts=2,
        max_length=about["max_length"],
        **_trained(about, "stride", "max_question", "max_answer", "null_threshold"),
    )


def _rank_head(name: str, about: Mapping[str, Any]) -> RankHead:
    return RankHead(called=name, max_length=about["max_length"])


def _trained(about: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    """Options of the task that the head was trained on."""
    task = about.get("task") or {}
    return {key: task[key] for key in keys if key in task}


MAKERS: dict[str, Callable[[str, Mapping[str, Any]], AnyHead]] = {
    "classification": _label_head,
    "tagging": _tag_head,
    "span": _span_head,
    "ranking": _rank_head,
}
