"""Texts become pieces and pieces one sequence, exactly as the tokenizer itself would do it where nothing is cut."""

import itertools
from collections.abc import Callable
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from encodery.data.tokenizer import TokenizerPieces, shorten
from encodery.errors import UserError
from encodery.models.tokenizer import toy_tokenizer

TEXTS = [
    "a b c",
    "the cat sat, on a mat",
    "",
    "ab  cd",
    "Ünïcode ok",
    "x" * 30,
    "[SEP] </s> inside",
    " lead and trail ",
]
LETTERS = [chr(i) for i in range(33, 127)]


def pop_loop(a: int, b: int, budget: int) -> tuple[int, int]:
    """What the specification says, word for word."""
    while a + b > budget:
        if a > b:
            a -= 1
        else:
            b -= 1
    return a, b


@pytest.mark.parametrize(("lengths", "budget", "kept"), [((100, 20), 60, (40, 20)), ((50, 50), 61, (31, 30))])
def test_F7_truncation_pops_the_longer_text_and_ties_from_the_second(
    lengths: tuple[int, int], budget: int, kept: tuple[int, int]
) -> None:
    assert shorten(*lengths, budget) == kept


@given(st.integers(0, 80), st.integers(0, 80), st.integers(0, 170))
def test_F7_truncation_equals_the_loop_that_pops(a: int, b: int, budget: int) -> None:
    assert shorten(a, b, budget) == pop_loop(a, b, budget)


def bert_like() -> Tokenizer:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *LETTERS, *(f"##{c}" for c in LETTERS), "cat", "the"]
    inner = Tokenizer(models.WordPiece({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    inner.normalizer, inner.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    inner.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    inner.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
    return inner


def roberta_like() -> Tokenizer:
    words = ["<s>", "<pad>", "</s>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    inner = Tokenizer(models.BPE({w: i for i, w in enumerate(words)}, []))
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    inner.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    inner.add_special_tokens(["<s>", "<pad>", "</s>"])
    return inner


def unigram_like(single: str, pair: str, specials: list[str]) -> Tokenizer:
    scores = [(s, 0.0) for s in specials] + [
        ("<unk>", -9.0),
        ("▁", -2.0),
        ("▁the", -3.0),
        *((c, -5.0) for c in LETTERS),
    ]
    inner = Tokenizer(models.Unigram(scores, unk_id=len(specials)))
    inner.pre_tokenizer = pre_tokenizers.Metaspace()
    named = [(s, i) for i, s in enumerate(specials)]
    inner.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=named)
    inner.add_special_tokens(specials)
    return inner


def xlmr_like() -> Tokenizer:
    return unigram_like("<s> $A </s>", "<s> $A </s> </s> $B </s>", ["<s>", "<pad>", "</s>"])


def deberta_like() -> Tokenizer:
    pair = "[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1"
    return unigram_like("[CLS]:0 $A:0 [SEP]:0", pair, ["[PAD]", "[CLS]", "[SEP]"])


def modernbert_like() -> Tokenizer:
    words = ["<|endoftext|>", "[CLS]", "[SEP]", "[PAD]", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    inner = Tokenizer(models.BPE({w: i for i, w in enumerate(words)}, []))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    inner.add_special_tokens([AddedToken("[MASK]", lstrip=True), "[CLS]", "[SEP]"])
    return inner


ALL = [bert_like, roberta_like, xlmr_like, deberta_like, modernbert_like]


@cache
def pieces_of(make: Callable[[], Tokenizer]) -> TokenizerPieces:
    return TokenizerPieces(PreTrainedTokenizerFast(tokenizer_object=make()))


@pytest.mark.parametrize("make", ALL)
def test_join_equals_the_tokenizers_own_encoding(make: Callable[[], Tokenizer]) -> None:
    ours, theirs = pieces_of(make), make()
    ids = ours.many(TEXTS)
    for a, text in zip(ids, TEXTS, strict=True):
        whole = theirs.encode(text)
        assert ours.join(a, None, 512) == (whole.ids, whole.type_ids)
        for b, other in zip(ids, TEXTS, strict=True):
            whole = theirs.encode(text, other)
            assert ours.join(a, b, 512) == (whole.ids, whole.type_ids)


@pytest.mark.parametrize("make", ALL)
@given(n=st.integers(0, 30), m=st.integers(0, 30), limit=st.integers(4, 64))
def test_F7_a_cut_sequence_keeps_its_special_tokens(make: Callable[[], Tokenizer], n: int, m: int, limit: int) -> None:
    pieces = pieces_of(make)
    a, b = [50 + i for i in range(n)], [100 + i for i in range(m)]
    form = pieces.pair
    ids, types = pieces.join(a, b, limit)
    kept_a, kept_b = pop_loop(n, m, limit - form.extra)
    assert ids == [*form.before, *a[:kept_a], *form.between, *b[:kept_b], *form.after]
    assert len(types) == len(ids) == min(limit, n + m + form.extra)


@pytest.mark.slow
def test_truncation_differs_from_fast_tokenizers_in_the_odd_token_alone() -> None:
    """What docs/from-run-glue.md says: theirs goes to the longer text, to the second if both are equal."""
    tokenizer = toy_tokenizer()
    pieces, words = TokenizerPieces(tokenizer), ["teacher"] * 9
    differed = 0
    for a, b, room in itertools.product(range(1, 9), range(1, 9), range(2, 14)):
        first, second = " ".join(words[:a]), " ".join(words[:b])
        theirs = tokenizer(first, second, truncation="longest_first", max_length=room + 3)["token_type_ids"]
        ours = pieces.join(*pieces.many([first, second]), room + 3)[1]
        odd = a + b > room and room % 2 == 1 and min(a, b) > room // 2 and a <= b
        assert sum(theirs) - sum(ours) == odd
        assert len(theirs) == len(ours)
        differed += odd
    assert differed > 10


def test_padding_and_truncation_of_a_published_file_are_switched_off() -> None:
    inner = bert_like()
    inner.enable_padding(length=128)
    inner.enable_truncation(5)
    pieces = TokenizerPieces(PreTrainedTokenizerFast(tokenizer_object=inner))
    assert len(pieces.many(["cat " * 9])[0]) == 9
    assert len(pieces.join(pieces.many(["cat"])[0], None, 128)[0]) == 3


def test_digests_differ_by_vocabulary_and_template() -> None:
    assert len({pieces_of(make).digest for make in ALL}) == len(ALL)
    assert pieces_of.__wrapped__(bert_like).digest == pieces_of(bert_like).digest


def test_a_slow_tokenizer_is_refused_by_name() -> None:
    class Slow:
        name_or_path = "some/slow"

    with pytest.raises(UserError, match=r"some/slow.*fast tokenizer"):
        TokenizerPieces(Slow())
