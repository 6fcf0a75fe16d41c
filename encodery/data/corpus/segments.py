"""Documents → blocks: ELECTRA's one or two segments of one document, or full blocks of many documents.

Every draw is a function of (seed, document, place in it), so a block does not depend on what was built before it.
In the reference the target length is drawn after an example and kept across documents; here it is drawn before, for
each example by itself, which has the same distribution for all examples but the very first.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from encodery.data import rng
from encodery.data.tokenizer import Template

Line = Sequence[int]

SINGLE = 0.1  # chance that an example is one segment
COIN = 0.5  # chance that the line which overruns the first segment still goes there
SHORT = 0.05  # chance of a random target length
SHORTEST = 5
LEAST_ROOM = 8  # full blocks: less room than this is not worth another text


@dataclass(frozen=True)
class Form:
    """How blocks are built: their length, the special tokens, and what ELECTRA's options say."""

    max_length: int
    single: Template
    pair: Template
    full: bool = False
    keep_overflow: bool = False
    order_preserving: bool = False

    @property
    def pad_free(self) -> int:
        """Tokens of text that fit into a block of one segment."""
        return self.max_length - self.single.extra


@dataclass
class Block:
    """One example: its tokens, how many of them are of the first type, and its texts' lengths if there are several."""

    ids: list[int]
    first: int
    document: int
    text: int = 0  # tokens that are no special ones
    lengths: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Chances:
    """The draws of one document: at most one example per line, and one coin per line."""

    single: list[float]
    short: list[float]
    length: list[float]
    coin: list[float]

    @classmethod
    def of(cls, seed: int, document: int, lines: int) -> "Chances":
        """For so many lines (or rests of lines); more lines only add to them."""
        drawn = rng.uniform(rng.key(seed, "blocks"), np.array([document]), 4 * lines)[0].reshape(lines, 4)
        single, short, length, coin = drawn.T.tolist()
        return cls(single, short, length, coin)

    def target(self, example: int, max_length: int) -> int:
        """How many tokens an example collects before it is closed."""
        if self.short[example] >= SHORT:
            return max_length
        return SHORTEST + int(self.length[example] * (max_length - SHORTEST + 1))


def electra(lines: Sequence[Line], document: int, seed: int, form: Form) -> Iterator[Block]:
    """The examples of one document."""
    lines = [line for line in lines if line]
    if form.keep_overflow:
        lines = [piece for line in lines for piece in _cut(line, form.pad_free)]
    chances = Chances.of(seed, document, len(lines))
    start = example = 0
    while start < len(lines):
        target = chances.target(example, form.max_length)
        end = _collect(lines, start, target)
        first_target = float("inf") if chances.single[example] < SINGLE else (target - form.pair.extra) // 2
        end, a, b = _divide(lines, start, end, first_target, chances.coin, form)
        yield _joined(a, b, document, form)
        start, example = end, example + 1


def _cut(line: Line, most: int) -> Iterator[Line]:
    for start in range(0, len(line), most):
        yield line[start : start + most]


def _collect(lines: Sequence[Line], start: int, target: int) -> int:
    """The end of the lines that make the next example: as many as reach the target, or all."""
    count, end = 0, start
    while end < len(lines) and count < target:
        count += len(lines[end])
        end += 1
    return end


def _divide(
    lines: Sequence[Line], start: int, end: int, first_target: float, coin: Sequence[float], form: Form
) -> tuple[int, list[int], list[int]]:
    """(first line that was not taken, segment A, segment B). Only `keep_overflow` stops before the end."""
    a: list[int] = []
    b: list[int] = []
    for number in range(start, end):
        line = lines[number]
        to_a = (
            not a
            or (len(a) + len(line) < first_target and not (form.order_preserving and b))
            or (not b and len(a) < first_target and coin[number] < COIN)
        )
        if form.keep_overflow and not _fits(len(a), len(b), len(line), to_a, form):
            return number, a, b
        (a if to_a else b).extend(line)
    return end, a, b


def _fits(a: int, b: int, line: int, to_a: bool, form: Form) -> bool:
    a, b = (a + line, b) if to_a else (a, b + line)
    return a + b + (form.pair.extra if b else form.single.extra) <= form.max_length


def _joined(a: list[int], b: list[int], document: int, form: Form) -> Block:
    """Special tokens around the segments; what is too long is thrown away (with keep_overflow nothing is)."""
    a = a[: form.pad_free]
    b = b[: max(0, form.max_length - len(a) - form.pair.extra)]
    if not b:
        ids = [*form.single.before, *a, *form.single.after]
        return Block(ids, len(ids), document, len(a))
    head = [*form.pair.before, *a, *form.pair.between]
    return Block([*head, *b, *form.pair.after], len(head), document, len(a) + len(b))


def full(documents: Sequence[tuple[int, Sequence[Line]]], form: Form) -> Iterator[Block]:
    """Blocks filled with texts of several documents, each with its own special tokens; every token is kept."""
    block = Block([], 0, -1)
    for number, lines in documents:
        ids = [token for line in lines for token in line]
        start = 0
        while start < len(ids):
            room = form.max_length - len(block.ids) - form.single.extra
            if room < min(LEAST_ROOM, form.pad_free):
                yield block
                block, room = Block([], 0, -1), form.pad_free
            _append(block, ids[start : start + room], number, form.single)
            start += room
    if block.ids:
        yield block


def _append(block: Block, ids: Line, document: int, template: Template) -> None:
    block.document = document if block.document < 0 else block.document
    before = len(block.ids)
    block.ids += [*template.before, *ids, *template.after]
    block.lengths.append(len(block.ids) - before)
    block.first = len(block.ids)
    block.text += len(ids)
