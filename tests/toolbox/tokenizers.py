"""Tokenizers for tests, all made here: of whole words, of characters, and of the usual kinds of pieces."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from encodery.data.tokenizer import TokenizerPieces
from encodery.models.tokenizer import toy_tokenizer
from tests.toolbox.vocabulary import VOCAB


def word_tokenizer() -> PreTrainedTokenizerFast:
    """BERT's template over whole words."""
    inner = Tokenizer(models.WordPiece({word: i for i, word in enumerate(VOCAB)}, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]", model_max_length=64,
    )  # fmt: skip


def save_tokenizer(folder: Path) -> Path:
    """A tokenizer folder."""
    word_tokenizer().save_pretrained(folder)
    return folder


class Characters:
    """[CLS] = 1, [SEP] = 2; characters from 3."""

    def many(self, texts: Sequence[str]) -> list[list[int]]:
        return [[3 + ord(c) % 97 for c in text] for text in texts]

    def spelled(self, texts: Sequence[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        ids = [[3 + ord(c) % 97 for c in text if not c.isspace()] for text in texts]
        places = [[(i, i + 1) for i, c in enumerate(text) if not c.isspace()] for text in texts]
        return list(zip(ids, places, strict=True))

    def special(self, pair: bool) -> tuple[int, int, int]:
        return (1, 1, 1) if pair else (1, 0, 1)

    def join(self, a: Sequence[int], b: Sequence[int] | None, max_length: int) -> tuple[list[int], list[int]]:
        first, second = list(a), list(b or ())
        while len(first) + len(second) + (2 if b is None else 3) > max_length:
            (first if len(first) > len(second) else second).pop()
        ids, types = [1, *first, 2], [0] * (len(first) + 2)
        return (ids, types) if b is None else ([*ids, *second, 2], [*types, *[1] * (len(second) + 1)])


# Of the usual kinds: WordPiece, byte-level BPE, SentencePiece-like Unigram.

TEXT = ["The old teacher helps the nurse in 1980s Zürich .", "naïve café – 100km, e.g. “quoted” ½ 東京 emoji 🙂!"] * 4
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]


def _wrapped(inner: Tokenizer, pair: str, trim: bool = False) -> Any:
    ids = [(name, inner.token_to_id(name)) for name in ("<s>", "</s>")]
    template = processors.TemplateProcessing(single="<s> $A </s>", pair=pair, special_tokens=ids)
    inner.post_processor = (
        processors.Sequence([processors.ByteLevel(trim_offsets=False), template]) if trim else template
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token="<s>", eos_token="</s>", pad_token="<pad>", unk_token="<unk>",
        cls_token="<s>", sep_token="</s>",
    )  # fmt: skip


def byte_level() -> Any:
    """As RoBERTa's, with offsets that count the blank before a word."""
    inner = Tokenizer(models.BPE(unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    inner.train_from_iterator(
        TEXT, trainers.BpeTrainer(vocab_size=320, special_tokens=SPECIAL, initial_alphabet=alphabet)
    )
    return _wrapped(inner, "<s> $A </s> </s> $B </s>", trim=True)


def unigram() -> Any:
    """As XLM-R's: a mark for blanks, NFKC, and nmt's rule that a line break is a blank; unknown words would join."""
    inner = Tokenizer(models.Unigram())
    inner.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC()])
    inner.pre_tokenizer = pre_tokenizers.Metaspace()
    inner.train_from_iterator(
        TEXT, trainers.UnigramTrainer(vocab_size=120, special_tokens=SPECIAL, unk_token="<unk>", show_progress=False)
    )
    return _wrapped(inner, "<s> $A </s> </s> $B </s>")


def all_pieces() -> dict[str, TokenizerPieces]:
    """Each kind as tasks see it."""
    made = {"wordpiece": toy_tokenizer(), "byte-level": byte_level(), "unigram": unigram()}
    return {name: TokenizerPieces(tokenizer) for name, tokenizer in made.items()}
