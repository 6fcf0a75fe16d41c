"""Solves the small HANS by reading: proves that its labels follow from its texts."""

from collections.abc import Sequence

from encodery.tasks.toy_grammar.hans import LABELS
from encodery.tasks.toy_grammar.words import ALONE, PEOPLE, PLAIN, past, third, words_of


def solve_hans(texts: Sequence[str]) -> str:
    """Does the premise claim what the hypothesis claims? Clauses are compared as (doer, verb, receiver)."""
    said, claimed = claims(texts[0]), claims(texts[1])
    return LABELS[0] if claimed <= said else LABELS[1]


def claims(text: str) -> set[tuple[str, str, str]]:
    """What a sentence claims: doubtful clauses (if, or) claim nothing; an empty string is an unnamed person."""
    body = " ".join(words_of(text)[:-1])
    if body.startswith("if ") or " or " in body:
        return set()
    found: set[tuple[str, str, str]] = set()
    for clause in _clauses(body.removeprefix("although ").replace(" , ", " because ")):
        found |= _claims_of(clause.split(" in the ")[0])
    return found


def _clauses(body: str) -> list[str]:
    """Cut at `because`, and at an `and` behind which a verb comes again while one came before it."""
    left, word, right = body.partition(" and ")
    if word and _has_verb(left) and _has_verb(right):
        return [left, right]
    return body.split(" because ")


def _has_verb(text: str) -> bool:
    return any(word in VERB for word in text.split())


VERB = {form: verb for verb in (*PLAIN, *ALONE) for form in (third(verb), past(verb))}


def _claims_of(clause: str) -> set[tuple[str, str, str]]:
    """One clause without its place: every doer with every receiver; what stands behind `near` does nothing."""
    words = clause.split()
    at = next(i for i, word in enumerate(words) if word in VERB)
    before = [word for word in words[: words.index("near") if "near" in words else at] if word in PEOPLE]
    after = [word for word in words[at:] if word in PEOPLE]
    doers, receivers = (after, before) if "is" in words else (before, after)
    pairs = {(a, VERB[words[at]], b) for a in doers or [""] for b in receivers or [""]}
    # whoever is helped by somebody is helped
    return pairs | {("", verb, b) for _, verb, b in pairs if "is" in words}
