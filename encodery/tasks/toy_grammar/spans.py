"""Toy tasks on words and stretches of text: parts of speech, roles of phrases, questions with an answer in the text."""

from collections.abc import Sequence

from encodery.tasks.toy_grammar.facts import draw_fact, read, write
from encodery.tasks.toy_grammar.single import write_sentiment
from encodery.tasks.toy_grammar.words import ADJECTIVES, PEOPLE, PLACES, PLAIN, Draw, past, plural, third, words_of

Tags = tuple[str, ...]
POS = ("ADJ", "ADP", "AUX", "DET", "NOUN", "PART", "PUNCT", "VERB")
ROLES = ("O", "B-agent", "I-agent", "B-patient", "I-patient", "B-place", "I-place")
BOTH = ("help", "watch", "call", "shadow", "phone")
"""Words that are nouns as well as verbs: only what stands before them tells."""
WHERE = "in the"


def _noun(draw: Draw, many: bool) -> str:
    noun = draw.pick((*PEOPLE, *BOTH))
    return noun if not many else third(noun) if noun in BOTH else plural(noun)


def write_pos(draw: Draw) -> tuple[str, ...]:
    """`The calls help the old watch in the park .`, as words."""
    many, denied = draw.chance(0.5), draw.chance(0.3)
    verb = draw.pick(PLAIN)
    does = ["does", "not", verb] if denied and not many else [verb if many else third(verb)]
    some = [[draw.pick(ADJECTIVES)] if draw.chance(0.4) else [] for _ in range(2)]
    place = ["in", "the", draw.pick(PLACES)] if draw.chance(0.3) else []
    subject = ["the", *some[0], _noun(draw, many)]
    return (*subject, *does, "the", *some[1], _noun(draw, draw.chance(0.5)), *place, ".")


def solve_pos(words: Sequence[str]) -> Tags:
    """After an article or adjective comes a noun (or an adjective); every other word has one part of speech."""
    small = {"the": "DET", "in": "ADP", "does": "AUX", "not": "PART", ".": "PUNCT"}
    tags: list[str] = []
    for word in words:
        inside = bool(tags) and tags[-1] in ("DET", "ADJ")
        tags.append("ADJ" if word in ADJECTIVES else "NOUN" if inside else small.get(word, "VERB"))
    return tuple(tags)


def write_roles(draw: Draw) -> tuple[str, ...]:
    """A fact as words: who does it and who suffers it change places with the voice."""
    fact = draw_fact(draw, like=0.5, where=0.4, denied=0.2)
    return tuple(words_of(write(fact, passive=draw.chance(0.5))))


def solve_roles(words: Sequence[str]) -> Tags:
    """The phrase around each person and the place."""
    fact = read(" ".join(words))
    role = {fact.who: "agent", fact.whom: "patient", fact.place: "place"}
    tags, begin = ["O"] * len(words), 0
    for position, word in enumerate(words):
        if word == "the":
            begin = position
        if word in role and word:
            marks = ["B", *["I"] * (position - begin)]
            tags[begin : position + 1] = [f"{mark}-{role[word]}" for mark in marks]
    return tuple(tags)


def write_question(draw: Draw) -> tuple[tuple[str, str], tuple[str, ...], tuple[int, ...]]:
    """(question, context), the answer if there is one, and where it begins.

    The question is a fact that breaks off: `is helped by the` (who?), `helps the` (whom?), `in the` (where?). The text
    says the fact in either voice, before or after a sentence of another sort, and often does not say where.
    """
    fact = draw_fact(draw, like=0.5, where=0.45)
    lines = [write(fact, passive=draw.chance(0.5)), write_sentiment(draw)[0][0]]
    context = " ".join(lines if draw.chance(0.5) else reversed(lines))
    question = draw.pick((f"is {past(fact.verb)} by the", f"{third(fact.verb)} the", WHERE, WHERE))
    return (question, context), *_find(question, context)


def _find(question: str, context: str) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The answer to a question and its place, read off the texts alone; empty where there is none."""
    text = next(line for line in context.removesuffix(".").split(". ") if _is_fact(line))
    fact = read(text)
    want = fact.place if question == WHERE else fact.who if "by" in question.split() else fact.whom
    return ((want,), (context.index(text) + text.index(want),)) if want else ((), ())


def _is_fact(line: str) -> bool:
    return any(word in PEOPLE for word in words_of(line))


def solve_question(texts: Sequence[str]) -> tuple[str, ...]:
    """The answer, or none."""
    return _find(texts[0], texts[1])[0]
