"""What is stored beside the weights, so that nobody has to guess later: tasks, labels, heads, lengths."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import AutoConfig

from encodery.data.tokenizer import TokenizerPieces
from encodery.errors import UserError
from encodery.models.encoder import Encoder
from encodery.models.pretrained import from_folder
from encodery.tasks.base import Task

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def card_of(tasks_data: Mapping[str, Mapping[str, Any]], pieces: TokenizerPieces) -> dict[str, Any]:
    """The card of a model, of what `about` says of each of its tasks."""
    return {"format": 1, "tasks": dict(tasks_data), "tokenizer": pieces.digest}


def about(task: Task, objective: Mapping[str, Any], length: int) -> dict[str, Any]:
    """What a card says of a task (F23)."""
    fixed = dict(getattr(task, "thresholds", {}))
    return {
        "task": {**task.to_dict(), "name": task.name},
        "labels": list(task.labels),
        "objective": dict(objective),
        "head": objective.get("head"),
        "max_length": length,
        "texts": len(task.examples("train")[0].texts) if task.labelled else 1,
        "scale": getattr(task, "scale", 1.0),  # of a number that was learnt divided by it
        **({"shift": shift} if (shift := getattr(task, "shift", 0.0)) else {}),  # and that was taken off before
        **({"thresholds": {"labels": fixed}} if fixed else {}),  # those chosen on dev are added after training
    }


def foreign_card(folder: Path, encoder: Encoder, tokenizer: "PreTrainedTokenizerBase") -> dict[str, Any]:
    """A card for somebody else's fine-tuned model, from its config."""
    config = from_folder(AutoConfig, folder)  # not the encoder's own, around which one of our classes may stand
    architecture = (config.architectures or [""])[0]
    length = min(tokenizer.model_max_length, longest_of(encoder))
    if architecture.endswith("ForTokenClassification"):
        labels = [str(config.id2label[i]) for i in range(config.num_labels)]
        return foreign_about({"kind": "tagging", "labels": labels, "head": "stock"}, labels, length, tokenizer)
    if architecture.endswith("ForQuestionAnswering"):
        spans = {"kind": "span", "span_head": "simple", "impossible": True, "head": "stock"}
        return foreign_about(spans, [], length, tokenizer)
    if not architecture.endswith("ForSequenceClassification"):
        raise UserError(f"{folder}: {architecture or 'this'} is not a classifier; train it first")
    forms = {"multi_label_classification": "multilabel", "regression": "regression"}
    form = "regression" if config.num_labels == 1 else forms.get(config.problem_type or "", "single")
    labels = [] if form == "regression" else [str(config.id2label[i]) for i in range(config.num_labels)]
    pooling = getattr(config, "pooling", "auto") if config.model_type == "encodery-pooled" else "auto"
    objective = {"kind": "classification", "form": form, "labels": labels, "head": "stock", "pooling": pooling}
    return foreign_about(objective, labels, length, tokenizer)


def foreign_about(
    objective: dict[str, Any], labels: list[str], length: int, tokenizer: "PreTrainedTokenizerBase"
) -> dict[str, Any]:
    """A card with one head, whose task nobody knows."""
    about = {"task": None, "labels": labels, "objective": objective, "head": "stock", "max_length": length}
    return {"format": 1, "tasks": {"foreign": about}, "tokenizer": TokenizerPieces(tokenizer).digest}


def longest_of(encoder: Encoder) -> int:
    """How many tokens the encoder has positions for."""
    positions: int = encoder.net.config.max_position_embeddings
    return positions - encoder.form.first_position
