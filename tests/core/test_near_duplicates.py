"""Near-duplicates against exact Jaccard."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from encodery.core.near_duplicates import DRAWS, RECALL, WORD, bands, pairs, shingles, signatures

WORDS = ("the", "a", "doctor", "lawyer", "saw", "helped", "slept", "near", "with", "not", "every", "some")


def exact(a: str, b: str, words: int = 2) -> float:
    """Jaccard of sets of word tuples, without any hash."""

    def cut(text):
        each = WORD.findall(text.lower())
        n = min(words, len(each))
        return {tuple(each[i : i + n]) for i in range(len(each) - n + 1)} if each else set()

    left, right = cut(a), cut(b)
    return len(left & right) / len(left | right) if left | right else 1.0


TEXTS = st.lists(st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join), max_size=25)


@pytest.mark.slow
@settings(max_examples=60)
@given(TEXTS, st.sampled_from([0.5, 0.7, 0.8, 1.0]), st.integers(1, 3))
def test_what_is_found_is_exactly_as_alike_as_it_says(texts, threshold, words):
    found = pairs(texts, threshold=threshold, words=words)
    for a, b, alike in found:
        assert a < b
        assert alike == pytest.approx(exact(texts[a], texts[b], words))
        assert alike >= threshold
    assert [one[2] for one in found] == sorted((one[2] for one in found), reverse=True)
    assert len({(a, b) for a, b, _ in found}) == len(found)


@pytest.mark.slow
@settings(max_examples=60)
@given(TEXTS, st.sampled_from([0.5, 0.7, 0.8]))
def test_hardly_a_pair_is_overlooked(texts, threshold):
    """Every row that is like another has a pair; the draws are fixed, so this cannot fail by chance from day to day."""
    distinct = list(dict.fromkeys(" ".join(text.split()) for text in texts))
    expected = {
        (i, j)
        for i in range(len(distinct))
        for j in range(i + 1, len(distinct))
        if threshold + 0.15 <= exact(distinct[i], distinct[j]) < 1
    }
    copies = {i for i in range(len(distinct)) for j in range(i) if exact(distinct[i], distinct[j]) == 1}
    found = {(a, b) for a, b, _ in pairs(distinct, threshold=threshold)}
    assert {(a, b) for a, b in expected if a not in copies and b not in copies} <= found


def test_recall_at_the_threshold_is_as_promised():
    for threshold in (0.5, 0.6, 0.7, 0.8, 0.9):
        count, size = bands(threshold)
        assert count * size <= DRAWS
        assert 1 - (1 - threshold**size) ** count >= RECALL


@pytest.mark.slow
def test_signatures_estimate_jaccard():
    rng = np.random.default_rng(0)
    gaps = []
    for trial in range(60):
        shared, own = rng.integers(5, 60), rng.integers(1, 40)
        words = [f"t{trial}w{i}" for i in range(shared + 2 * own)]
        left, right = words[: shared + own], words[:shared] + words[shared + own :]
        known: dict[str, int] = {}
        rows = [shingles(" ".join(side), 1, known) for side in (left, right)]
        agree = float(np.mean(np.equal(*signatures(rows))))
        gaps.append(agree - shared / (shared + 2 * own))
    assert abs(np.mean(gaps)) < 0.02
    assert np.std(gaps) < 2 * (0.25 / DRAWS) ** 0.5


def test_a_pair_of_texts_is_as_alike_as_its_least_alike_texts():
    premise = "a man in a red shirt is playing the guitar on a stage in front of many people"
    rows = [(premise, "a man plays"), (premise, "nobody sleeps at all"), (premise + " today", "A man plays!")]
    assert [(a, b) for a, b, _ in pairs(rows)] == [(0, 2)]
    assert pairs([(premise, "x"), (premise,)]) == []
    swapped = pairs([("good film", "bad film"), ("bad film", "good film")])
    assert swapped == []


def test_copies_are_paired_with_the_first_of_them_alone():
    assert pairs(["Good film.", "good film", "other words", "GOOD film"]) == [(0, 1, 1.0), (0, 3, 1.0)]


def test_two_splits():
    train = ["the doctor saw the lawyer near the court", "good film", "good film"]
    dev = ["something else", "the doctor saw the lawyer near the court today", "good film", "good film"]
    assert pairs(train, dev) == [(1, 2, 1.0), (1, 3, 1.0), (0, 1, pytest.approx(7 / 8))]
    assert pairs(train, []) == []
    assert pairs([], dev) == []
    assert pairs([]) == []
    again = [train[0] + " today"] * 3
    assert [(a, b) for a, b, _ in pairs(train[:1], again)] == [(0, 0), (0, 1), (0, 2)]


def test_empty_texts_are_equal_and_like_nothing_else():
    assert pairs(["", "...", "word"]) == [(0, 1, 1.0)]
