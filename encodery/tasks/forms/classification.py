"""What all tasks share that ask for a label, several labels or a number of one or two texts."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from encodery.errors import RunFailed, UserError
from encodery.tasks.base import HIDDEN, Answer, Example, Features, Label, Pieces, Task, label_counts
from encodery.tasks.forms.thresholds import decide

if TYPE_CHECKING:
    from encodery.tasks.forms.metrics import Floats


# Long texts in windows: which pieces each one holds, and in which window a piece is seen with the most around it.


class Window(NamedTuple):
    """Pieces from `begin` to `end` of a text."""

    begin: int
    end: int


def windows(length: int, room: int, stride: int) -> list[Window]:
    """Windows of at most `room` pieces, each beginning `stride` after the one before; the last ends with the text."""
    room = max(room, 1)
    cuts: list[Window] = []
    begin = 0
    while True:
        end = min(begin + room, length)
        cuts.append(Window(begin, end))
        if end == length:
            return cuts
        begin += min(end - begin, stride)


def best_window(cuts: list[Window], length: int) -> list[int]:
    """For each piece the window with the largest min(left, right context) + 0.01 · window length; ties: the first."""
    best = [0] * length
    score = [float("-inf")] * length
    for number, (begin, end) in enumerate(cuts):
        for piece in range(begin, end):
            here = min(piece - begin, end - 1 - piece) + 0.01 * (end - begin)
            if here > score[piece]:
                best[piece], score[piece] = number, here
    return best


Form = Literal["single", "multilabel", "regression"]
SWAPPED = "~swapped"  # ending of the id of a pair in its other order (`double_unordered`)
CHUNK = 1000  # texts handed to the tokenizer at once


class Classification(Task):
    """Base: a subclass gives name, splits, examples, origin and labels, and says so where it is not `single`."""

    @property
    def answer_form(self) -> Form:
        """One label, several labels, or a number."""
        return "single"

    @property
    def positive(self) -> str | None:
        """The label whose F1 is scored; None: the mean over all labels."""
        return None

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Regression: answers are cut to this range."""
        return None

    @property
    def scale(self) -> float:
        """Regression: the model learns (label - shift) / scale."""
        return 1.0

    @property
    def shift(self) -> float:
        """Regression: what is taken from a label before it is divided."""
        return 0.0

    @property
    def thresholds(self) -> Mapping[str, float]:
        """Label -> the probability above which it is given; empty: the likeliest label, or all above 0.5."""
        return {}

    @property
    def windows(self) -> int | None:
        """Long texts are read in windows that begin so many pieces apart, and pooled; None: they are cut."""
        return None

    @property
    def pooling(self) -> str:
        """How the answers of a text's windows become one: mean or max."""
        return "mean"

    @property
    def main_metric(self) -> str:
        return {"single": "accuracy", "multilabel": "micro_f1", "regression": "spearman"}[self.answer_form]

    def encode(self, examples: Sequence[Example], pieces: Pieces, max_length: int) -> Iterator[Features]:
        """One sequence per example, in order."""
        number = {label: i for i, label in enumerate(self.labels)}
        for start in range(0, len(examples), CHUNK):
            chunk = examples[start : start + CHUNK]
            pair = len(chunk[0].texts) > 1
            first = pieces.many([e.texts[0] for e in chunk])
            second = pieces.many([e.texts[1] for e in chunk]) if pair else [None] * len(chunk)
            for row, (example, a, b) in enumerate(zip(chunk, first, second, strict=True), start):
                target = {"label": self.target(example.label, number)}
                if self.windows is not None:
                    yield from self._windows(row, a, b, target, pieces, max_length)
                    continue
                ids, types = pieces.join(a, b, max_length)
                yield Features(row, ids, types, target)

    def _windows(
        self,
        row: int,
        a: Sequence[int],
        b: Sequence[int] | None,
        target: Mapping[str, Any],
        pieces: Pieces,
        max_length: int,
    ) -> Iterator[Features]:
        """The last text in windows, each after the whole first one (which may take half of the room)."""
        room = max_length - sum(pieces.special(pair=b is not None))
        first = [] if b is None else a[: room // 2]
        last = a if b is None else b
        for begin, end in windows(len(last), room - len(first), self.windows or 1):
            part = last[begin:end]
            ids, types = pieces.join(part, None, max_length) if b is None else pieces.join(first, part, max_length)
            yield Features(row, ids, types, target, group=row)

    def target(self, label: Label, number: Mapping[str, int]) -> int | float | list[float]:
        """The label as the objective wants it: id, scaled number, or a list of 0 and 1."""
        if self.answer_form == "single":
            return HIDDEN if label is None else number[str(label)]
        if self.answer_form == "regression":
            return float("nan") if label is None else (float(label) - self.shift) / self.scale  # type: ignore[arg-type]
        if label is None:
            return [float("nan")] * len(number)
        return [float(name in label) for name in number]  # type: ignore[operator]

    def objective(self) -> dict[str, Any]:
        plain: dict[str, Any] = {"kind": "classification", "form": self.answer_form, "labels": list(self.labels)}
        if self.windows is not None:
            plain["pool"] = self.pooling
        if self.bounds:
            plain |= {"low": self.bounds[0], "high": self.bounds[1]}
        return plain

    def reading(self) -> dict[str, Any]:
        """How the windows are cut, if there are any."""
        return {} if self.windows is None else {"stride": self.windows}

    def decode(self, rows: Iterable[Mapping[str, Any]], examples: Sequence[Example] = ()) -> dict[str, Answer]:
        """Logits to answers by example id."""
        rows = list(rows)
        if not rows:
            return {}
        import numpy as np

        logits = np.asarray([row["logits"] for row in rows], dtype=np.float64)
        broken = np.flatnonzero(~np.isfinite(logits).reshape(len(rows), -1).all(axis=1))
        if len(broken):
            raise RunFailed(
                f"{self.name}: the model's output for example {rows[broken[0]]['id']} is not a finite number"
            )
        answers = {"single": self._single, "multilabel": self._several, "regression": self._numbers}[self.answer_form](
            logits
        )
        return {str(row["id"]): answer for row, answer in zip(rows, answers, strict=True)}

    def _single(self, logits: "Floats") -> Iterator[Answer]:
        limits, labels = self.thresholds, self.labels  # of own files: these look for the file each time
        for best, row in zip(logits.argmax(axis=1), softmax(logits).tolist(), strict=True):
            chances = dict(zip(labels, row, strict=True))
            said = decide(chances, limits, several=False) if limits else labels[best]
            yield {"prediction": said, "probabilities": chances}

    def _several(self, logits: "Floats") -> Iterator[Answer]:
        limits, labels = self.thresholds, self.labels
        for row in sigmoid(logits).tolist():
            chances = dict(zip(labels, row, strict=True))
            yield {"prediction": decide(chances, limits, several=True), "probabilities": chances}

    def _numbers(self, logits: "Floats") -> Iterator[Answer]:
        # Not cut at the bounds: run_glue scores what the model says, and a cut number correlates otherwise. Files for
        # GLUE's site are cut when they are written.
        values = logits.reshape(len(logits)) * self.scale + self.shift
        return ({"prediction": value} for value in values.tolist())

    def simplest(self, train: Sequence[Example], examples: Sequence[Example]) -> dict[str, Answer]:
        """The commonest label with the share of each, or the mean."""
        labels = [e.label for e in train if e.label is not None]
        if not labels:
            return {}
        if self.answer_form == "regression":
            mean = math.fsum(float(x) for x in labels if isinstance(x, float | int)) / len(labels)
            return {e.id: {"prediction": mean} for e in examples}
        label = min(Counter(labels).most_common(), key=lambda pair: (-pair[1], str(pair[0])))[0]
        counts = label_counts(labels)
        shares = {name: counts[name] / len(labels) for name in self.labels}
        prediction = list(label) if isinstance(label, tuple) else label
        return {e.id: {"prediction": prediction, "probabilities": shares} for e in examples}

    def score(self, answers: Mapping[str, Answer], examples: Sequence[Example]) -> dict[str, float]:
        """Named scores over all examples; each needs an answer and a label."""
        from encodery.tasks.forms import metrics

        gold, paired_answers = paired(self.name, answers, examples)
        guess = [answer["prediction"] for answer in paired_answers]
        if self.answer_form == "regression":
            return {name: getattr(metrics, name)(gold, guess) for name in ("pearson", "spearman", "rmse")}
        if self.answer_form == "multilabel":
            return metrics.multilabel(self._table(gold), self._table(guess))
        return self._single_scores(gold, guess) | self._calibration(gold, paired_answers)

    def _single_scores(self, gold: list[Any], guess: list[Any]) -> dict[str, float]:
        from encodery.tasks.forms import metrics

        scores = {"accuracy": metrics.accuracy(gold, guess)}
        if self.positive is None:
            return scores | {"macro_f1": metrics.macro_f1(gold, guess)}
        return scores | {"f1": metrics.f1(gold, guess, self.positive)}

    def _calibration(self, gold: list[Any], answers: Sequence[Answer]) -> dict[str, float]:
        """Only where every answer has the probability of every label: other people's files often have none."""
        labels = self.labels
        names = set(labels)
        if not all(names == set(answer.get("probabilities") or ()) for answer in answers):
            return {}
        number = {label: i for i, label in enumerate(labels)}
        import numpy as np

        from encodery.tasks.forms import metrics

        table = np.asarray(
            [[answer["probabilities"][label] for label in labels] for answer in answers], dtype=np.float64
        )
        return metrics.calibration(np.asarray([number[g] for g in gold]), table)

    def _table(self, rows: Iterable[Any]) -> "Floats":
        import numpy as np

        labels = self.labels
        return np.asarray([[float(label in row) for label in labels] for row in rows], dtype=np.float64)


def softmax(logits: "Floats") -> "Floats":
    """Probabilities over the last axis; no overflow for any finite logits."""
    import numpy as np

    with np.errstate(over="ignore"):  # a difference of -inf is probability 0, which is right
        powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def sigmoid(logits: "Floats") -> "Floats":
    """Probability of each cell; no overflow for any finite logits."""
    import numpy as np

    small = np.exp(-np.abs(logits))
    return np.where(logits >= 0, 1.0, small) / (1.0 + small)


def paired(name: str, answers: Mapping[str, Answer], examples: Sequence[Example]) -> tuple[list[Any], list[Answer]]:
    """Gold labels and answers in the order of the examples; missing answers and hidden labels are errors."""
    missing = [e.id for e in examples if e.id not in answers]
    if missing:
        raise UserError(f"{name}: {len(missing)} of {len(examples)} examples have no answer: {first_few(missing)}")
    hidden = [e.id for e in examples if e.label is None]
    if hidden:
        raise UserError(
            f"{name}: the labels of this split are hidden (first: example {hidden[0]}), so it cannot be scored here"
        )
    if not examples:
        raise UserError(f"{name}: there is nothing to score, the split has no rows")
    return [e.label for e in examples], [answers[e.id] for e in examples]


def first_few(names: Sequence[str], most: int = 5) -> str:
    """`3, 7, 12, …` for error messages."""
    return ", ".join(names[:most]) + (", …" if len(names) > most else "")


def double_unordered(examples: Sequence[Example]) -> list[Example]:
    """Every pair once more with its texts swapped, after all the others: for tasks where the order says nothing."""
    if any(len(e.texts) != 2 for e in examples):
        raise UserError("double_unordered needs pairs of texts; this task has single ones")
    return [*examples, *(replace(e, id=f"{e.id}{SWAPPED}", texts=e.texts[::-1]) for e in examples)]
