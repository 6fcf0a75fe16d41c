"""Near-duplicates as a selector."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from encodery.core.near_duplicates import pairs
from encodery.errors import UserError
from encodery.selectors.base import Pool
from encodery.selectors.dedup import Dedup, one_of_each
from encodery.tasks.base import Example

WORDS = ("the", "a", "doctor", "lawyer", "saw", "helped")


def pool_of(texts, labels=None, **more) -> Pool:
    rows = [Example(f"id-{i}", (text,), (labels or {}).get(i, "x")) for i, text in enumerate(texts)]
    return Pool(rows, ("x", "y"), **more)


def test_one_of_equal_rows_is_kept_and_other_labels_are_counted():
    where = pool_of(["good film", "Good film!", "other words", "good film"], {1: "y"})
    found = Dedup()(where, 4)
    kept = [where.ids[i] for i in found.order]
    assert "id-2" in kept
    assert len(kept) == 2
    assert found.scores.tolist().count(1.0) == 2
    assert found.notes[-1].startswith("2 of 4 rows repeat another one, ")
    every = Dedup(drop=False)(where, 4).order
    assert sorted(every.tolist()) == [0, 1, 2, 3]
    assert every[:2].tolist() == found.order.tolist()


def test_rows_like_another_split_are_left_out_with_their_copies():
    train = ["the doctor saw the lawyer near the court", "The doctor saw the lawyer near the court.", "good film"]
    dev = [Example("d", ("the doctor saw the lawyer near the court today",), "x")]
    where = pool_of(train, split=lambda name: {"dev": dev}[name])
    found = Dedup(against="dev")(where, 3)
    assert [where.ids[i] for i in found.order] == ["id-2"]
    assert found.notes[0] == "2 of 3 rows resemble a row of dev"
    with pytest.raises(UserError, match="has no split dev"):
        Dedup(against="dev")(pool_of(train), 3)


def test_a_chain_does_not_vanish_behind_its_first():
    chain = [(0, 1, 0.9), (1, 2, 0.9)]
    assert one_of_each(chain, np.array([0, 1, 2])) == {1: (0, 0.9)}
    assert one_of_each(chain, np.array([1, 0, 2])) == {0: (1, 0.9), 2: (1, 0.9)}
    assert one_of_each(chain, np.array([0, 1, 2]), {0}) == {2: (1, 0.9)}


@pytest.mark.slow
@settings(max_examples=40)
@given(st.lists(st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join), min_size=1, max_size=20), st.integers(1, 3))
def test_no_two_kept_rows_are_alike_and_each_dropped_row_is_like_a_kept_one(texts, seed):
    where = pool_of(texts, seed=seed)
    found = Dedup(threshold=0.7)(where, len(texts))
    kept = [where.examples[i].texts for i in found.order]
    assert pairs(kept, threshold=0.7) == []
    gone = sorted(set(range(len(texts))) - set(found.order.tolist()))
    assert {i for i in range(len(texts)) if found.scores[i] > 0} == set(gone)
    for place in gone:
        assert pairs([where.examples[place].texts], kept, threshold=0.7)
