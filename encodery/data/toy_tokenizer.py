"""A small tokenizer over the words of the toy grammar: made here, nothing is downloaded."""

import string
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from encodery.tasks.toy import vocabulary

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def toy_vocabulary() -> list[str]:
    """Special tokens, the grammar's words, then letters, digits and marks, alone and as continuations."""
    alone = [*string.ascii_lowercase, *string.digits, *string.punctuation]
    inside = [f"##{piece}" for piece in string.ascii_lowercase + string.digits]
    return list(dict.fromkeys([*SPECIAL, *vocabulary(), *alone, *inside]))


def toy_tokenizer() -> Any:
    """A PreTrainedTokenizerFast that works like BERT's: a toy word is one token, any other word is spelled."""
    ids = {piece: i for i, piece in enumerate(toy_vocabulary())}
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True, strip_accents=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", ids["[CLS]"]), ("[SEP]", ids["[SEP]"])],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=512,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]",
    )  # fmt: skip
