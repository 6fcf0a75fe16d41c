"""Rows that nearly say the same: MinHash over word shingles finds candidates, exact Jaccard decides. Numpy alone.

A row is a text or several (premise, hypothesis). Its shingles are runs of `words` words, lowered, marks dropped; a
shorter text is one shingle. Two rows are as alike as their least alike texts are: a shared premise does not make
two rows equal. What is returned is exact; a pair at the threshold is overlooked with a chance below 1 in 1,000.
"""

import re
from collections.abc import Iterator, Sequence
from hashlib import blake2b

import numpy as np

WORD = re.compile(r"\w+")
DRAWS = 128  # hash functions of a signature
RECALL = 0.999  # of pairs at the threshold
_ODD = np.uint64(0x9E3779B97F4A7C15)

Row = str | Sequence[str]
Pair = tuple[int, int, float]


def pairs(
    texts: Sequence[Row], others: Sequence[Row] | None = None, threshold: float = 0.8, words: int = 2
) -> list[Pair]:
    """Rows whose Jaccard similarity is at least the threshold, most alike first: (place, other place, similarity).

    Within `texts` the first place is the lower one; with `others` the second is a place there. Of rows with equal
    shingles only the first is compared with the rest, and the others with it: n copies make n - 1 pairs.
    """
    known: dict[str, int] = {}
    every = [shingles(row, words, known) for row in [*texts, *(others or ())]]
    keys = [tuple(part.tobytes() for part in row) for row in every]
    first: dict[tuple[bytes, ...], int] = {}
    own = len(texts)
    alike_pairs: list[Pair] = []
    for number, key in enumerate(keys):
        before = first.setdefault(key, number)
        if before != number and (others is None or before < own <= number):
            alike_pairs.append((before, number, 1.0))
    kept = sorted(first.values())
    sets = {number: [frozenset(part.tolist()) for part in every[number]] for number in kept}
    for a, b in _candidates([every[number] for number in kept], threshold):
        left, right = kept[a], kept[b]
        if others is not None and not left < own <= right:
            continue
        alike = similarity(sets[left], sets[right])
        if alike >= threshold:
            alike_pairs.append((left, right, alike))
    if others is not None:
        alike_pairs = list(_spread(alike_pairs, keys, own))
    back = own if others is not None else 0
    return sorted(((a, b - back, alike) for a, b, alike in alike_pairs), key=lambda one: (-one[2], one[0], one[1]))


def _spread(alike_pairs: Sequence[Pair], keys: Sequence[tuple[bytes, ...]], own: int) -> Iterator[Pair]:
    """What is alike a row of the other side is alike all its copies there."""
    copies: dict[tuple[bytes, ...], list[int]] = {}
    for place in range(own, len(keys)):
        copies.setdefault(keys[place], []).append(place)
    for a, b, alike in alike_pairs:
        yield from ((a, place, alike) for place in (copies[keys[b]] if alike < 1 else [b]))


def similarity(left: Sequence[frozenset[int]], right: Sequence[frozenset[int]]) -> float:
    """Jaccard's, of the least alike texts; rows with other numbers of texts are not alike."""
    if len(left) != len(right):
        return 0.0
    return min((len(a & b) / len(a | b) if a or b else 1.0) for a, b in zip(left, right, strict=True))


def shingles(row: Row, words: int, known: dict[str, int]) -> tuple[np.ndarray, ...]:
    """The sorted hashes of each text's shingles; `known` keeps the hashes of words."""
    texts = (row,) if isinstance(row, str) else row
    return tuple(np.unique(_hashes(text, words, known)) for text in texts)


def _hashes(text: str, words: int, hashes: dict[str, int]) -> np.ndarray:
    each = WORD.findall(text.lower())
    for word in each:
        if word not in hashes:
            hashes[word] = int.from_bytes(blake2b(word.encode("utf-8", "replace"), digest_size=8).digest(), "big")
    numbers = np.array([hashes[word] for word in each], np.uint64)
    if not len(numbers):
        return numbers
    length = min(words, len(numbers))
    total = np.zeros(len(numbers) - length + 1, np.uint64)
    for place in range(length):
        total = _mixed(total ^ numbers[place : len(numbers) - length + 1 + place])
    return total


def _mixed(numbers: np.ndarray) -> np.ndarray:
    """Every bit of the result depends on every bit of the number."""
    numbers = (numbers ^ (numbers >> np.uint64(32))) * _ODD
    return np.asarray(numbers ^ (numbers >> np.uint64(29)))


def signatures(rows: Sequence[tuple[np.ndarray, ...]]) -> np.ndarray:
    """[rows, draws]: two rows agree at a place as often as their shingles, all texts together, are the same."""
    parts = [
        np.concatenate([part ^ _mixed(np.array([text + 1], np.uint64)) for text, part in enumerate(row)])
        for row in rows
    ]
    parts = [part if len(part) else np.zeros(1, np.uint64) for part in parts]
    flat = np.concatenate(parts) if parts else np.zeros(0, np.uint64)
    starts = np.cumsum([0, *(len(part) for part in parts)])[:-1]
    smallest = np.empty((len(rows), DRAWS), np.uint64)
    for draw in range(DRAWS):
        seed = _mixed(np.array([draw + 1_000_003], np.uint64))
        smallest[:, draw] = np.minimum.reduceat(_mixed(_mixed(flat ^ seed)), starts) if len(rows) else 0
    return smallest


def bands(threshold: float) -> tuple[int, int]:
    """How many bands of how many draws: the longest that overlook few enough pairs at the threshold."""
    for size in range(DRAWS, 1, -1):
        if 1 - (1 - threshold**size) ** (DRAWS // size) >= RECALL:
            return DRAWS // size, size
    return DRAWS, 1


def _candidates(rows: Sequence[tuple[np.ndarray, ...]], threshold: float) -> set[tuple[int, int]]:
    """Pairs of rows that agree in a whole band."""
    candidates: set[tuple[int, int]] = set()
    signed = signatures(rows)
    count, size = bands(threshold)
    for band in range(count):
        key = np.zeros(len(rows), np.uint64)
        for draw in range(band * size, (band + 1) * size):
            key = _mixed(key ^ signed[:, draw])
        order = np.argsort(key, kind="stable")
        edges = np.concatenate([[0], np.flatnonzero(np.diff(key[order])) + 1, [len(order)]])
        for group in np.flatnonzero(np.diff(edges) > 1):  # most rows are alone
            members = sorted(order[edges[group] : edges[group + 1]].tolist())
            candidates.update((a, b) for i, a in enumerate(members) for b in members[i + 1 :])
    return candidates
