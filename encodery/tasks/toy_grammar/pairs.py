"""Toy tasks on two texts: paraphrase, similarity, natural language inference."""

from collections.abc import Sequence
from dataclasses import replace

from encodery.tasks.toy_grammar.facts import Fact, contradicts, draw_fact, entails, read, write
from encodery.tasks.toy_grammar.words import ADJECTIVES, OPPOSITE, PARTNER, PEOPLE, PLACES, PLAIN, Draw, Made


def _reword(draw: Draw, fact: Fact) -> Fact:
    return replace(fact, verb=PARTNER[fact.verb]) if draw.chance(0.5) else fact


def _other_verb(draw: Draw, fact: Fact) -> Fact:
    return replace(fact, verb=draw.other(PLAIN, fact.verb, PARTNER[fact.verb]))


def _other_person(draw: Draw, fact: Fact) -> Fact:
    person = draw.other(PEOPLE, fact.who, fact.whom)
    return replace(fact, who=person) if draw.chance(0.5) else replace(fact, whom=person)


def _other_people(draw: Draw, fact: Fact) -> Fact:
    who, whom = draw.some([person for person in PEOPLE if person not in (fact.who, fact.whom)], 2)
    return replace(fact, who=who, whom=whom)


def write_paraphrase(draw: Draw) -> Made:
    """A fact and the same in other words, or with exchanged roles, or what else is not the same."""
    label = draw.pick(("not_equivalent", "equivalent"))
    a = draw_fact(draw, where=0.5)
    b = _reword(draw, a)
    if label == "not_equivalent":
        people = _other_people(draw, b)
        b = draw.pick((b.swapped(), b.swapped(), _other_verb(draw, b), people, people, replace(b, denied=True)))
    return (write(a), write(b, draw.chance(0.3))), label


def solve_paraphrase(texts: Sequence[str]) -> str:
    """Equivalent if each follows from the other."""
    a, b = map(read, texts)
    return "equivalent" if entails(a, b) and entails(b, a) else "not_equivalent"


def write_similarity(draw: Draw) -> Made:
    """Two facts that share some of their four parts."""
    a = draw_fact(draw, where=1.0)
    keep = draw.pick((0.0, 0.3, 0.7, 1.0))
    people = draw.some([person for person in PEOPLE if person not in (a.who, a.whom)], 2)
    b = Fact(
        a.who if draw.chance(keep) else people[0],
        a.verb if draw.chance(keep) else draw.pick(PLAIN),
        a.whom if draw.chance(keep) else people[1],
        place=a.place if draw.chance(keep) else draw.other(PLACES, a.place),
    )
    return (write(a), write(b)), shared(a, b)


def shared(a: Fact, b: Fact) -> float:
    """One point each for the same doer, the same receiver, the same place; two for the verb, one for its synonym."""
    verb = 2 if a.verb == b.verb else int(b.verb == PARTNER[a.verb])
    return float((a.who == b.who) + (a.whom == b.whom) + (a.place == b.place) + verb)


def solve_similarity(texts: Sequence[str]) -> float:
    """The points of what the texts say."""
    return shared(read(texts[0]), read(texts[1]))


def write_nli(draw: Draw) -> Made:
    """A premise, and a hypothesis that follows, contradicts it, or may be true or not."""
    label = draw.pick(("entailment", "neutral", "contradiction"))
    a = draw_fact(draw, like=0.5, where=0.3, denied=0.5)
    b = _reword(draw, _weaker(draw, a))
    if label == "contradiction":
        by_opposite = b.like and draw.chance(0.5)
        b = replace(b, like=OPPOSITE[b.like]) if by_opposite else replace(b, denied=not b.denied)
    elif label == "neutral":
        unsaid = _unsaid(draw, a, b)
        b = draw.pick((b.swapped(), _other_verb(draw, b), _other_person(draw, b), unsaid, unsaid))
        b = replace(b, denied=draw.chance(0.5))
    return (write(a), write(b, draw.chance(0.2))), label


def _weaker(draw: Draw, fact: Fact) -> Fact:
    """Something that follows: without the adjective, without the place, or a denial for one place only."""
    like = fact.like if draw.chance(0.7) else ""
    if not fact.denied:
        return replace(fact, like=like, place=fact.place if draw.chance(0.7) else "")
    return replace(fact, like=like, place=fact.place or (draw.pick(PLACES) if draw.chance(0.1) else ""))


def _unsaid(draw: Draw, a: Fact, b: Fact) -> Fact:
    """The same event with an adjective or a place that the premise does not speak of."""
    if draw.chance(0.5) or (a.denied and not a.place):
        return replace(b, like=draw.other(ADJECTIVES, a.like, OPPOSITE.get(a.like, "")))
    return replace(b, place=draw.other(PLACES, a.place))


def solve_nli(texts: Sequence[str]) -> str:
    """Entailment and contradiction by the rules of facts; else neutral."""
    a, b = map(read, texts)
    return "entailment" if entails(a, b) else "contradiction" if contradicts(a, b) else "neutral"
