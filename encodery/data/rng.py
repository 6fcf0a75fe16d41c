"""Random draws without state: each number is a hash of (seed, purpose, step or epoch, example id, place).

So a draw does not depend on which other examples share the batch, on how a step is cut, or on what was drawn before,
and resuming restores nothing. The numbers are part of the promise: changing them changes every run (tests hold some).
"""

import json
import math
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bits = NDArray[np.uint64]
Ids = NDArray[np.integer[Any]]

# The constants of splitmix64: its step (the golden ratio of 2^64) and the two factors of its hash.
STRIDE = np.uint64(0x9E3779B97F4A7C15)
FACTORS = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
SHIFTS = np.uint64(30), np.uint64(27), np.uint64(31)

# Passes of the Feistel network, each of which mixes both halves. After 2, rows at positions b apart are still related;
# after 3 no test sees it.
PASSES = 4

# Up to this many rows an order is a table: with 5 or 6 rows even 4 passes favour some permutations.
SHORT = 1024


def key(seed: int, purpose: str, *numbers: int) -> int:
    """A 64-bit key, the same on every machine; also good as a seed for torch's generators."""
    text = json.dumps([int(seed), purpose, *map(int, numbers)])
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


def mix(values: Bits) -> Bits:
    """Splitmix64's hash: a bijection of 64 bits in which each bit of the input moves half of the output's."""
    values = values ^ (values >> SHIFTS[0])
    values *= FACTORS[0]
    values ^= values >> SHIFTS[1]
    values *= FACTORS[1]
    values ^= values >> SHIFTS[2]
    return values


def bits(key: int, ids: Ids, size: int) -> Bits:
    """64 random bits for each id and each of `size` places, as [len(ids), size]; fewer places are a prefix."""
    # Ids are hashed before the key is added: otherwise a key close to another one gives the same rows, shifted.
    rows = mix(mix(ids.astype(np.uint64)) + np.uint64(key))
    return mix(rows[:, None] + STRIDE * np.arange(1, size + 1, dtype=np.uint64))


def per_token(key: int, ids: Ids, lengths: Ids, width: int) -> NDArray[np.float64]:
    """Numbers in [0, 1) for sequences of different length, as [sum of lengths, width].

    The token at place t of id i gets what `uniform(key, ids, longest * width)` has for i at t * width and following.
    """
    rows = mix(mix(ids.astype(np.uint64)) + np.uint64(key))
    place = np.concatenate([np.arange(n) for n in lengths]).astype(np.uint64) * np.uint64(width)
    start = np.repeat(rows, lengths) + STRIDE * place
    drawn = mix(start[:, None] + STRIDE * np.arange(1, width + 1, dtype=np.uint64))
    return (drawn >> np.uint64(11)).astype(np.float64) * 2.0**-53


def uniform(key: int, ids: Ids, size: int) -> NDArray[np.float64]:
    """Numbers in [0, 1), multiples of 2^-53, as [len(ids), size]."""
    return (bits(key, ids, size) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def normal(first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
    """Normal numbers of two uniform ones each, by Box and Muller."""
    found: NDArray[np.float64] = np.sqrt(-2.0 * np.log1p(-first)) * np.cos(2.0 * np.pi * second)
    return found


class Order:
    """A keyed permutation of range(n) in constant memory: any position at once.

    A Feistel network on pairs (left, right) with left < a and right < b, where a·b is at least n and hardly more.
    A result outside range(n) is sent through again (cycle walking), which keeps it a permutation. On a few values
    such a network shuffles badly, so short orders are sorted by their draws and held as a table.
    Give each task its own purpose, else tables of equal length share their order.
    """

    def __init__(self, seed: int, epoch: int, n: int, purpose: str = "order") -> None:
        if n < 1:
            raise ValueError(f"an order of {n} rows")
        self.n = n
        self.a = np.uint64(math.isqrt(n - 1) + 1)
        self.b = np.uint64(-(-n // int(self.a)))
        secret = key(seed, purpose, epoch)
        self.keys = list(bits(secret, np.arange(PASSES), 2))
        self.table = np.argsort(bits(secret, np.arange(n), 1)[:, 0], kind="stable") if n <= SHORT else None

    def at(self, positions: Ids) -> NDArray[np.int64]:
        """The rows at these positions."""
        values = positions.astype(np.uint64)  # negative ones become huge
        if (values >= self.n).any():
            raise IndexError(f"positions {positions.min()} to {positions.max()} in an order of {self.n} rows")
        return (self.walk(values) if self.table is None else self.table[positions]).astype(np.int64)

    def walk(self, values: Bits) -> Bits:
        """Through the network until the result is within range(n)."""
        rows = self.shuffle(values)
        while (outside := rows >= self.n).any():
            rows[outside] = self.shuffle(rows[outside])
        return rows

    def shuffle(self, values: Bits) -> Bits:
        """The network: a permutation of range(a·b)."""
        left, right = values // self.b, values % self.b
        for for_left, for_right in self.keys:
            # The hash is reduced before it is added: a sum that runs over 2^64 would not be a bijection.
            left = (left + mix(right + for_left) % self.a) % self.a
            right = (right + mix(left + for_right) % self.b) % self.b
        return left * self.b + right


def choose(seed: int, purpose: str, n: int, k: int, ascending: bool = False) -> NDArray[np.int64]:
    """k of n rows without repetition; for equal seed and purpose a smaller choice lies within a larger one."""
    if not 0 <= k <= n:
        raise ValueError(f"{k} of {n} rows")
    rows = Order(seed, 0, n, purpose).at(np.arange(k)) if k else np.zeros(0, dtype=np.int64)
    return np.sort(rows) if ascending else rows
