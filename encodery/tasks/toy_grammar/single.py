"""Toy tasks on one text: acceptability, sentiment, topic."""

from collections.abc import Sequence

from encodery.tasks.toy_grammar.words import (
    ADJECTIVES,
    ASPECTS,
    BAD,
    GOOD,
    KINDS,
    PEOPLE,
    PLACES,
    PLAIN,
    PLURALS,
    TEXTS,
    TOPIC_OF,
    TOPICS,
    Draw,
    Made,
    sentence,
    third,
    words_of,
)


def _noun(draw: Draw, many: bool) -> str:
    return draw.pick(PLURALS if many else PEOPLE)


def write_acceptability(draw: Draw) -> Made:
    """A sentence that is right, or that breaks agreement or word order with the same words."""
    label = draw.pick(("unacceptable", "acceptable"))
    many, wrong = draw.chance(0.5), label == "unacceptable"
    break_order = wrong and draw.chance(0.5)
    verb = draw.pick(PLAIN)
    # a noun of any number may stand between subject and verb: looking at the nearest noun is not enough
    near = ["near", "the", _noun(draw, draw.chance(0.5))] if draw.chance(0.3) else []
    subject = ["the", *([draw.pick(ADJECTIVES)] if draw.chance(0.5) else []), _noun(draw, many)]
    does = [verb if many != (wrong and not break_order) else third(verb)]
    what = ["the", _noun(draw, draw.chance(0.5))]
    where = ["in", "the", draw.pick(PLACES)] if draw.chance(0.3) else []
    if break_order and draw.chance(0.5):
        subject = [*subject[:-2], subject[-1], subject[-2]]  # "the teacher tall", "teacher the"
    elif break_order:
        does, what = what, does  # "the teacher the doctor helps"
    return (sentence(*subject, *near, *does, *what, *where),), label


def solve_acceptability(texts: Sequence[str]) -> str:
    """Read the sentence by the grammar, word class by word class."""
    words = words_of(texts[0])[:-1]
    kinds = "".join(_word_kind(word) for word in words)
    kinds = kinds.removesuffix("itP").replace("ta", "t")
    subject, near, rest = kinds[:2], kinds[2:5], kinds[2:]
    if near in ("rtN", "rtS"):
        rest = kinds[5:]
    agrees = (subject, rest[:1]) in (("tN", "V"), ("tS", "Z"))
    return "acceptable" if agrees and rest[1:] in ("tN", "tS") else "unacceptable"


def _word_kind(word: str) -> str:
    """One letter: t the, r near, i in, a adjective, P place, S and N noun (one, many), Z and V verb (helps, help)."""
    small = {"the": "t", "near": "r", "in": "i"}
    groups = (("a", ADJECTIVES), ("P", PLACES), ("S", PEOPLE), ("N", PLURALS), ("V", PLAIN))
    return small.get(word) or next((kind for kind, group in groups if word in group), "Z")


def _clause(draw: Draw, good: bool) -> str:
    """`the plot was not very dull`: its sign turns with every `not`."""
    denied = draw.chance(0.4)
    very = "very " if draw.chance(0.3) else ""
    return f"the {draw.pick(ASPECTS)} was {'not ' if denied else ''}{very}{draw.pick(GOOD if good != denied else BAD)}"


def write_sentiment(draw: Draw) -> Made:
    """One clause, two that agree, or two that differ, of which the main one counts."""
    label = draw.pick(("negative", "positive"))
    good = label == "positive"
    main, same, side = _clause(draw, good), _clause(draw, good), _clause(draw, not good)
    forms = (main, f"{main} and {same}", f"{side} but {main}", f"although {side}, {main}", f"{main} although {side}")
    return (sentence(draw.pick(forms)),), label


def solve_sentiment(texts: Sequence[str]) -> str:
    """Find the main clause, then its adjective and its `not`."""
    text = texts[0].lower()
    if text.startswith("although "):
        main = text.split(", ")[1]
    elif " although " in text:
        main = text.split(" although ")[0]
    else:
        main = text.split(" but ")[-1].split(" and ")[0]
    words = words_of(main)
    good = any(word in GOOD for word in words)
    return "positive" if good != ("not" in words) else "negative"


def write_topic(draw: Draw) -> Made:
    """A text about 0 to 3 topics, which may also say what it is not about."""
    said, denied = draw.pick(((1, 0), (2, 0), (3, 0), (1, 1), (2, 1), (3, 1), (1, 1), (2, 1), (0, 1), (0, 2)))
    topics = draw.some(tuple(TOPICS), said + denied)
    words = [draw.pick(TOPICS[topic]) for topic in topics]
    yes = "about the " + " and the ".join(words[:said]) if said else ""
    no = "not about the " + " or the ".join(words[said:]) if denied else ""
    both = [part for part in ((yes, no) if draw.chance(0.5) else (no, yes)) if part]
    text = sentence("the", draw.pick(KINDS), draw.pick(TEXTS), "is", " but ".join(both))
    return (text,), tuple(topic for topic in TOPICS if topic in topics[:said])


def solve_topic(texts: Sequence[str]) -> tuple[str, ...]:
    """The topics of the words that are not behind `not about`, in the order of TOPICS."""
    parts = texts[0].lower().split(" is ")[1].split(" but ")
    found = {TOPIC_OF.get(word) for part in parts if not part.startswith("not ") for word in words_of(part)}
    return tuple(topic for topic in TOPICS if topic in found)
