"""A model made ready to train: device, precision, gradient checkpointing, compilation."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from encodery import heap
from encodery.errors import UserError
from encodery.models.encoder import Encoder
from encodery.models.model import Model
from encodery.schema import TrainOptions

LOWERED = {"bf16": torch.bfloat16, "fp16": torch.float16}


def make_ready(model: Model, options: TrainOptions, device: torch.device, precision: str) -> None:
    """Put the model where it trains, in the way the options ask for."""
    if device.type == "cpu":
        heap.keep()
    model.to(device)
    model.autocast_to = LOWERED.get(precision)
    for net in networks(model):
        if options.gradient_checkpointing and not net.supports_gradient_checkpointing:
            raise UserError(
                f"train.gradient_checkpointing: {net.config.model_type} has none; lower train.token_budget instead"
            )
        if options.gradient_checkpointing:
            net.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        if options.compile:
            net.compile(dynamic=True)


def networks(model: nn.Module) -> Iterable[Any]:
    """The transformers networks of all encoders in a model: the main one, and the generator of an objective, once."""
    return {id(part.net): part.net for part in model.modules() if isinstance(part, Encoder)}.values()
