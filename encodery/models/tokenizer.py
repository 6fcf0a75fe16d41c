"""The tokenizer of a run: the model's own, a folder, a WordPiece vocabulary, or the one of the toy tasks."""

from typing import Any

from transformers import AutoTokenizer, BertTokenizerFast

from encodery.errors import UserError
from encodery.models import hub
from encodery.models.pretrained import from_folder
from encodery.schema import ModelOptions


def load_tokenizer(options: ModelOptions, own: hub.Folder | None, model: hub.Folder | None, toy: bool) -> Any:
    """The tokenizer that the config asks for; new models on toy tasks take the toy one by themselves.

    `own` is where `model.tokenizer` lies, if that is given and is not `toy`.
    """
    if options.tokenizer == "toy" or (options.tokenizer is None and toy and model is None):
        from encodery.data.toy_tokenizer import toy_tokenizer

        return toy_tokenizer()
    folder = own or model
    if folder is None:
        raise UserError("model.tokenizer: a new model needs one: a tokenizer folder, a hub name or a vocab.txt")
    try:
        if folder.path.is_file():
            return BertTokenizerFast(vocab=str(folder.path), do_lower_case=True)
        return from_folder(AutoTokenizer, folder.path)
    except (OSError, ValueError) as error:
        raise UserError(f"tokenizer {folder.name}: cannot be read ({str(error).splitlines()[0]})") from None
