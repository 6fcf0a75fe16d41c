"""Which tokens the heads of an encoder read where nobody says so: what the folder of the encoder says."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from encodery.config.schema import AnyPooling, Pooling
from encodery.errors import UserError
from encodery.models.model import read_card

SENTENCE_TRANSFORMERS = Path("1_Pooling", "config.json")
KNOWN: dict[str, Pooling] = {"cls": "first", "cls_token": "first", "mean": "mean", "mean_tokens": "mean"}
KNOWN |= {"max": "max", "max_tokens": "max"}


def by_folder(folder: Path) -> tuple[Pooling | None, list[str]]:
    """What 1_Pooling/config.json says, or the heads of the run that the encoder comes from; and a line that says so."""
    if (file := folder / SENTENCE_TRANSFORMERS).is_file():
        modes = sorted(modes_of(file))
        if len(modes) == 1 and modes[0] in KNOWN:
            return KNOWN[modes[0]], [f"pooling: {KNOWN[modes[0]]}, as {SENTENCE_TRANSFORMERS} of the model says"]
        asked = " and ".join(modes) or "nothing"
        return None, [f"{file} asks for {asked}, which is not supported here: set model.pooling to first, mean or max"]
    found = {how for how in of_heads(read_card(folder) or {}).values() if how}
    if len(found) != 1:
        return None, []
    how = found.pop()
    return how, [f"pooling: {how}, as in the run that the encoder comes from"] if how != "first" else []


def modes_of(file: Path) -> set[str]:
    """The ways of pooling that a config of sentence-transformers names, in its old or its new form."""
    try:
        settings = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{file}: is not JSON ({error}); correct it or set model.pooling") from None
    mode = settings.get("pooling_mode")
    if mode is not None:
        return {mode} if isinstance(mode, str) else set(mode)
    prefix = "pooling_mode_"
    return {key.removeprefix(prefix) for key, value in settings.items() if key.startswith(prefix) and value is True}


def of_heads(card: Mapping[str, Any]) -> dict[str, Any]:
    """What the heads of a saved model read, by task; heads that read every token are not among them."""
    objectives = {task: about["objective"] for task, about in card.get("tasks", {}).items()}
    return {task: plain["pooling"] for task, plain in objectives.items() if plain.get("pooling") not in (None, "auto")}


def lines(card: Mapping[str, Any], asked: AnyPooling, followed: list[str]) -> list[str]:
    """What a reader must know of the pooling of a run, from its card."""
    if of_heads(card):
        return followed
    if asked == "auto":
        return []
    return [f"model.pooling: {asked} changes nothing: no head of this run reads one vector for a text"]
