"""The quick way gives what the tokenizer gives, for any text."""

import string
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from encodery.data.corpus import fast_wordpiece
from encodery.data.corpus.fast_wordpiece import Quick
from encodery.models.tokenizer import toy_tokenizer

LETTERS = [*string.ascii_letters, *string.digits, *string.punctuation, *"éΣσςß日本ıİ’“”…—€\u0301"]


def bert(**options: bool) -> Tokenizer:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *(f"##{one}" for one in LETTERS), "the", "##ing"]
    made = Tokenizer(models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(**options)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.add_special_tokens(["[CLS]", "[SEP]", "[MASK]"])
    return made


TOKENIZERS = [
    bert(lowercase=True),
    bert(lowercase=False, strip_accents=False),
    bert(lowercase=True, strip_accents=False, clean_text=False, handle_chinese_chars=False),
]
ODD = " \t\u00a0\u2003\u2028\x00\x1c\x85\ufeff\u200b\u0301\u0345'’[]MASKéÉΣßİ日本.,-_🙂"
texts = st.lists(st.text(st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from(ODD)), max_size=30))


def plain(tokenizer: Any, lines: list[str]) -> list[list[int]]:
    return [tokenizer.encode(line, add_special_tokens=False).ids for line in lines]


@pytest.mark.slow
@settings(max_examples=300)
@given(texts, st.sampled_from(range(len(TOKENIZERS))))
def test_any_text_is_cut_as_by_the_tokenizer(lines, which):
    made = TOKENIZERS[which]
    found = Quick(made.to_str())
    assert found.by_stretch
    assert found.many(lines) == plain(made, lines)
    assert found.many(lines) == plain(made, lines)  # now all of it is remembered


def test_added_tokens_in_the_text():
    made = TOKENIZERS[0]
    lines = ["the [MASK] thing", "a[SEP]b", "[mask]", "[MASK ]", " [CLS]  x "]
    assert Quick(made.to_str()).many(lines) == plain(made, lines)


def test_memory_is_given_back(monkeypatch):
    monkeypatch.setattr(fast_wordpiece, "MOST", 10)
    made = Quick(TOKENIZERS[0].to_str())
    for i in range(20):
        made.many([f"a{i} b{i} c{i}"])
        assert len(made.pieces) <= 13


def test_other_tokenizers_go_the_plain_way():
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel()
    assert not Quick(bpe.to_str()).by_stretch
    named = toy_tokenizer()
    assert Quick(named.backend_tokenizer.to_str()).by_stretch
    named.add_tokens(["something"])
    assert not Quick(named.backend_tokenizer.to_str()).by_stretch
    assert Quick(named.backend_tokenizer.to_str()).many(["say something"])[0][-1] == len(named) - 1


@pytest.mark.real
def test_real_text_is_cut_as_by_the_tokenizer(real_data):
    import pyarrow.parquet as pq
    from transformers import BertTokenizerFast

    made = BertTokenizerFast(
        vocab=str(real_data / "vocab/bert_uncased_vocab.txt"), do_lower_case=True
    ).backend_tokenizer
    documents = pq.read_table(real_data / "text/pretrain_docs.parquet").column("text").to_pylist()[::100]
    lines = [line for text in documents for line in text.split("\n")]
    assert Quick(made.to_str()).many(lines) == [e.ids for e in made.encode_batch(lines, add_special_tokens=False)]
