"""A small HANS: hypotheses of the premise's words only; saying "entailment" to all of them is wrong half the time."""

from collections.abc import Callable

from encodery.errors import UserError
from encodery.tasks.base import Example
from encodery.tasks.toy_grammar.words import ALONE, PEOPLE, PLACES, PLAIN, Draw, past, sentence, third

MOST = 4000  # the smallest subcase has 448 pairs, and there are twelve
LABELS = ("entailment", "non-entailment")


class Cast:
    """The words of one pair: three people, a verb, a verb without object, a place."""

    def __init__(self, draw: Draw) -> None:
        self.a, self.b, self.c = (f"the {person}" for person in draw.some(PEOPLE, 3))
        self.verb, self.alone, self.place = draw.pick(PLAIN), draw.pick(ALONE), f"in the {draw.pick(PLACES)}"
        self.does, self.done = third(self.verb), past(self.verb)
        self.rests, self.rested = third(self.alone), past(self.alone)


Case = tuple[str, str, str, Callable[[Cast], tuple[str, str]]]  # heuristic, subcase, label, premise and hypothesis
CASES: tuple[Case, ...] = (
    ("lexical_overlap", "swap", LABELS[1], lambda x: (f"{x.a} {x.does} {x.b}", f"{x.b} {x.does} {x.a}")),
    ("lexical_overlap", "passive_swap", LABELS[1],
     lambda x: (f"{x.a} is {x.done} by {x.b} {x.place}", f"{x.b} is {x.done} by {x.a} {x.place}")),
    ("lexical_overlap", "and_object", LABELS[0],
     lambda x: (f"{x.a} {x.does} {x.b} and {x.c}", f"{x.a} {x.does} {x.c}")),
    ("lexical_overlap", "by_phrase_dropped", LABELS[0],
     lambda x: (f"{x.a} is {x.done} by {x.b} {x.place}", f"{x.a} is {x.done} {x.place}")),
    ("subsequence", "near", LABELS[1],
     lambda x: (f"{x.a} near {x.b} {x.rests}", f"{x.b} {x.rests}")),
    ("subsequence", "and_subject", LABELS[1],
     lambda x: (f"{x.a} {x.does} {x.b} and {x.c} {x.rested}", f"{x.b} and {x.c} {x.rested}")),
    ("subsequence", "place_dropped", LABELS[0],
     lambda x: (f"{x.a} {x.does} {x.b} {x.place}", f"{x.a} {x.does} {x.b}")),
    ("subsequence", "and_clause", LABELS[0],
     lambda x: (f"{x.a} {x.does} {x.b} and {x.c} {x.rests}", f"{x.c} {x.rests}")),
    ("constituent", "if", LABELS[1],
     lambda x: (f"if {x.a} {x.does} {x.b}, {x.c} {x.rests}", f"{x.a} {x.does} {x.b}")),
    ("constituent", "or", LABELS[1],
     lambda x: (f"{x.a} {x.does} {x.b} or {x.c} {x.rests}", f"{x.c} {x.rests}")),
    ("constituent", "although", LABELS[0],
     lambda x: (f"although {x.a} {x.does} {x.b}, {x.c} {x.rests}", f"{x.a} {x.does} {x.b}")),
    ("constituent", "because", LABELS[0],
     lambda x: (f"{x.a} {x.does} {x.b} because {x.c} {x.rests}", f"{x.c} {x.rests}")),
)  # fmt: skip


def hans(seed: int, n: int) -> list[Example]:
    """n different pairs, as many of every subcase as can be; evaluation only."""
    if n > MOST:
        raise UserError(f"toy/hans has {MOST} pairs at most, not {n}: ask for fewer")
    draw = Draw("toy", "hans", seed)
    pairs: dict[tuple[str, str], Example] = {}
    while len(pairs) < n:
        number = len(pairs)
        heuristic, subcase, label, make = CASES[number % len(CASES)]
        premise, hypothesis = make(Cast(draw))
        texts = sentence(premise), sentence(hypothesis)
        pairs.setdefault(
            texts, Example(f"hans-{number}", texts, label, extra={"heuristic": heuristic, "subcase": subcase})
        )
    return list(pairs.values())
