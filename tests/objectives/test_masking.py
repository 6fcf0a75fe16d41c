"""Which positions are asked about, and what is shown there."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from encodery.data.batches import Batch
from encodery.errors import UserError
from encodery.models.encoder import Encoder
from encodery.objectives.parts.masking import (
    BertMasking,
    Masked,
    Masking,
    Vocabulary,
    count,
    inside_words,
    mask,
    vocabulary,
)
from tests.objectives.pretraining import CLS, MASK, PAD, SEP, TOKENS, text_table, trunk
from tests.toolbox.models import MemoryTable, batcher_for
from tests.toolbox.tokenizers import word_tokenizer

KNOWN = vocabulary(word_tokenizer(), TOKENS)
WAYS = [
    Masking(),
    BertMasking(probability=0.3),
    Masking(positions="bernoulli"),
    Masking(positions="with_replacement", cap=3),
    BertMasking(whole_words="fairseq"),
    BertMasking(whole_words="hf"),
]


@cache
def encoder_of(layout: str) -> Encoder:
    """Made once: only its layout is asked for."""
    return trunk("bert", layout)


def cut(table: MemoryTable, layout: str = "rows", budget: int = 1 << 30, noise: int = 5) -> list[Batch]:
    found = batcher_for(encoder_of(layout), budget=budget).split(table, np.arange(len(table)), "t", 0)
    return [replace(batch, noise=noise) for batch in found]


def by_example(batches: list[Batch], options: Masking, known: Vocabulary = KNOWN) -> dict[int, Any]:
    """For each row of the table: what is shown, which places are asked, the truth, the numbers to sample by."""
    found: dict[int, Any] = {}
    for batch in batches:
        masked = mask(batch, options, known)
        shown, where = batch.tokens(masked.ids), torch.full((batch.inputs["input_ids"].numel(),), -1)
        where[batch.layout.cells] = torch.arange(len(batch.layout.cells))
        token = where[masked.cells]
        for i, row in enumerate(batch.ids.tolist()):
            mine = batch.layout.sequence_of_token == i
            start = int(mine.nonzero()[0])
            here = masked.sequence == i
            found[row] = (
                shown[mine].tolist(),
                (token[here] - start).tolist(),
                masked.truth[here].tolist(),
                masked.uniform[here].tolist(),
            )
    return found


def one(table: MemoryTable, options: Masking, known: Vocabulary = KNOWN) -> Masked:
    return mask(cut(table)[0], options, known)


@pytest.mark.parametrize("options", WAYS, ids=str)
def test_P23_masks_do_not_depend_on_cutting_or_layout(options: Masking) -> None:
    table = text_table([9, 30, 4, 17, 30, 3, 12])
    whole = by_example(cut(table), options)
    for layout, budget in (("rows", 40), ("packed", 1 << 30), ("packed", 35), ("padded", 60)):
        assert by_example(cut(table, layout, budget), options) == whole
    assert by_example(cut(table, noise=6), options) != whole


@pytest.mark.parametrize("options", WAYS, ids=str)
def test_counts_are_known_before_the_forward_pass(options: Masking) -> None:
    for batch in cut(text_table([9, 30, 4, 17, 3]), budget=40):
        assert count(batch, options, KNOWN) == len(mask(batch, options, KNOWN).truth)


@pytest.mark.slow
@given(st.lists(st.integers(3, 60), min_size=1, max_size=8), st.floats(0.02, 0.9), st.integers(0, 2**40))
def test_exactly_k_distinct_positions(lengths: list[int], share: float, noise: int) -> None:
    table = text_table(lengths)
    for row, (_, places, _, _) in by_example(cut(table, noise=noise), Masking(probability=share)).items():
        n = lengths[row]
        assert len(places) == len(set(places)) == min(max(1, round(share * n)), n - 2)


@pytest.mark.parametrize("options", WAYS, ids=str)
@given(seed=st.integers(0, 10_000))
def test_P5_special_tokens_are_never_asked_and_something_always_is(options: Masking, seed: int) -> None:
    lengths = [3, 5, 12, 40]
    table = text_table(lengths, seed)
    table.ids[7] = MASK  # a mask token that stood in the text
    masked = by_example(cut(table, noise=seed), options)
    for row, (_, places, truth, _) in masked.items():
        assert not set(truth) & {CLS, SEP, PAD, MASK}
        assert all(0 < place < lengths[row] - 1 for place in places)
        assert places or options.positions == "bernoulli"


def shares(options: Masking, rows: int = 120) -> tuple[np.ndarray, np.ndarray]:
    """What is shown and what is true at very many asked positions."""
    table = text_table([500] * rows)
    masked = one(table, options)
    return masked.ids.flatten()[masked.cells].numpy(), masked.truth.numpy()


@pytest.mark.slow
def test_P4_electra_shows_the_mask_in_85_percent_and_else_the_truth() -> None:
    shown, true = shares(Masking(probability=0.9), 2230)
    masked = shown == MASK
    assert len(shown) > 1_000_000
    assert masked.mean() == pytest.approx(0.85, abs=0.002)
    assert (shown[~masked] == true[~masked]).all()


def test_bert_shows_any_ordinary_token_in_10_percent() -> None:
    shown, true = shares(BertMasking(probability=0.9))
    masked, same = shown == MASK, shown == true
    assert masked.mean() == pytest.approx(0.8, abs=0.006)
    ordinary = TOKENS - 5
    assert same.mean() == pytest.approx(0.1 + 0.1 / ordinary, abs=0.005)
    others = shown[~masked & ~same]
    assert others.min() >= 5
    counts = np.bincount(others, minlength=TOKENS)[5:]
    assert counts.min() > 0.6 * counts.mean()


@pytest.mark.slow(0.5)
def test_positions_are_uniform() -> None:
    asked = np.zeros(20)
    for noise in range(300):
        for _, places, _, _ in by_example(cut(text_table([20] * 4), noise=noise), Masking()).values():
            np.add.at(asked, places, 1)
    assert asked[0] == asked[-1] == 0
    expected = asked.sum() / 18
    assert ((asked[1:-1] - expected) ** 2 / expected).sum() < 45  # chi-square of 17 degrees: 40.8 at 0.1 %


def test_bernoulli_counts_vary_around_the_share() -> None:
    counts = [
        count(batch, Masking(positions="bernoulli"), KNOWN)
        for n in range(200)
        for batch in cut(text_table([52]), noise=n)
    ]
    assert np.mean(counts) == pytest.approx(0.15 * 50, rel=0.06)
    assert np.var(counts) == pytest.approx(0.15 * 0.85 * 50, rel=0.35)


@pytest.mark.slow(0.5)
def test_with_replacement_draws_as_often_as_google_and_repeats() -> None:
    table = text_table([128] * 400)
    found = by_example(cut(table), Masking(positions="with_replacement", cap=19))
    assert {len(places) for _, places, _, _ in found.values()} == {19}
    distinct = np.mean([len(set(places)) for _, places, _, _ in found.values()])
    assert distinct == pytest.approx(17.7, abs=0.15)  # spec 1.6


# Whole words


def wordpieces() -> Vocabulary:
    """Tokens from 25 on go on with a word."""
    return replace(KNOWN, inside=np.arange(TOKENS) >= 25)


def words_of(ids: list[int]) -> list[list[int]]:
    """Places of the words between [CLS] and [SEP]."""
    words: list[list[int]] = []
    for place in range(1, len(ids) - 1):
        if ids[place] >= 25 and words:
            words[-1].append(place)
        else:
            words.append([place])
    return words


@pytest.mark.parametrize("way", ["fairseq", "hf"])
@given(seed=st.integers(0, 1000))
def test_whole_words_are_asked_whole(way: Any, seed: int) -> None:
    table = text_table([40, 12, 3, 25], seed)
    found = by_example(cut(table, noise=seed), BertMasking(whole_words=way), wordpieces())
    for row, (_, places, _, _) in found.items():
        ids = table.ids[table.starts[row] : table.starts[row + 1]].tolist()
        words = words_of(ids)
        touched = [word for word in words if set(word) & set(places)]
        assert sorted(place for word in touched for place in word) == sorted(places)
        if way == "fairseq":
            assert len(touched) in {max(1, int(0.15 * len(words))), max(1, int(0.15 * len(words)) + 1)}
        else:
            assert len(places) <= max(1, round(0.15 * len(ids))) or len(touched) == 1


def test_fairseq_shows_all_pieces_of_a_word_in_one_way() -> None:
    table = text_table([60] * 40)
    found = by_example(cut(table), BertMasking(probability=0.5, whole_words="fairseq"), wordpieces())
    mixed = 0
    for row, (shown, places, _, _) in found.items():
        ids = table.ids[table.starts[row] : table.starts[row + 1]].tolist()
        for word in (w for w in words_of(ids) if set(w) & set(places) and len(w) > 1):
            mixed += len({shown[place] == MASK for place in word}) > 1
    assert mixed == 0


def test_words_begin_where_the_vocabulary_says() -> None:
    wordpiece = dict(enumerate(["[PAD]", "a", "##b", "▁", "##c"]))
    assert inside_words(wordpiece, {0}, 5).tolist() == [False, False, True, False, True]
    sentencepiece = dict(enumerate(["<s>", "▁a", "b", "▁"]))
    assert inside_words(sentencepiece, {0}, 4).tolist() == [False, False, True, False]
    bytes_ = dict(enumerate(["<s>", "Ġa", "b"]))
    assert inside_words(bytes_, {0}, 3).tolist() == [False, False, True]


@pytest.mark.parametrize("positions", ["distinct", "with_replacement"])
def test_the_share_moves_with_the_steps(positions: Any) -> None:
    options = Masking(probability=0.4, final_probability=0.1, final_step=30, positions=positions)
    (batch,) = cut(text_table([50] * 8))
    for step, share in ((0, 0.4), (10, 0.3), (20, 0.2), (30, 0.1), (99, 0.1)):
        here, plain = replace(batch, step=step), Masking(probability=share, positions=positions)
        assert count(here, options, KNOWN) == 8 * round(50 * share)
        assert torch.equal(mask(here, options, KNOWN).ids, mask(here, plain, KNOWN).ids)


def test_a_share_that_moves_needs_both_keys() -> None:
    with pytest.raises(ValueError, match="belong together"):
        Masking(final_probability=0.1)


def test_options_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="more than 1 together"):
        Masking(mask=0.9, random=0.2)
    with pytest.raises(ValueError, match="whole_words chooses words by itself"):
        Masking(whole_words="hf", positions="bernoulli")
    tokenizer = word_tokenizer()
    tokenizer.mask_token = None
    with pytest.raises(UserError, match="no mask token"):
        vocabulary(tokenizer, TOKENS)
