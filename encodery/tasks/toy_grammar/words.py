"""The words of the toy grammar, and draws that are the same on every machine."""

import hashlib
import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")
Made = tuple[tuple[str, ...], str | float | tuple[str, ...]]  # texts and their label

PEOPLE = ("teacher", "doctor", "lawyer", "pilot", "farmer", "nurse", "singer", "baker")
VERBS = (("help", "assist"), ("watch", "observe"), ("call", "phone"), ("follow", "shadow"))
"""Pairs of verbs with one meaning."""
ALONE = ("smile", "laugh", "wait", "dance")
"""Verbs without an object."""
OPPOSITES = (("tall", "short"), ("old", "young"), ("rich", "poor"))
PLACES = ("garden", "kitchen", "park", "office", "station", "library", "street", "market")
ASPECTS = ("film", "plot", "cast", "ending", "dialogue", "sound")
GOOD = ("good", "great", "lovely", "funny", "clever", "fresh")
BAD = ("bad", "awful", "boring", "dull", "silly", "stale")
TOPICS = {
    "sport": ("match", "race", "team"),
    "music": ("song", "choir", "piano"),
    "politics": ("vote", "law", "mayor"),
    "science": ("atom", "planet", "fossil"),
    "food": ("soup", "bread", "cheese"),
}
TEXTS = ("report", "story", "letter", "talk", "book", "article")
KINDS = ("new", "long", "brief", "first")
SMALL = (
    "the",
    "and",
    "or",
    "but",
    "although",
    "not",
    "very",
    "is",
    "was",
    "does",
    "by",
    "in",
    "near",
    "about",
    "if",
    "because",
)


def third(verb: str) -> str:
    """help → helps, watch → watches."""
    return verb + ("es" if verb.endswith(("ch", "sh")) else "s")


def past(verb: str) -> str:
    """help → helped, observe → observed."""
    return verb + ("d" if verb.endswith("e") else "ed")


def plural(noun: str) -> str:
    """teacher → teachers."""
    return noun + "s"


PLAIN = tuple(verb for pair in VERBS for verb in pair)
PLURALS = tuple(plural(noun) for noun in PEOPLE)
PARTNER = {verb: other for a, b in VERBS for verb, other in ((a, b), (b, a))}
OPPOSITE = {word: other for a, b in OPPOSITES for word, other in ((a, b), (b, a))}
ADJECTIVES = tuple(OPPOSITE)
TOPIC_OF = {word: topic for topic, words in TOPICS.items() for word in words}


def vocabulary() -> list[str]:
    """All words of the grammar, lowercase, always in the same order."""
    verbs = PLAIN + ALONE
    groups: list[Sequence[str]] = [
        [".", ","], SMALL, PEOPLE, [plural(noun) for noun in PEOPLE],
        PLAIN, [third(verb) for verb in verbs], [past(verb) for verb in verbs],
        ADJECTIVES, PLACES, ASPECTS, GOOD, BAD, tuple(TOPIC_OF), TEXTS, KINDS,
    ]  # fmt: skip
    return list(dict.fromkeys(word for group in groups for word in group))


class Draw:
    """Random choices from a key. Only `random()` is used: the one method whose sequence Python promises to keep."""

    def __init__(self, *key: str | int) -> None:
        digest = hashlib.sha256("/".join(map(str, key)).encode()).digest()
        self._next = random.Random(int.from_bytes(digest[:8], "big")).random

    def below(self, n: int) -> int:
        """A whole number from 0 to n - 1."""
        return int(self._next() * n)

    def chance(self, p: float) -> bool:
        """True with probability p."""
        return self._next() < p

    def pick(self, items: Sequence[T]) -> T:
        return items[self.below(len(items))]

    def some(self, items: Sequence[T], n: int) -> list[T]:
        """n different items in random order."""
        pool = list(items)
        return [pool.pop(self.below(len(pool))) for _ in range(n)]

    def other(self, items: Sequence[T], *than: T) -> T:
        """One of the items that are none of these."""
        return self.pick([item for item in items if item not in than])


def sentence(*parts: str) -> str:
    """Words to a sentence: capital at the front, full stop at the end; empty parts vanish."""
    words = " ".join(part for part in parts if part)
    return words[:1].upper() + words[1:] + "."


def words_of(text: str) -> list[str]:
    """The words of a sentence, lowercase, commas and the mark at the end as words of their own."""
    return text.lower().replace(",", " ,").replace(".", " .").split()
