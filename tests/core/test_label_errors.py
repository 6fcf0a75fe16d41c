"""Suspicious labels, on numbers that can be checked by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from encodery.core.label_errors import area_under_margin, auc, confident, thresholds


def test_area_under_margin_is_the_mean_gap_to_the_best_other_label():
    logits = np.array([[[3.0, 1, 2], [0, 1, 5]], [[1, 1, 4], [np.nan] * 3]])
    assert area_under_margin(logits, np.array([0, 1])).tolist() == [(1 - 3) / 2, -4.0]


def test_a_row_that_was_never_seen_has_no_area():
    found = area_under_margin(np.full((2, 1, 2), np.nan), np.array([0]))
    assert np.isnan(found[0])


def test_confident_joint_by_hand():
    chances = np.array([[0.9, 0.1], [0.8, 0.2], [0.2, 0.8], [0.1, 0.9], [0.3, 0.7], [0.55, 0.45]])
    gold = np.array([0, 0, 0, 1, 1, 1])
    assert thresholds(chances, gold).tolist() == pytest.approx([1.9 / 3, 2.05 / 3])
    suspicion, flagged = confident(chances, gold)
    assert flagged.tolist() == [False, False, True, False, False, False]
    assert suspicion.argmax() == 2
    assert suspicion[2] == pytest.approx(0.8)
    assert suspicion[5] == pytest.approx(0.55)  # wrong, but below what rows of label 0 usually get


def test_a_label_that_no_row_carries_is_never_the_better_one():
    _, flagged = confident(np.array([[0.3, 0.0, 0.7]] * 3), np.array([0, 0, 1]))
    assert flagged.tolist() == [False, False, True]  # of label 0, not of 2, which the model says of all rows


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=30))
def test_auc_is_the_share_of_pairs(rows):
    scores, wrong = np.array([float(s) for s, _ in rows]), np.array([w for _, w in rows])
    pairs = [(a > b) + 0.5 * (a == b) for a in scores[wrong] for b in scores[~wrong]]
    if pairs:
        assert auc(scores, wrong) == pytest.approx(np.mean(pairs))
    else:
        assert np.isnan(auc(scores, wrong))
