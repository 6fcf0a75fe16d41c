"""What all tasks share that ask for a tag of every word: pieces and words, windows, span F1."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import Field

from encodery.errors import RunFailed, UserError
from encodery.tasks._windows import best_window, windows
from encodery.tasks.base import Answer, Example, Features, Pieces, Task
from encodery.tasks.classify import CHUNK, HIDDEN, paired, softmax

SPECIAL = ("X", "CLS", "SEP")  # MT-DNN's labels of pieces inside a word, of the first and of the last token


class Tagged(Task):
    """Base: a subclass gives name, splits, examples, origin and labels. The words stand in `extra["words"]`."""

    stride: int = Field(default=128, ge=1)
    """Sentences longer than max_length are read in windows that begin so many pieces apart."""
    train_on_special_labels: bool = False
    """Also learn X (inside a word), CLS and SEP as labels, as MT-DNN does; they are never given as answers."""

    @property
    def main_metric(self) -> str:
        """F1 of spans where the tags mark spans (B-, I-), else accuracy."""
        return "f1" if marks_spans(self.labels) else "accuracy"

    @property
    def outputs(self) -> tuple[str, ...]:
        """What the model may say: the labels, and the special ones if they are trained on."""
        more = SPECIAL if self.train_on_special_labels else ()
        return (*self.labels, *(name for name in more if name not in self.labels))

    def encode(self, examples: Sequence[Example], pieces: Pieces, max_length: int) -> Iterator[Features]:
        """One sequence per sentence, several where it is long; each word is asked for once, at its first piece."""
        number = {label: i for i, label in enumerate(self.outputs)}
        for start in range(0, len(examples), CHUNK):
            chunk = examples[start : start + CHUNK]
            spelled = pieces.spelled([" ".join(words_of(example)) for example in chunk])
            for row, (example, (ids, places)) in enumerate(zip(chunk, spelled, strict=True), start):
                words = first_pieces(words_of(example), places)
                yield from self._sequences(row, example, ids, words, pieces, max_length, number)

    def _sequences(
        self,
        row: int,
        example: Example,
        ids: Sequence[int],
        words: Sequence[int],
        pieces: Pieces,
        max_length: int,
        number: Mapping[str, int],
    ) -> Iterator[Features]:
        before, _, after = pieces.special(pair=False)
        found = windows(len(ids), max_length - before - after, self.stride)
        best = best_window(found, len(ids))
        for place, (begin, end) in enumerate(found):
            whole, types = pieces.join(ids[begin:end], None, max_length)
            asked = [words[piece] if best[piece] == place else None for piece in range(begin, end)]
            word = [-1 if one is None else one for one in asked]
            targets = self._targets(example, asked, number, before, after)
            marks = {"word": [*[-1] * before, *word, *[-1] * after]}
            yield Features(row, whole, types, {}, {"tag": targets}, marks)

    def _targets(
        self, example: Example, asked: Sequence[int | None], number: Mapping[str, int], before: int, after: int
    ) -> list[int]:
        """Label numbers; -100 where nothing is asked: other windows' pieces, and those that are no word's first."""
        label: Any = example.label
        inside, first, last = (number[name] if self.train_on_special_labels else HIDDEN for name in SPECIAL)
        if label is None:
            return [HIDDEN] * (before + len(asked) + after)
        kept = [HIDDEN if one is None else inside if one < 0 else number[label[one]] for one in asked]
        return [*[first] * before, *kept, *[last] * after]

    def objective(self) -> dict[str, Any]:
        """Kind and options of the objective."""
        return {"kind": "tagging", "labels": list(self.outputs)}

    def reading(self) -> dict[str, Any]:
        """How the windows are cut, and what is asked for."""
        return {"stride": self.stride, "special": self.train_on_special_labels}

    def decode(self, rows: Iterable[Mapping[str, Any]], examples: Sequence[Example] = ()) -> dict[str, Answer]:
        """A tag and its probability for each word. A word without a piece of its own gets O, probability 0."""
        import numpy as np

        shape = {example.id: (len(words_of(example)), len(self.labels)) for example in examples}
        chances = {id: np.zeros(size) for id, size in shape.items()}
        for row in rows:
            places = [(token, word) for token, word in enumerate(row["word"]) if word >= 0]
            if not places:
                continue
            logits = np.asarray([row["logits"][token] for token, _ in places], dtype=np.float64)
            if not np.isfinite(logits).all():
                raise RunFailed(f"{self.name}: the model's output for example {row['id']} is not a finite number")
            chances[row["id"]][[word for _, word in places]] = softmax(logits[:, : len(self.labels)])
        return {id: self.said(found) for id, found in chances.items()}

    def said(self, chances: Any) -> Answer:
        """Tags from the probabilities [words, labels]; a word of which nothing is known has zeros."""
        known, best = chances.any(axis=1), chances.argmax(axis=1)
        tags = [self.labels[i] if there else self._unseen for i, there in zip(best, known, strict=True)]
        return {"prediction": tags, "confidence": chances.max(axis=1, initial=0.0).tolist(), "chances": chances}

    @property
    def _unseen(self) -> str:
        return "O" if "O" in self.labels else self.labels[0]

    def simplest(self, train: Sequence[Example], examples: Sequence[Example]) -> dict[str, Answer]:
        """Each word's commonest tag in train; unknown words get the commonest of all."""
        seen: dict[str, Counter[str]] = defaultdict(Counter)
        all_tags: Counter[str] = Counter()
        for example in train:
            for word, tag in zip(words_of(example), tags_of(example), strict=True):
                seen[word][tag] += 1
                all_tags[tag] += 1
        if not all_tags:
            return {}
        best = {word: _commonest(counts) for word, counts in seen.items()}
        rest = _commonest(all_tags)
        return {e.id: {"prediction": [best.get(word, rest) for word in words_of(e)]} for e in examples}

    def score(self, answers: Mapping[str, Answer], examples: Sequence[Example]) -> dict[str, float]:
        """Accuracy of words; where tags mark spans also precision, recall and F1 of spans."""
        from encodery.tasks import metrics

        gold, found = paired(self.name, answers, examples)
        guess = [answer["prediction"] for answer in found]
        for example, one, other in zip(examples, gold, guess, strict=True):
            if len(one) != len(other):
                raise UserError(
                    f"{self.name}: example {example.id} has {len(one)} words, and {len(other)} tags were given"
                )
        flat = [(a, b) for one, other in zip(gold, guess, strict=True) for a, b in zip(one, other, strict=True)]
        scores = {"accuracy": sum(a == b for a, b in flat) / len(flat)} if flat else {"accuracy": 0.0}
        if not marks_spans(self.labels):
            return scores | {"macro_f1": metrics.macro_f1([a for a, _ in flat], [b for _, b in flat])}
        return metrics.span_scores(gold, guess) | scores


def words_of(example: Example) -> Sequence[str]:
    """The words of a sentence; raw text is split at blanks."""
    words: Sequence[str] = example.extra.get("words") or example.texts[0].split()
    return words


def tags_of(example: Example) -> Sequence[str]:
    """The gold tags; none where they are hidden."""
    return example.label if isinstance(example.label, tuple) else ()


def _commonest(counts: Counter[str]) -> str:
    return min(counts.items(), key=lambda pair: (-pair[1], pair[0]))[0]


def marks_spans(labels: Sequence[str]) -> bool:
    """Whether tags are made like B-person, I-person, O."""
    return any(label.startswith("B-") for label in labels)


def first_pieces(words: Sequence[str], places: Sequence[tuple[int, int]]) -> list[int]:
    """For each piece of the words joined by blanks: the word whose first piece it is, or -1."""
    found = [-1] * len(places)
    begin, piece = 0, 0
    for number, word in enumerate(words):
        end = begin + len(word)
        while piece < len(places) and (places[piece][1] <= begin or places[piece][0] == places[piece][1]):
            piece += 1
        if piece < len(places) and places[piece][0] < end:
            found[piece] = number
            piece += 1  # a piece is the first of one word only
        begin = end + 1
    return found
