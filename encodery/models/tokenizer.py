"""The tokenizer of a run: the model's own, a folder, a WordPiece vocabulary, or the one of the toy tasks."""

from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, BertTokenizerFast

from encodery.errors import UserError
from encodery.models import hub
from encodery.schema import ModelOptions


def load_tokenizer(options: ModelOptions, model: hub.Folder | None, near: Path, toy: bool) -> Any:
    """The tokenizer that the config asks for; new models on toy tasks take the toy one by themselves."""
    wanted = options.tokenizer or ("toy" if toy and model is None else None)
    if wanted == "toy":
        from encodery.data.toy_tokenizer import toy_tokenizer

        return toy_tokenizer()
    if wanted is None and model is None:
        raise UserError("model.tokenizer: a new model needs one: a tokenizer folder, a hub name or a vocab.txt")
    file = next((p for p in (near / wanted, Path(wanted)) if p.is_file()), None) if wanted else None
    if file:
        return BertTokenizerFast(vocab=str(file), do_lower_case=True)
    folder = hub.resolve(wanted, None, near) if wanted else model
    assert folder is not None
    try:
        return AutoTokenizer.from_pretrained(folder.path)
    except (OSError, ValueError) as error:
        raise UserError(f"tokenizer {folder.name}: cannot be read ({str(error).splitlines()[0]})") from None
