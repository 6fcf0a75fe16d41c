"""What all tasks share that ask where in a text the answer to a question stands: windows, decoding, scores."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from pydantic import Field

from encodery.errors import RunFailed
from encodery.tasks import _squad_metrics as official
from encodery.tasks._windows import Window, best_window, windows
from encodery.tasks.base import Answer, Example, Features, Pieces, Task
from encodery.tasks.classify import CHUNK, HIDDEN, paired

KEPT = 20  # candidates in the n-best list
LEAD = 3  # words of the answer that needs no model


class Spelled(NamedTuple):
    """A context in pieces, with the place of each in the text."""

    ids: Sequence[int]
    places: Sequence[tuple[int, int]]


class Candidate(NamedTuple):
    """A stretch of the context."""

    score: float
    begin: int
    end: int


class Spans(Task):
    """Base: a subclass gives name, splits, examples and origin.

    An example's texts are question and context; its label the gold answers (none: unanswerable, None: hidden), and
    `extra["starts"]` says at which character each begins.
    """

    head: Literal["simple", "joint"] = "simple"
    """simple: transformers' own class; joint: ELECTRA's, the end conditioned on the start, with answerability."""
    stride: int = Field(default=128, ge=1)
    """Long contexts are read in windows that begin so many pieces apart."""
    max_question: int = Field(default=64, ge=1)
    """Longer questions are cut to so many pieces."""
    max_answer: int = Field(default=30, ge=1)
    """Longest answer in pieces."""
    null_threshold: float | None = None
    """`No answer` where its score is above this; default: 0 (simple), -2.75 (joint). Scores also name the best one."""

    @property
    def unanswerable(self) -> bool:
        """Whether there are questions without an answer."""
        return True

    def metric_names(self, objective: str | None = None) -> tuple[str, ...]:
        """Where questions may have no answer, also the scores at the best threshold."""
        found, more = super().metric_names(objective), ("exact", "f1")
        at_best = [f"best_{name}{end}" for name in more for end in ("", "_threshold")]
        return (*found, *at_best) if found and self.unanswerable else found

    @property
    def labels(self) -> tuple[str, ...]:
        """Answers are texts, not labels."""
        return ()

    @property
    def main_metric(self) -> str:
        """Mean F1 of the words."""
        return "f1"

    @property
    def threshold(self) -> float:
        """Where `no answer` begins."""
        usual = -2.75 if self.head == "joint" else 0.0
        return usual if self.null_threshold is None else self.null_threshold

    def objective(self) -> dict[str, Any]:
        """Kind and options of the objective."""
        return {"kind": "span", "span_head": self.head, "impossible": self.unanswerable}

    # Text to windows

    def encode(self, examples: Sequence[Example], pieces: Pieces, max_length: int) -> Iterator[Features]:
        """One sequence per window of the context, the question before each."""
        for start in range(0, len(examples), CHUNK):
            chunk = examples[start : start + CHUNK]
            questions = pieces.many([example.texts[0] for example in chunk])
            texts = list(dict.fromkeys(example.texts[1] for example in chunk))
            contexts = {text: Spelled(*one) for text, one in zip(texts, pieces.spelled(texts), strict=True)}
            for row, (example, question) in enumerate(zip(chunk, questions, strict=True), start):
                yield from self._windows(row, example, question, contexts[example.texts[1]], pieces, max_length)

    def _windows(
        self, row: int, example: Example, question: Sequence[int], context: Spelled, pieces: Pieces, max_length: int
    ) -> Iterator[Features]:
        before, between, after = pieces.special(pair=True)
        room = max_length - before - between - after
        question = question[: min(self.max_question, room // 2)]
        found = windows(len(context.ids), room - len(question), self.stride)
        best = best_window(found, len(context.ids))
        lead = before + len(question) + between
        gold = gold_pieces(example, context.places)
        for number, window in enumerate(found):
            ids, types = pieces.join(question, context.ids[window.begin : window.end], max_length)
            inside = range(window.begin, window.end)
            marks = {
                "begin": [*[-1] * lead, *(context.places[i][0] for i in inside), *[-1] * after],
                "end": [*[-1] * lead, *(context.places[i][1] for i in inside), *[-1] * after],
                "best": [*[0] * lead, *(int(best[i] == number) for i in inside), *[0] * after],
            }
            allowed = [1, *[0] * (lead - 1), *[1] * (len(inside) + after)]
            yield Features(row, ids, types, targets_of(example, gold, window, lead), {"allowed": allowed}, marks)

    def reading(self) -> dict[str, Any]:
        """How the windows are cut."""
        return {"stride": self.stride, "max_question": self.max_question}

    # Windows to answers

    def decode(self, rows: Iterable[Mapping[str, Any]], examples: Sequence[Example] = ()) -> dict[str, Answer]:
        """The best stretches of each context, the score of no answer, and what these say together."""
        by_id: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
        for row in rows:
            by_id[str(row["id"])].append(row)
        return {example.id: self._answer(example, by_id[example.id]) for example in examples}

    def _answer(self, example: Example, rows: Sequence[Mapping[str, Any]]) -> Answer:
        null = min(row["null"] for row in rows)
        candidates = sorted((c for row in rows for c in self.candidates(row)), key=lambda c: -c.score)
        listed: dict[str, Candidate] = {}
        for candidate in candidates:
            text = example.texts[1][candidate.begin : candidate.end]
            if text and len(listed) < KEPT:
                listed.setdefault(text, candidate)
        best, found = next(iter(listed.items()), ("", None))
        odds = null if self.head == "joint" or found is None else null - found.score
        if odds != odds:
            raise RunFailed(f"{self.name}: the model's output for question {example.id} is not a finite number")
        none = self.unanswerable and odds > self.threshold
        return {
            "prediction": "" if none else best,
            "text": best,
            "start": found.begin if found else None,
            "null_odds": odds,
            "nbest": [{"text": text, "score": c.score, "start": c.begin} for text, c in listed.items()],
        }

    def candidates(self, row: Mapping[str, Any]) -> Iterator[Candidate]:
        """The legal stretches of a window: in the context, seen best in this window, not too long, not backwards."""
        begin, end, best = row["begin"], row["end"], row["best"]
        pairs = zip(row["starts"], row["start_scores"], row["ends"], row["end_scores"], strict=True)
        for first, first_score, lasts, last_scores in pairs:
            if first >= len(begin) or begin[first] < 0 or not best[first]:
                continue
            for last, last_score in zip(lasts, last_scores, strict=True):
                if first <= last < min(len(end), first + self.max_answer) and end[last] >= 0:
                    yield Candidate(first_score + last_score, begin[first], end[last])

    # Answers to scores

    def simplest(self, train: Sequence[Example], examples: Sequence[Example]) -> dict[str, Answer]:
        """`No answer` where there are such questions, else the first words of the context."""
        none = any(example.label == () for example in train)
        return {e.id: {"prediction": "" if none else " ".join(e.texts[1].split()[:LEAD])} for e in examples}

    def score(self, answers: Mapping[str, Answer], examples: Sequence[Example]) -> dict[str, float]:
        """Official EM and F1 as fractions; where the odds of no answer are known, also at their best threshold."""
        gold, found = paired(self.name, answers, examples)
        labels = {example.id: label for example, label in zip(examples, gold, strict=True)}
        answerable = {id: official.golds(texts) != [""] for id, texts in labels.items()}
        said = {e.id: str(a["prediction"]) for e, a in zip(examples, found, strict=True)}
        scores = official.means(official.raw_scores(labels, said), answerable)
        if not self.unanswerable or not all("null_odds" in answer for answer in found):
            return scores
        odds = {e.id: float(a["null_odds"]) for e, a in zip(examples, found, strict=True)}
        texts = {e.id: str(a.get("text", a["prediction"])) for e, a in zip(examples, found, strict=True)}
        raw = official.raw_scores(labels, texts)
        for place, name in enumerate(("exact", "f1")):
            one = {id: values[place] for id, values in raw.items()}
            best, threshold = official.best_threshold(one, texts, answerable, odds)
            scores |= {f"best_{name}": best, f"best_{name}_threshold": threshold}
        return scores

    def official_files(self, answers: Mapping[str, Answer]) -> dict[str, Any]:
        """predictions, texts (never empty), null_odds and nbest, by id: what the official script reads."""
        files: dict[str, Any] = {"predictions": {id: answer["prediction"] for id, answer in answers.items()}}
        if self.unanswerable:  # for the search of a threshold every question needs a text
            files["texts"] = {id: answer["text"] for id, answer in answers.items()}
            files["null_odds"] = {id: answer["null_odds"] for id, answer in answers.items()}
        return files | {"nbest": {id: answer["nbest"] for id, answer in answers.items()}}


def gold_pieces(example: Example, places: Sequence[tuple[int, int]]) -> Window | None:
    """First and last piece of the smallest stretch of pieces that covers the first gold answer."""
    label: Any = example.label
    if not label:
        return None
    begin = example.extra["starts"][0]
    end = begin + len(label[0])
    covered = [i for i, (a, b) in enumerate(places) if a < end and b > begin]
    return Window(covered[0], covered[-1]) if covered else None


def targets_of(example: Example, gold: Window | None, window: Window, lead: int) -> dict[str, Any]:
    """Start, end (0 where the window does not hold the whole answer), and whether the question has none."""
    if example.label is None:
        return {"start": HIDDEN, "end": HIDDEN, "impossible": float("nan")}
    impossible = float(example.label == ())
    if gold is None or gold.begin < window.begin or gold.end >= window.end:
        return {"start": 0, "end": 0, "impossible": impossible}
    shift = lead - window.begin
    return {"start": gold.begin + shift, "end": gold.end + shift, "impossible": impossible}
