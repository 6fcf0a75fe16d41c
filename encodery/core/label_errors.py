"""Which labels are likely wrong: area under the margin, and confident learning. Numpy alone."""

import numpy as np


def area_under_margin(logits: np.ndarray, gold: np.ndarray) -> np.ndarray:
    """Pleiss et al. 2020 (arXiv 2001.10528): z(label) − the highest other logit, mean over all looks; low: suspicious.

    `logits` is [looks, n, labels], `gold` [n]. A look that did not see a row (NaN) is left out; never seen: NaN.
    """
    logits = np.asarray(logits, np.float64)
    rows = np.arange(len(gold))
    own = logits[:, rows, gold]  # [looks, n]
    others = logits.copy()
    others[:, rows, gold] = -np.inf
    margins = own - others.max(axis=2)
    seen = ~np.isnan(own)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(seen, margins, 0.0).sum(0) / np.where(seen.any(0), seen.sum(0), np.nan))


def thresholds(probabilities: np.ndarray, gold: np.ndarray) -> np.ndarray:
    """How sure the model is of each label on average, over the rows that carry it; infinity where no row does."""
    labels = probabilities.shape[1]
    counts = np.bincount(gold, minlength=labels)
    sums = np.bincount(gold, weights=probabilities[np.arange(len(gold)), gold], minlength=labels)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.inf)


def confident(probabilities: np.ndarray, gold: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Northcutt, Jiang and Chuang 2021 (arXiv 1911.00068), from probabilities [n, labels] of models that have not seen
    the row: how suspicious each label is (0 to 1), and which rows the confident joint puts outside its diagonal.

    A row counts as label j if p(j) is at least the mean p(j) of the rows that carry j; of several the likeliest.
    Suspicion is the margin: (highest other probability − p(label) + 1) / 2.
    """
    probabilities = np.asarray(probabilities, np.float64)
    rows = np.arange(len(gold))
    others = probabilities.copy()
    others[rows, gold] = -1.0
    suspicion = (others.max(axis=1) - probabilities[rows, gold] + 1) / 2
    sure = probabilities >= thresholds(probabilities, gold)
    likeliest = np.where(sure, probabilities, -1.0).argmax(axis=1)
    return suspicion, sure.any(axis=1) & (likeliest != gold)


def auc(scores: np.ndarray, wrong: np.ndarray) -> float:
    """How often a wrong row has a higher score than a right one, ties by half; NaN where one kind is not there."""
    order = np.unique(scores, return_inverse=True)[1]
    counts = np.bincount(order)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[order]  # mean rank of ties, from 1
    bad = int(wrong.sum())
    good = len(wrong) - bad
    if not bad or not good:
        return float("nan")
    return float((ranks[wrong].sum() - bad * (bad + 1) / 2) / (bad * good))
