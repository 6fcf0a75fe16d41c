"""Documents of the toy grammar, for pretraining: a few people in one place, a crowd, a review, or a note on topics."""

from dataclasses import replace

from encodery.tasks.toy_grammar.facts import draw_fact, write
from encodery.tasks.toy_grammar.single import write_acceptability, write_sentiment, write_topic
from encodery.tasks.toy_grammar.words import ADJECTIVES, ALONE, OPPOSITE, PEOPLE, PLACES, Draw, past, sentence, third


def documents(seed: int, n: int) -> list[str]:
    """n documents, one sentence a line; document i is the same whatever n is."""
    return ["\n".join(_document(Draw("toy", "corpus", seed, i))) for i in range(n)]


def _document(draw: Draw) -> list[str]:
    """4 to 10 sentences of one sort."""
    sentences = 4 + draw.below(7)
    sort = draw.pick(("people", "people", "crowd", "crowd", "review", "topics"))
    if sort == "people":
        return _scene(draw, sentences)
    if sort == "crowd":
        return [_right(draw) for _ in range(sentences)]
    make = write_sentiment if sort == "review" else write_topic
    return [make(draw)[0][0] for _ in range(sentences)]


def _right(draw: Draw) -> str:
    """One or many do something to one or many: a sentence whose verb agrees and whose words are in order."""
    while True:
        (text,), label = write_acceptability(draw)
        if label == "acceptable":
            return text


def _scene(draw: Draw, sentences: int) -> list[str]:
    """Three people whose looks and place stay the same throughout: words that can be foretold from earlier lines."""
    cast = draw.some(PEOPLE, 3)
    looks = {person: draw.pick(ADJECTIVES) for person in cast}
    place = draw.pick(PLACES)
    return [_line(draw, cast, looks, place) for _ in range(sentences)]


def _line(draw: Draw, cast: list[str], looks: dict[str, str], where: str) -> str:
    who, whom = draw.some(cast, 2)
    kind = draw.below(4)
    if kind == 0:
        return sentence(f"the {who} is {looks[who]} and not {OPPOSITE[looks[who]]}")
    if kind == 1:
        verb = draw.pick(ALONE)
        return sentence(f"the {looks[who]} {who} {past(verb) if draw.chance(0.5) else third(verb)} in the {where}")
    fact = replace(draw_fact(draw, denied=0.1, people=(who, whom)), place=where if draw.chance(0.5) else "")
    return write(replace(fact, like=looks[fact.who]), passive=draw.chance(0.4))
