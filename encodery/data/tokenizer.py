"""A tokenizer as tasks see it: texts to pieces, and pieces to one sequence with special tokens.

Joining is ours because truncation must be exact: the longer text loses its last piece first and a tie is taken from
the second (spec F7); the tokenizers library breaks ties the other way.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from encodery.core.files import digest_text
from encodery.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class Template:
    """Special tokens around one or two texts, and the type ids of the five stretches."""

    before: tuple[int, ...]
    between: tuple[int, ...]
    after: tuple[int, ...]
    types: tuple[int, int, int, int]  # of: before, a, b, after
    between_types: tuple[int, ...]

    @property
    def extra(self) -> int:
        """How many special tokens there are."""
        return len(self.before) + len(self.between) + len(self.after)


def shorten(a: int, b: int, budget: int) -> tuple[int, int]:
    """Lengths after popping from the longer of two texts (ties: from b) until both fit."""
    over = a + b - budget
    if over <= 0:
        return a, b
    cut = min(over, abs(a - b))  # first bring the longer one down to the other
    a, b = (a - cut, b) if a > b else (a, b - cut)
    over -= cut
    return a - over // 2, b - (over + 1) // 2


class TokenizerPieces:
    """Pieces of one transformers tokenizer."""

    def __init__(self, tokenizer: "PreTrainedTokenizerBase"):
        self.tokenizer = tokenizer
        self.backend = getattr(tokenizer, "backend_tokenizer", None)
        if self.backend is None:
            raise UserError(f"tokenizer {tokenizer.name_or_path}: no fast tokenizer; save it as tokenizer.json first")
        self.backend.no_padding()  # some published tokenizer.json files pad every row to 128 by themselves
        self.backend.no_truncation()

    def many(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text, without special tokens."""
        assert self.backend is not None
        return [e.ids for e in self.backend.encode_batch_fast(list(texts), add_special_tokens=False)]

    def spelled(self, texts: Sequence[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """Token ids of each text, and for each token where it begins and ends in the text, without blanks."""
        assert self.backend is not None
        found = self.backend.encode_batch(list(texts), add_special_tokens=False)
        return [(e.ids, [trimmed(text, *offset) for offset in e.offsets]) for text, e in zip(texts, found, strict=True)]

    def special(self, pair: bool) -> tuple[int, int, int]:
        """How many special tokens stand before the first text, between two texts, and at the end."""
        form = self.pair if pair else self.single
        return len(form.before), len(form.between), len(form.after)

    def join(self, a: Sequence[int], b: Sequence[int] | None, max_length: int) -> tuple[list[int], list[int]]:
        """One sequence with special tokens, cut to `max_length`: (ids, types)."""
        form = self.single if b is None else self.pair
        b = b or []
        length_a, length_b = shorten(len(a), len(b), max_length - form.extra)
        ids = [*form.before, *a[:length_a], *form.between, *b[:length_b], *form.after]
        first, type_a, type_b, last = form.types
        types = [first] * len(form.before) + [type_a] * length_a + list(form.between_types)
        return ids, types + [type_b] * length_b + [last] * len(form.after)

    @cached_property
    def single(self) -> Template:
        """Template of one text."""
        return self._probe(None)

    @cached_property
    def pair(self) -> Template:
        """Template of two texts."""
        return self._probe("b")

    @cached_property
    def digest(self) -> str:
        """Changes whenever the tokenizer would cut or join a text differently."""
        assert self.backend is not None
        return digest_text(f"{self.backend.to_str()}{self.single}{self.pair}")

    def _probe(self, second: str | None) -> Template:
        """Read the template off a real encoding: it is the same for any text."""
        assert self.backend is not None
        whole = self.backend.encode("a", second)
        ids, types, texts = whole.ids, whole.type_ids, whole.sequence_ids
        places = [[i for i, t in enumerate(texts) if t == k] for k in (0, 1)]
        if not places[0] or (second and not places[1]):
            raise UserError(f"tokenizer {self.tokenizer.name_or_path}: cannot find the texts in an encoded pair")
        start_a, end_a = places[0][0], places[0][-1] + 1
        start_b, end_b = (places[1][0], places[1][-1] + 1) if second else (len(ids), len(ids))
        if not second:  # what follows the text is `after`
            return Template(
                tuple(ids[:start_a]), (), tuple(ids[end_a:]), (_at(types, 0), types[start_a], 0, types[-1]), ()
            )
        kinds = (_at(types, 0), types[start_a], types[start_b], types[-1])
        between = slice(end_a, start_b)
        return Template(tuple(ids[:start_a]), tuple(ids[between]), tuple(ids[end_b:]), kinds, tuple(types[between]))


def trimmed(text: str, begin: int, end: int) -> tuple[int, int]:
    """Without blanks at the edges: some tokenizers count the blank before a word as part of its first piece."""
    while begin < end and text[begin].isspace():
        begin += 1
    while end > begin and text[end - 1].isspace():
        end -= 1
    return begin, end


def _at(values: Sequence[int], place: int) -> int:
    return values[place] if values else 0
