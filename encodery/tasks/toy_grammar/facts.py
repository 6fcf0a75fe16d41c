"""Facts about people, written as sentences and read back: who does what to whom, and where."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from encodery.tasks.toy_grammar.words import (
    ADJECTIVES,
    OPPOSITE,
    PARTNER,
    PEOPLE,
    PLACES,
    PLAIN,
    Draw,
    past,
    sentence,
    third,
)
from encodery.tasks.toy_grammar.words import words_of as split


@dataclass(frozen=True, slots=True)
class Fact:
    """A small meaning. `like` is an adjective of `who`; empty strings stand for nothing said."""

    who: str
    verb: str
    whom: str
    like: str = ""
    place: str = ""
    denied: bool = False

    def swapped(self) -> "Fact":
        """The same with the roles exchanged."""
        return replace(self, who=self.whom, whom=self.who)


def draw_fact(
    draw: Draw, like: float = 0.0, where: float = 0.0, denied: float = 0.0, people: Sequence[str] = PEOPLE
) -> Fact:
    """A fact about two different people; the numbers are chances of saying more."""
    who, whom = draw.some(people, 2)
    return Fact(
        who, draw.pick(PLAIN), whom,
        like=draw.pick(ADJECTIVES) if draw.chance(like) else "",
        place=draw.pick(PLACES) if draw.chance(where) else "",
        denied=draw.chance(denied),
    )  # fmt: skip


def write(fact: Fact, passive: bool = False) -> str:
    """The fact as a sentence."""
    who = f"the {fact.like} {fact.who}" if fact.like else f"the {fact.who}"
    where = f"in the {fact.place}" if fact.place else ""
    if passive:
        does = f"is {'not ' if fact.denied else ''}{past(fact.verb)} by"
        return sentence("the", fact.whom, does, who, where)
    does = f"does not {fact.verb}" if fact.denied else third(fact.verb)
    return sentence(who, does, "the", fact.whom, where)


ACTIVE = {third(verb): verb for verb in PLAIN}
PASSIVE = {past(verb): verb for verb in PLAIN}


def read(text: str) -> Fact:
    """The fact that `write` made into this sentence; ValueError for any other text."""
    words = [word for word in split(text) if word not in ("the", ".")]
    people = [word for word in words if word in PEOPLE]
    verbs = [(PASSIVE if "by" in words else ACTIVE | {v: v for v in PLAIN}).get(word) for word in words]
    verb = next((verb for verb in verbs if verb), None)
    if len(people) != 2 or verb is None:
        raise ValueError(f"no fact of the toy grammar: {text!r}")
    who, whom = reversed(people) if "by" in words else people
    like = next((word for word in words if word in ADJECTIVES), "")
    place = next((word for word in words if word in PLACES), "")
    return Fact(who, verb, whom, like, place, "not" in words)


def same_event(a: Fact, b: Fact) -> bool:
    """The same people in the same roles, and verbs of one meaning."""
    return (a.who, a.whom) == (b.who, b.whom) and b.verb in (a.verb, PARTNER[a.verb])


def entails(a: Fact, b: Fact) -> bool:
    """Is b true whenever a is? Saying less keeps a claim true; denying less (in one place only) keeps a denial true."""
    if not same_event(a, b) or a.denied != b.denied or b.like not in ("", a.like):
        return False
    return a.place in ("", b.place) if a.denied else b.place in ("", a.place)


def contradicts(a: Fact, b: Fact) -> bool:
    """Is b false whenever a is true? By denial, or by the opposite adjective for the same person."""
    opposite = replace(b, like=OPPOSITE.get(b.like, ""))
    return entails(a, replace(b, denied=not b.denied)) or (b.like != "" and entails(a, opposite))
