"""Fast tokenizers of the usual kinds, made here: WordPiece, byte-level BPE, SentencePiece-like Unigram and BPE."""

from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from encodery.data.pieces import TokenizerPieces
from encodery.data.toy_tokenizer import toy_tokenizer

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
