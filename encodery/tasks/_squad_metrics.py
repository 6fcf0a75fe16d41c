"""SQuAD's official scores: exact match and F1 of normalised answers, and the search for the best null threshold."""

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalise(text: str) -> str:
    """Lower case, without ASCII punctuation, articles and superfluous blanks."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def golds(texts: Sequence[str]) -> list[str]:
    """The gold answers that are not empty when normalised; none means that there is no answer: [""]."""
    return [text for text in texts if normalise(text)] or [""]


def exact_one(gold: str, guess: str) -> float:
    """1 if both are the same when normalised."""
    return float(normalise(gold) == normalise(guess))


def f1_one(gold: str, guess: str) -> float:
    """F1 of the bags of words; where one has no words, 1 if both have none."""
    a, b = normalise(gold).split(), normalise(guess).split()
    if not a or not b:
        return float(a == b)
    same = sum((Counter(a) & Counter(b)).values())
    return 2 * same / (len(a) + len(b))


def raw_scores(gold: Mapping[str, Sequence[str]], guess: Mapping[str, str]) -> dict[str, tuple[float, float]]:
    """(exact, F1) of each question, the best over its golds; questions without a prediction are left out."""
    found = {}
    for id, texts in gold.items():
        if id in guess:
            right = golds(texts)
            found[id] = max(exact_one(g, guess[id]) for g in right), max(f1_one(g, guess[id]) for g in right)
    return found


def with_threshold(
    raw: Mapping[str, tuple[float, float]], answerable: Mapping[str, bool], odds: Mapping[str, float], threshold: float
) -> dict[str, tuple[float, float]]:
    """The scores after saying `no answer` wherever the odds of that are above the threshold."""
    right = {id: float(not answerable[id]) for id in raw}
    return {id: (right[id], right[id]) if odds[id] > threshold else raw[id] for id in raw}


def means(scores: Mapping[str, tuple[float, float]], answerable: Mapping[str, bool]) -> dict[str, float]:
    """exact and f1 over all questions, over those with an answer and over those without."""
    groups = {
        "": list(scores),
        "has_answer_": [id for id in scores if answerable[id]],
        "no_answer_": [id for id in scores if not answerable[id]],
    }
    found = {}
    for name, ids in groups.items():
        if ids:
            found[f"{name}exact"] = sum(scores[id][0] for id in ids) / len(ids)
            found[f"{name}f1"] = sum(scores[id][1] for id in ids) / len(ids)
    return found


def best_threshold(
    raw: Mapping[str, float], guess: Mapping[str, str], answerable: Mapping[str, bool], odds: Mapping[str, float]
) -> tuple[float, float]:
    """(score, threshold) of the best threshold on the odds of no answer; it is tuned on the very rows it is for.

    Everything unanswered is the start; then questions are answered one by one, those with the lowest odds first.
    """
    score = best = float(sum(not answerable[id] for id in raw))
    threshold = 0.0
    for id in sorted(raw, key=lambda id: odds[id]):
        score += raw[id] if answerable[id] else (-1.0 if guess[id] else 0.0)
        if score > best:
            best, threshold = score, odds[id]
    return best / max(len(raw), 1), threshold
