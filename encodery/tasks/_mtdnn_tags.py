"""Sequence labelling in MT-DNN's files: lists of words in its TSV, or pieces with their labels in its JSON."""

from collections.abc import Iterator, Sequence
from typing import Any

from encodery.tasks._mtdnn import MtdnnFiles, literal_list
from encodery.tasks.base import Example, Features, Pieces
from encodery.tasks.readers import Bad
from encodery.tasks.tagged import SPECIAL, Tagged


class MtdnnTags(MtdnnFiles, Tagged):
    """A sequence labelling task of MT-DNN."""

    @property
    def main_metric(self) -> str:
        """As tags have it: SeqEval is the F1 of spans."""
        return Tagged.main_metric.fget(self)  # type: ignore[attr-defined,no-any-return]

    @property
    def labels(self) -> tuple[str, ...]:
        """Without X, CLS and SEP, which are no answers."""
        return tuple(label for label in self.named if label not in SPECIAL)

    def objective(self) -> dict[str, Any]:
        """With the task's own dropout before its classifier."""
        return self.with_dropout(super().objective())

    def encode(self, examples: Sequence[Example], pieces: Pieces, max_length: int) -> Iterator[Features]:
        """Words; rows that MT-DNN tokenised go to the model in its pieces."""
        if not examples or "ids" not in examples[0].extra:
            yield from super().encode(examples, pieces, max_length)
            return
        number = {label: i for i, label in enumerate(self.outputs)}
        for row, example in enumerate(examples):
            first, *inside, last = example.extra["ids"]
            wrapped = _Wrapped(first, last)
            yield from self._sequences(row, example, inside, example.extra["firsts"], wrapped, max_length, number)

    def _of_tsv(self, row: dict[str, Any]) -> Example:
        uid, tags, words = row["fields"]
        labels, texts = literal_list(tags, "labels"), tuple(map(str, literal_list(words, "words")))
        if len(labels) != len(texts) or not texts:
            raise Bad(f"{len(labels)} labels for {len(texts)} words", "labels")
        return Example(
            uid, (" ".join(texts),), tuple(str(self.label_of(one)) for one in labels), extra={"words": texts}
        )

    def _of_json(self, row: dict[str, Any]) -> Example:
        """A label for every piece: CLS, then a word's own on its first piece and X on the others, at the end SEP."""
        example = super()._of_json(row)
        given = row.get("label")
        if not isinstance(given, list) or len(given) != len(example.extra["ids"]):
            raise Bad("label must be a list as long as token_id", "label")
        first, *inside, last = [str(self.label_of(one)) for one in given] if len(given) > 2 else ["", "", ""]
        if (first, last) != ("CLS", "SEP") or inside[0] in SPECIAL:
            raise Bad("label must begin with CLS and a word's label, and end with SEP", "label")
        tags = tuple(label for label in inside if label not in SPECIAL)
        places = iter(range(len(tags)))
        firsts = tuple(-1 if label in SPECIAL else next(places) for label in inside)
        words = ("",) * len(tags)  # their spelling is not there any more
        return Example(example.id, ("",), tags, extra={"ids": example.extra["ids"], "firsts": firsts, "words": words})


class _Wrapped:
    """A tokenizer that is asked for nothing but the special tokens around pieces that are there already."""

    def __init__(self, first: int, last: int) -> None:
        self.first, self.last = first, last

    def special(self, pair: bool) -> tuple[int, int, int]:
        return 1, 0, 1

    def join(self, a: Sequence[int], b: Sequence[int] | None, max_length: int) -> tuple[list[int], list[int]]:
        return [self.first, *a, self.last], [0] * (len(a) + 2)

    def many(self, texts: Sequence[str]) -> list[list[int]]:
        raise NotImplementedError

    def spelled(self, texts: Sequence[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        raise NotImplementedError
