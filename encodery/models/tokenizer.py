"""The tokenizer of a run: the model's own, a folder, a WordPiece vocabulary, or the one of the toy tasks."""

import string
from typing import Any

from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import WordPiece
from transformers import AutoTokenizer, BertTokenizerFast, PreTrainedTokenizerFast

from encodery.config.schema import ModelOptions
from encodery.core.text import first_line
from encodery.errors import UserError
from encodery.models import locate
from encodery.models.pretrained import from_folder
from encodery.tasks.toy_grammar.words import vocabulary

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def load_tokenizer(options: ModelOptions, own: locate.Folder | None, model: locate.Folder | None, toy: bool) -> Any:
    """The tokenizer that the config asks for; new models on toy tasks take the toy one by themselves.

    `own` is where `model.tokenizer` lies, if that is given and is not `toy`.
    """
    if options.tokenizer == "toy" or (options.tokenizer is None and toy and model is None):
        return toy_tokenizer()
    folder = own or model
    if folder is None:
        raise UserError("model.tokenizer: a new model needs one: a tokenizer folder, a hub name or a vocab.txt")
    try:
        if folder.path.is_file():
            return BertTokenizerFast(vocab=str(folder.path), do_lower_case=True)
        return from_folder(AutoTokenizer, folder.path)
    except (OSError, ValueError) as error:
        raise UserError(f"tokenizer {folder.name}: cannot be read ({first_line(error)})") from None


# The tokenizer of the toy tasks: over the words of their grammar, made here, nothing is downloaded.


def toy_vocabulary() -> list[str]:
    """Special tokens, the grammar's words, then letters, digits and marks, alone and as continuations."""
    alone = [*string.ascii_lowercase, *string.digits, *string.punctuation]
    inside = [f"##{piece}" for piece in string.ascii_lowercase + string.digits]
    return list(dict.fromkeys([*SPECIAL, *vocabulary(), *alone, *inside]))


def toy_tokenizer() -> Any:
    """A PreTrainedTokenizerFast that works like BERT's: a toy word is one token, any other word is spelled."""
    ids = {piece: i for i, piece in enumerate(toy_vocabulary())}
    tokenizer = Tokenizer(WordPiece(ids, unk_token="[UNK]"))
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
