"""Vocabularies of one's own: legal, loadable, and the same in every process."""

import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError
from transformers import AutoTokenizer

import encodery
from encodery.data.corpus.vocabulary import Vocabulary, train
from encodery.data.tokenizer import TokenizerPieces
from encodery.errors import UserError
from encodery.tasks.corpus import Corpus

KINDS = ("wordpiece", "bpe", "unigram")
TEXT = "Ärger, naïve café! $5; 10%? The cats sat; the dogs ran.\nÉcole über Straße.\n\n" * 3


@pytest.fixture
def corpus(tmp_path) -> Corpus:
    (tmp_path / "a.txt").write_text(TEXT + "\n\n".join(f"word{i} and more words" for i in range(30)))
    return Corpus(files=str(tmp_path / "a.txt"))


@pytest.mark.parametrize("kind", KINDS)
def test_it_loads_with_transformers_and_knows_its_special_tokens(tmp_path, corpus, kind):
    made = train(Vocabulary(kind=kind, vocab_size=300, more_tokens=["[URL]"]), corpus)
    made.save_pretrained(tmp_path / "out")
    again = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert len(again) <= 301 - (kind != "bpe")
    assert again.convert_ids_to_tokens(range(6)) == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[URL]"]
    assert (again.pad_token_id, again.mask_token_id, again.cls_token_id) == (0, 4, 2)
    ids = again("the cats", "[URL] ran")
    assert (ids["input_ids"][0], ids["input_ids"][-1]) == (2, 3)
    assert 5 in ids["input_ids"]
    assert set(ids["token_type_ids"]) == {0, 1}
    pieces = TokenizerPieces(again)
    assert (pieces.single.extra, pieces.pair.extra) == (2, 3)
    assert again.decode(pieces.many(["the cats sat"])[0]).strip() == "the cats sat"


@pytest.mark.parametrize("kind", KINDS)
def test_case_and_accents(corpus, kind):
    def same(a: str, b: str, **options: bool) -> bool:
        made = train(Vocabulary(kind=kind, vocab_size=300, **options), corpus)
        return made.tokenize(a) == made.tokenize(b)

    assert same("Café", "cafe")
    assert not same("Café", "cafe", strip_accents=False)
    assert same("CAFÉ", "café", strip_accents=False)
    assert not same("Cats", "cats", lowercase=False)


CHILD = """
import sys
from encodery.data.corpus.vocabulary import Vocabulary, train
from encodery.tasks.corpus import Corpus
for kind in ("wordpiece", "bpe", "unigram"):
    made = train(Vocabulary(kind=kind, vocab_size=250, alphabet=30), Corpus(files=sys.argv[1]))
    print(made.backend_tokenizer.to_str())
"""


@pytest.mark.slow
def test_two_processes_make_the_same_vocabularies(tmp_path, corpus):
    """Each process has its own random order of hash tables."""
    command = [sys.executable, "-c", CHILD, str(tmp_path / "a.txt")]
    root = str(Path(encodery.__file__).parents[1])
    made = {subprocess.run(command, capture_output=True, check=True, cwd=root).stdout for _ in range(3)}
    assert len(made) == 1


def test_the_held_out_part_is_not_looked_at(tmp_path):
    path = tmp_path / "b.txt"
    path.write_text("\n\n".join(f"zq{chr(97 + i % 26)}x{i} appears" for i in range(60)))
    corpus = Corpus(files=str(path), held_out=0.5)
    texts = {split: " ".join(e.texts[0] for e in corpus.examples(split)) for split in ("train", "dev")}
    made = train(Vocabulary(vocab_size=500, min_frequency=1), corpus)
    words = set(made.get_vocab())
    assert set(texts["train"].split()) <= words
    assert not (set(texts["dev"].split()) - {"appears"}) & words


def test_bad_options_and_empty_text(tmp_path):
    for options in (
        {"special_tokens": ["a"]},
        {"more_tokens": ["[PAD]"]},
        {"vocab_size": 16, "more_tokens": list("abcdefghijkl")},
    ):
        with pytest.raises(ValidationError):
            Vocabulary.model_validate(options)
    (tmp_path / "a.txt").write_text("\n")
    with pytest.raises(UserError, match="no text"):
        train(Vocabulary(), Corpus(files=str(tmp_path / "a.txt")))
