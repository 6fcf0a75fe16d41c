"""Benchmark sentences and repeated texts."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from encodery.data.corpus.decontaminate import Benchmark, Seen, benchmark_sentences, words
from encodery.errors import UserError


@pytest.mark.parametrize(
    ("inside", "found"),
    [
        ("X. It 's a charming and often affecting journey . Y", True),
        ("it's a CHARMING, and often -- affecting journey", True),
        ("it's a charming and often affecting trip", False),
        ("its a charming and often affecting journey", False),
    ],
)
def test_a_sentence_is_found_whatever_its_marks_and_spaces(inside, found):
    benchmark = Benchmark({"sst2": ["it 's a charming and often affecting journey ."]}, 3)
    assert (benchmark.find(inside) is not None) == found


def test_words_of_split_contractions_are_joined():
    assert words("does n't it 's") == words("doesn't it's")


def test_short_sentences_are_not_looked_for():
    benchmark = Benchmark({"x": ["good film", "one two three four five six seven eight"]}, 8)
    assert benchmark.too_short == 1
    assert benchmark.find("a good film") is None
    assert benchmark.find("one two three four five six seven eight nine") == (
        "x",
        "one two three four five six seven eight",
    )


@pytest.mark.slow
@given(st.lists(st.lists(st.sampled_from("abcdefghij"), max_size=6), max_size=20))
def test_seen_is_a_set(batches):
    seen, known = Seen(), set()
    for batch in batches:
        expected = []
        for one in batch:
            expected.append(one not in known)
            known.add(one)
        assert seen.new(batch) == expected
    assert sum(map(len, seen.arrays)) == len(known)


def test_a_task_without_parts_can_be_named(tmp_path):
    """HANS is its own part."""
    write_hans(tmp_path)
    found = benchmark_sentences(["hans:dev", "toy/sentiment:dev"], str(tmp_path))
    assert "The doctors near the lawyers ran." in found["hans:dev"]
    assert found["toy/sentiment:dev"]


def test_an_unknown_task_is_refused():
    with pytest.raises(UserError, match="there is no task glue/nothing"):
        benchmark_sentences(["glue/nothing"], None)


def write_hans(folder):
    row = {
        "pairID": "ex0", "gold_label": "non-entailment", "premise": "The doctors near the lawyers ran.",
        "hypothesis": "The lawyers ran.", "heuristic": "subsequence", "subcase": "sn_PP",
        "template": "temp1",
        "label": 1,
    }  # fmt: skip
    pq.write_table(pa.Table.from_pylist([row]), folder / "hans_dev.parquet")
