"""What all tasks share that ask which of several texts answers a first one best (MT-DNN's ranking)."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from encodery.errors import RunFailed
from encodery.tasks.base import HIDDEN, Answer, Example, Features, Pieces, Task
from encodery.tasks.forms.classification import CHUNK, paired, softmax


class Ranking(Task):
    """Base: an example's texts are a premise and its candidates; its label is the right candidate's number, from 0."""

    metrics_of_models: ClassVar[tuple[str, ...]] = ("mrr",)

    @property
    def labels(self) -> tuple[str, ...]:
        """Candidates have no names."""
        return ()

    @property
    def main_metric(self) -> str:
        """How often the right one comes first."""
        return "accuracy"

    def encode(self, examples: Sequence[Example], pieces: Pieces, max_length: int) -> Iterator[Features]:
        """One sequence per candidate; those of an example are never cut apart."""
        for start in range(0, len(examples), CHUNK):
            chunk = examples[start : start + CHUNK]
            ids = iter(pieces.many([text for example in chunk for text in example.texts]))
            for row, example in enumerate(chunk, start):
                first, *others = [next(ids) for _ in example.texts]
                for number, other in enumerate(others):
                    whole, types = pieces.join(first, other, max_length)
                    right = HIDDEN if example.label is None else int(str(number) == example.label)
                    yield Features(row, whole, types, {"right": right, "place": number}, group=row)

    def objective(self) -> dict[str, Any]:
        """Kind of the objective."""
        return {"kind": "ranking"}

    def decode(self, rows: Iterable[Mapping[str, Any]], examples: Sequence[Example] = ()) -> dict[str, Answer]:
        """The best candidate's number, and the share of each."""
        import numpy as np

        logits: dict[str, list[float]] = defaultdict(list)
        for row in rows:  # in the order of the table, which is that of the candidates
            logits[str(row["id"])].append(row["logits"][0])
        by_id: dict[str, Answer] = {}
        for id, values in logits.items():
            if not np.isfinite(values).all():
                raise RunFailed(f"{self.name}: the model's output for example {id} is not a finite number")
            chances = softmax(np.asarray([values], dtype=np.float64))[0].tolist()
            best = max(range(len(chances)), key=chances.__getitem__)
            by_id[id] = {"prediction": str(best), "probabilities": {str(i): p for i, p in enumerate(chances)}}
        return by_id

    def simplest(self, train: Sequence[Example], examples: Sequence[Example]) -> dict[str, Answer]:
        return {e.id: {"prediction": "0"} for e in examples}

    def score(self, answers: Mapping[str, Answer], examples: Sequence[Example]) -> dict[str, float]:
        """How often the right one comes first; with probabilities also the mean of 1 / its rank."""
        gold, paired_answers = paired(self.name, answers, examples)
        right = sum(str(a["prediction"]) == g for a, g in zip(paired_answers, gold, strict=True))
        scores = {"accuracy": right / len(gold)}
        if all(g in (a.get("probabilities") or {}) for a, g in zip(paired_answers, gold, strict=True)):
            chances = [(a["probabilities"], a["probabilities"][g]) for a, g in zip(paired_answers, gold, strict=True)]
            ranks = [sum(other >= mine for other in every.values()) for every, mine in chances]
            scores["mrr"] = sum(1 / rank for rank in ranks) / len(ranks)
        return scores
