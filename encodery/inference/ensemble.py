"""Several models' answers to the same rows, as one: the mean of their probabilities or numbers."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from encodery.errors import UserError
from encodery.inference.answer_head import AnyHead, Head, SpanHead, form_of
from encodery.tasks.base import Answer, Task
from encodery.tasks.forms.spans import KEPT
from encodery.tasks.forms.tagging import Tagging
from encodery.tasks.forms.thresholds import HALF, decide

Join = Callable[[Task, Sequence[AnyHead], Sequence[Answer]], Answer]


def average(task: Task, heads: Sequence[AnyHead], each: Sequence[Mapping[str, Answer]]) -> dict[str, Answer]:
    """The mean of several models' answers by example id; the heads that gave them say what their outputs are called."""
    if len(each) == 1:
        return dict(each[0])
    how: dict[str, Join] = {
        "single": _label,
        "multilabel": _labels,
        "regression": _number,
        "tagging": _tags,
        "span": _span,
        "ranking": _candidate,
    }
    if form_of(task) not in how:
        raise UserError(f"{task.name}: there is no way to average predictions of form {form_of(task)}")
    join = how[form_of(task)]
    return {id: join(task, heads, [answers[id] for answers in each]) for id in each[0]}


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _chances(names: Sequence[str], answers: Sequence[Answer]) -> dict[str, float]:
    return {name: _mean([a["probabilities"][name] for a in answers]) for name in names}


def _names(task: Task, answers: Sequence[Answer]) -> Sequence[str]:
    """The task's labels, or those that all models have: a model of three answers a task of two."""
    own = list(answers[0]["probabilities"])
    if any(set(answer["probabilities"]) != set(own) for answer in answers):
        raise UserError(f"{task.name}: the models have different labels, so their answers cannot be averaged")
    return task.labels if set(own) == set(task.labels) else own


def _label(task: Task, heads: Sequence[AnyHead], answers: Sequence[Answer]) -> Answer:
    chances, limits = _chances(_names(task, answers), answers), _thresholds(heads)
    said = decide(chances, limits, several=False) if limits else max(chances, key=chances.__getitem__)
    return {"prediction": said, "probabilities": chances}


def _thresholds(heads: Sequence[AnyHead]) -> dict[str, float]:
    """The mean of the models' thresholds, as of their probabilities; a model without one has 0.5."""
    each = [head.thresholds for head in heads if isinstance(head, Head)]
    labels = dict.fromkeys(label for limits in each for label in limits)
    return {label: _mean([limits.get(label, HALF) for limits in each]) for label in labels}


def _labels(task: Task, heads: Sequence[AnyHead], answers: Sequence[Answer]) -> Answer:
    chances = _chances(task.labels, answers)
    return {"prediction": decide(chances, _thresholds(heads), several=True), "probabilities": chances}


def _number(task: Task, heads: Sequence[AnyHead], answers: Sequence[Answer]) -> Answer:
    return {"prediction": _mean([answer["prediction"] for answer in answers])}


def _candidate(task: Task, heads: Sequence[AnyHead], answers: Sequence[Answer]) -> Answer:
    chances = _chances(list(answers[0]["probabilities"]), answers)
    return {"prediction": max(chances, key=chances.__getitem__), "probabilities": chances}


def _tags(task: Task, heads: Sequence[AnyHead], answers: Sequence[Answer]) -> Answer:
    """Word by word: whatever the pieces of a model are, its words are those of the others."""
    places = [[head.labels.index(label) for label in task.labels] for head in heads]
    own = [answer["chances"][:, place] for answer, place in zip(answers, places, strict=True)]
    return cast(Tagging, task).said(sum(own) / len(own))


def _span(task: Task, heads: Sequence[AnyHead], answers: Sequence[Answer]) -> Answer:
    """Stretches of the text, which models of any tokenizer share: each has its share of a model's n-best list."""
    shares: dict[tuple[int, str], list[float]] = {}
    for answer in answers:
        for place, share in _shares(answer["nbest"]).items():
            shares.setdefault(place, []).append(share)
    scores = {place: math.log(math.fsum(found) / len(answers)) for place, found in shares.items()}
    order = sorted(scores, key=lambda place: (-scores[place], place))[:KEPT]
    nbest = [{"text": text, "score": scores[start, text], "start": start} for start, text in order]
    start, text = order[0] if order else (None, "")
    odds = _mean([answer["null_odds"] for answer in answers])
    none = _may_say_none(heads) and odds > _mean([cast(SpanHead, head).threshold for head in heads])
    return {"prediction": "" if none else text, "text": text, "start": start, "null_odds": odds, "nbest": nbest}


def _may_say_none(heads: Sequence[AnyHead]) -> bool:
    said = {cast(SpanHead, head).unanswerable for head in heads}
    if len(said) > 1:
        raise UserError(
            "some of these models can predict `no answer` and others cannot, so they cannot form an ensemble"
        )
    return said.pop()


def _shares(nbest: Sequence[Mapping[str, Any]]) -> dict[tuple[int, str], float]:
    """Softmax over the list."""
    top = max((one["score"] for one in nbest), default=0.0)
    weights = {(one["start"], one["text"]): math.exp(one["score"] - top) for one in nbest}
    return {place: weight / math.fsum(weights.values()) for place, weight in weights.items()}
