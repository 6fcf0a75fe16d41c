"""Scores of answers, in numpy alone. Fractions from 0 to 1, correlations from -1 to 1; none crashes or is NaN."""

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from encodery.core.rank_correlation import ranks as ranks_of_rows

# SQuAD's official scores: exact match and F1 of normalised answers, and the search for the best null threshold.


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
    by_id = {}
    for id, texts in gold.items():
        if id in guess:
            right = golds(texts)
            by_id[id] = max(exact_one(g, guess[id]) for g in right), max(f1_one(g, guess[id]) for g in right)
    return by_id


def means(scores: Mapping[str, tuple[float, float]], answerable: Mapping[str, bool]) -> dict[str, float]:
    """exact and f1 over all questions, over those with an answer and over those without."""
    groups = {
        "": list(scores),
        "has_answer_": [id for id in scores if answerable[id]],
        "no_answer_": [id for id in scores if not answerable[id]],
    }
    by_name = {}
    for name, ids in groups.items():
        if ids:
            by_name[f"{name}exact"] = sum(scores[id][0] for id in ids) / len(ids)
            by_name[f"{name}f1"] = sum(scores[id][1] for id in ids) / len(ids)
    return by_name


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


Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def accuracy(gold: Sequence[str], guess: Sequence[str]) -> float:
    """Share of equal pairs."""
    return float(np.mean([a == b for a, b in zip(gold, guess, strict=True)]))


def confusion(gold: Sequence[str], guess: Sequence[str], labels: Sequence[str]) -> Ints:
    """Counts [gold, guess] over the given labels."""
    number = {label: i for i, label in enumerate(labels)}
    table = np.zeros((len(labels), len(labels)), dtype=np.int64)
    np.add.at(table, ([number[g] for g in gold], [number[g] for g in guess]), 1)
    return table


def ratio(above: float, below: float) -> float:
    """Their quotient; 0 where nothing is counted."""
    return float(above / below) if below else 0.0


def f1(gold: Sequence[str], guess: Sequence[str], positive: str) -> float:
    """F1 of one label; 0 where it neither occurs nor is guessed."""
    hits = sum(a == b == positive for a, b in zip(gold, guess, strict=True))
    return ratio(2 * hits, sum(g == positive for g in gold) + sum(g == positive for g in guess))


def macro_f1(gold: Sequence[str], guess: Sequence[str]) -> float:
    """Mean of the labels' F1, over those that occur or are guessed."""
    return float(np.mean([f1(gold, guess, label) for label in sorted({*gold, *guess})]))


def matthews(gold: Sequence[str], guess: Sequence[str]) -> float:
    """Matthews' correlation for any number of classes; 0 when only one class is guessed or occurs."""
    table = confusion(gold, guess, sorted({*gold, *guess})).astype(np.float64)
    return matthews_of(float(np.trace(table)), table.sum(axis=1), table.sum(axis=0))


def matthews_of(right: float, there: Floats, said: Floats) -> float:
    """The same from counts: rows answered rightly, and how often each class occurs and is guessed."""
    n = there.sum()
    spread = (n * n - there @ there) * (n * n - said @ said)
    return ratio(right * n - there @ said, np.sqrt(spread))


def _centred(values: Sequence[float] | Floats) -> Floats:
    """Differences from the mean on a scale where squares neither overflow nor vanish; zeros for a constant."""
    array = np.asarray(values, dtype=np.float64)
    if array.size == 0 or not np.isfinite(array).all() or (array == array[0]).all():
        return np.zeros_like(array)
    array = array / np.abs(array).max()
    centred = array - array.mean()
    size = np.abs(centred).max()
    return np.asarray(centred / size) if size > 0 else np.zeros_like(array)


def pearson(gold: Sequence[float] | Floats, guess: Sequence[float] | Floats) -> float:
    """Linear correlation; 0 for constant or non-finite values."""
    a, b = _centred(gold), _centred(guess)
    return float(np.clip(ratio(float(a @ b), float(np.sqrt((a @ a) * (b @ b)))), -1.0, 1.0))


def ranks(values: Sequence[float] | Floats) -> Floats:
    """Ranks from 1; equal values share the mean of theirs."""
    return np.asarray(ranks_of_rows(np.asarray(values, dtype=np.float64)[None])[0])


def spearman(gold: Sequence[float] | Floats, guess: Sequence[float] | Floats) -> float:
    """Correlation of the ranks; 0 for constant or non-finite values."""
    if not (np.isfinite(gold).all() and np.isfinite(guess).all()):
        return 0.0
    return pearson(ranks(gold), ranks(guess))


def rmse(gold: Sequence[float] | Floats, guess: Sequence[float] | Floats) -> float:
    """Root of the mean squared error."""
    return float(np.sqrt(np.mean((np.asarray(gold) - np.asarray(guess)) ** 2)))


def multilabel(gold: Floats, guess: Floats) -> dict[str, float]:
    """Scores of 0/1 tables [example, label]."""
    hits, all_gold, all_guess = (gold * guess).sum(axis=0), gold.sum(axis=0), guess.sum(axis=0)
    each = [ratio(2 * h, a + b) for h, a, b in zip(hits, all_gold, all_guess, strict=True)]
    return {
        "micro_f1": ratio(2 * hits.sum(), all_gold.sum() + all_guess.sum()),
        "macro_f1": float(np.mean(each)),
        "subset_accuracy": float(np.mean((gold == guess).all(axis=1))),
    }


def calibration(gold: Ints, probabilities: Floats) -> dict[str, float]:
    """How far probabilities [example, label] can be trusted: ECE, Brier score and negative log-likelihood."""
    rows = np.arange(len(gold))
    truth = np.zeros_like(probabilities)
    truth[rows, gold] = 1
    return {
        "ece": expected_error(probabilities.max(axis=1), probabilities.argmax(axis=1) == gold),
        "brier": float(np.mean(((probabilities - truth) ** 2).sum(axis=1))),
        "nll": float(-np.mean(np.log(np.maximum(probabilities[rows, gold], 1e-12)))),
    }


BINS = 15


def confidence_bins(confidence: Floats) -> NDArray[np.int64]:
    """Which of equal bins (lower, upper] each number between 0 and 1 is in."""
    return np.clip(np.ceil(confidence * BINS).astype(np.int64) - 1, 0, BINS - 1)


def expected_error(confidence: Floats, right: NDArray[np.bool_]) -> float:
    """Expected calibration error: mean gap of confidence and accuracy over equal bins."""
    which = confidence_bins(confidence)
    gaps = np.bincount(which, weights=confidence - right, minlength=BINS)
    return float(np.abs(gaps).sum() / len(confidence))


Entity = tuple[str, int, int]  # type, first word, last word


def entities(tags: Sequence[str], strict: bool = False, closing: bool = False) -> set[Entity]:
    """The spans that BIO or BIOES (also BILOU) tags mark.

    lenient, as conlleval counts: an I- that follows no span of its type begins one, and any break ends it. strict:
    a span begins with B- (or S-, U-) and goes on in its type; with `closing` (BIOES, BILOU) it also ends with E- or L-.
    """
    spans: set[Entity] = set()
    kind, first, begun_well = "", 0, False
    for position, tag in enumerate([*tags, "O"]):
        mark, _, name = tag.partition("-") if tag != "O" else ("O", "", "")
        if kind and (mark in ("B", "S", "U", "O") or name != kind):  # the span before ends here
            if not strict or (begun_well and not closing):
                spans.add((kind, first, position - 1))
            kind = ""
        if mark == "O":
            continue
        if not kind:
            kind, first, begun_well = name, position, mark in ("B", "S", "U")
        if mark in ("E", "L", "S", "U"):  # this word ends it
            if not strict or begun_well:
                spans.add((kind, first, position))
            kind = ""
    return spans


def span_scores(gold: Sequence[Sequence[str]], guess: Sequence[Sequence[str]]) -> dict[str, float]:
    """Precision, recall and F1 of whole spans over all sentences, counted leniently; and F1 counted strictly."""
    hits, there, said = _span_counts(gold, guess, strict=False)
    strict_hits, strict_there, strict_said = _span_counts(gold, guess, strict=True)
    return {
        "f1": ratio(2 * hits, there + said),
        "precision": ratio(hits, said),
        "recall": ratio(hits, there),
        "strict_f1": ratio(2 * strict_hits, strict_there + strict_said),
    }


def _span_counts(gold: Sequence[Sequence[str]], guess: Sequence[Sequence[str]], strict: bool) -> tuple[int, int, int]:
    closing = any(tag[:2] in ("E-", "L-", "S-", "U-") for tags in (*gold, *guess) for tag in tags)
    pairs = [(entities(a, strict, closing), entities(b, strict, closing)) for a, b in zip(gold, guess, strict=True)]
    return sum(len(a & b) for a, b in pairs), sum(len(a) for a, _ in pairs), sum(len(b) for _, b in pairs)
