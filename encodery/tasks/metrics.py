"""Scores of answers, in numpy alone. Fractions from 0 to 1, correlations from -1 to 1; none crashes or is NaN."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

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
    array = np.asarray(values, dtype=np.float64)
    _, place, count = np.unique(array, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return np.asarray((last - (count - 1) / 2)[place], dtype=np.float64)


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


def calibration(gold: Ints, probabilities: Floats, bins: int = 15) -> dict[str, float]:
    """How far probabilities [example, label] can be trusted: ECE, Brier score and negative log-likelihood."""
    rows = np.arange(len(gold))
    truth = np.zeros_like(probabilities)
    truth[rows, gold] = 1
    return {
        "ece": expected_error(probabilities.max(axis=1), probabilities.argmax(axis=1) == gold, bins),
        "brier": float(np.mean(((probabilities - truth) ** 2).sum(axis=1))),
        "nll": float(-np.mean(np.log(np.maximum(probabilities[rows, gold], 1e-12)))),
    }


def expected_error(confidence: Floats, right: NDArray[np.bool_], bins: int = 15) -> float:
    """Expected calibration error: mean gap of confidence and accuracy over equal bins (lower, upper]."""
    which = np.clip(np.ceil(confidence * bins).astype(np.int64) - 1, 0, bins - 1)
    gaps = np.bincount(which, weights=confidence - right, minlength=bins)
    return float(np.abs(gaps).sum() / len(confidence))


Entity = tuple[str, int, int]  # type, first word, last word


def entities(tags: Sequence[str], strict: bool = False, closing: bool = False) -> set[Entity]:
    """The spans that BIO or BIOES (also BILOU) tags mark.

    lenient, as conlleval counts: an I- that follows no span of its type begins one, and any break ends it. strict:
    a span begins with B- (or S-, U-) and goes on in its type; with `closing` (BIOES, BILOU) it also ends with E- or L-.
    """
    found: set[Entity] = set()
    kind, first, begun_well = "", 0, False
    for place, tag in enumerate([*tags, "O"]):
        mark, _, name = tag.partition("-") if tag != "O" else ("O", "", "")
        if kind and (mark in ("B", "S", "U", "O") or name != kind):  # the span before ends here
            if not strict or (begun_well and not closing):
                found.add((kind, first, place - 1))
            kind = ""
        if mark == "O":
            continue
        if not kind:
            kind, first, begun_well = name, place, mark in ("B", "S", "U")
        if mark in ("E", "L", "S", "U"):  # this word ends it
            if not strict or begun_well:
                found.add((kind, first, place))
            kind = ""
    return found


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
