"""What all tasks share that ask where in a text the answer to a question stands: windows, decoding, scores."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import Field

from encodery.errors import RunFailed, UserError
from encodery.tasks.base import HIDDEN, Answer, Example, Features, Pieces, Task
from encodery.tasks.forms import metrics as official
from encodery.tasks.forms.classification import CHUNK, Window, best_window, paired, windows
from encodery.tasks.sources.readers import Bad, Row, Sheet, is_rows, need_columns, read, shown
from encodery.tasks.sources.rows import text_of

# Files in SQuAD's layouts: the official JSON, or rows (jsonl, Parquet) with id, context, question and answers.


COLUMNS = (
    "id",
    "title",
    "context",
    "question",
    "answer_text",
    "answer_start",
    "is_impossible",
    "answers",
    "n_occurrences",
)


def read_squad(path: Path, hidden: bool = False) -> tuple[list[Example], Sheet]:
    """All good questions, in file order, and the sheet with the bad ones. `hidden`: answers may be absent."""
    sheet = _read_json(path) if path.suffix.lower() == ".json" and not is_rows(path) else _read_rows(path)
    # some files say that the answer stands in several places: then nobody knows which one is meant
    sheet.rows = [row for row in sheet.rows if row.values.get("n_occurrences") in (None, 1)]
    return examples_of(sheet, hidden), sheet


def _read_rows(path: Path) -> Sheet:
    sheet = read(path, COLUMNS)
    need_columns(sheet, ["id", "context", "question"])
    return sheet


def _read_json(path: Path) -> Sheet:
    """{"data": [{"title", "paragraphs": [{"context", "qas": [{"id", "question", "answers": […]}]}]}]}."""
    try:
        tree = json.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error})") from error
    except ValueError as error:
        raise UserError(f"{path}: is not valid JSON ({error})") from None
    if not isinstance(tree, dict) or not isinstance(tree.get("data"), list):
        raise UserError(f"{path}: is not in SQuAD's layout; it should be an object with a list 'data' of articles")
    sheet = Sheet(str(path), COLUMNS)
    for line, values in enumerate(_questions(path, tree["data"]), 1):
        sheet.rows.append(Row(line, values))
    return sheet


def _questions(path: Path, articles: Sequence[Any]) -> Iterator[dict[str, Any]]:
    for number, article in enumerate(articles):
        title = article.get("title", f"number {number + 1}") if isinstance(article, dict) else f"number {number + 1}"
        for place, paragraph in enumerate(_list(article, "paragraphs", f'{path}: article "{title}"')):
            where = f'{path}: article "{title}", paragraph {place + 1}'
            for question in _list(paragraph, "qas", where):
                if not isinstance(question, dict):
                    raise UserError(f"{where}: {shown(question)} is not a question")
                yield {**question, "title": title, "context": paragraph.get("context")}


def _list(value: Any, key: str, where: str) -> Sequence[Any]:
    if not isinstance(value, dict) or not isinstance(value.get(key), list):
        raise UserError(f'{where}: has no list "{key}"')
    found: list[Any] = value[key]
    return found


def examples_of(sheet: Sheet, hidden: bool) -> list[Example]:
    """Examples of all good rows; each bad one is noted with its article, its question's id and what is wrong."""
    examples: list[Example] = []
    seen: set[str] = set()
    for row in sheet.rows:
        try:
            example = _example(row.values, hidden)
            if example.id in seen:
                raise Bad("its id occurs twice", "id")
            seen.add(example.id)
            examples.append(example)
        except Bad as bad:
            named = Bad(f"{_which(row.values)}: {bad.why}", bad.column)
            sheet.refuse(row.line, named, shown({k: v for k, v in row.values.items() if k != "context"}))
    sheet.bad.sort(key=lambda bad: bad.line)
    return examples


def _which(values: Mapping[str, Any]) -> str:
    article = f'article "{values["title"]}", ' if values.get("title") else ""
    return f"{article}question {values.get('id') or 'without an id'}"


def _example(values: dict[str, Any], hidden: bool) -> Example:
    id = values.get("id")
    if isinstance(id, int) and not isinstance(id, bool):
        id = str(id)
    if not isinstance(id, str) or not id:
        raise Bad("the id is missing", "id")
    question, context = text_of(values, "question"), text_of(values, "context")
    title = values.get("title")
    group = title if isinstance(title, str) and title else None
    texts, starts = _answers(values)
    impossible = values.get("is_impossible")
    if impossible is None and not texts and ("answers" in values or values.get("answer_text") is not None):
        impossible = True
    if impossible:
        return Example(id, (question, context), (), group)
    if not texts:
        if not hidden:
            raise Bad("it has no answer and is not marked as impossible", "answers")
        return Example(id, (question, context), None, group)
    for text, start in zip(texts, starts, strict=True):
        _must_stand(context, text, start)
    return Example(id, (question, context), tuple(texts), group, {"starts": tuple(starts)})


def _answers(values: Mapping[str, Any]) -> tuple[list[Any], list[Any]]:
    """Texts and starts: two columns of lists, the hub's {"text": […], "answer_start": […]}, or SQuAD's list."""
    given = values.get("answers")
    if isinstance(given, dict):
        texts, starts = given.get("text"), given.get("answer_start")
    elif isinstance(given, list):
        if not all(isinstance(one, dict) for one in given):
            raise Bad(f"{shown(given)} is not a list of answers", "answers")
        texts, starts = [one.get("text") for one in given], [one.get("answer_start") for one in given]
    else:
        texts, starts = values.get("answer_text"), values.get("answer_start")
        texts, starts = ([texts], [starts]) if isinstance(texts, str) else (texts, starts)
    texts, starts = texts or [], starts or []
    if not isinstance(texts, list) or not isinstance(starts, list) or len(texts) != len(starts):
        raise Bad("its answers need as many texts as starts", "answers")
    return texts, starts


def _must_stand(context: str, text: Any, start: Any) -> None:
    if not isinstance(text, str) or not text.strip():
        raise Bad(f"the answer {shown(text)} is not text", "answers")
    if isinstance(start, bool) or not isinstance(start, int) or start < 0:
        raise Bad(f"the start {shown(start)} of the answer {shown(text)} is not a position in a text", "answer_start")
    there = context[start : start + len(text)]
    if there != text:
        raise Bad(
            f"the answer {shown(text)} is not at offset {start}, where the text is {shown(there)}", "answer_start"
        )


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
    """simple: the class in transformers; joint: as in ELECTRA, where the end is conditioned on the start and
    answerability is predicted too."""
    stride: int = Field(default=128, ge=1)
    """Long contexts are read in windows that start this many tokens apart."""
    max_question: int = Field(default=64, ge=1)
    """Maximum question length in tokens. Longer questions are truncated."""
    max_answer: int = Field(default=30, ge=1)
    """Maximum answer length in tokens."""
    null_threshold: float | None = None
    """Predict `no answer` if its score is above this. Default: 0 (simple), -2.75 (joint). The scores also report the
    best threshold."""

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
        cuts = windows(len(context.ids), room - len(question), self.stride)
        best = best_window(cuts, len(context.ids))
        lead = before + len(question) + between
        gold = gold_pieces(example, context.places)
        for number, window in enumerate(cuts):
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
        best, span = next(iter(listed.items()), ("", None))
        odds = null if self.head == "joint" or span is None else null - span.score
        if odds != odds:
            raise RunFailed(f"{self.name}: the model's output for question {example.id} is not a finite number")
        none = self.unanswerable and odds > self.threshold
        return {
            "prediction": "" if none else best,
            "text": best,
            "start": span.begin if span else None,
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
        gold, paired_answers = paired(self.name, answers, examples)
        labels = {example.id: label for example, label in zip(examples, gold, strict=True)}
        answerable = {id: official.golds(texts) != [""] for id, texts in labels.items()}
        said = {e.id: str(a["prediction"]) for e, a in zip(examples, paired_answers, strict=True)}
        scores = official.means(official.raw_scores(labels, said), answerable)
        if not self.unanswerable or not all("null_odds" in answer for answer in paired_answers):
            return scores
        odds = {e.id: float(a["null_odds"]) for e, a in zip(examples, paired_answers, strict=True)}
        texts = {e.id: str(a.get("text", a["prediction"])) for e, a in zip(examples, paired_answers, strict=True)}
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
