"""Low-rank adapters through peft, an optional extra. Adapters are merged into the weights before a model is saved."""

import torch

from encodery.config.schema import Lora
from encodery.core.extras import install
from encodery.errors import UserError
from encodery.models.encoder import Encoder


def adapt(encoder: Encoder, options: Lora, seed: int) -> None:
    """Freeze the encoder and put trainable adapters into it; a pooler stays trainable, as part of the head."""
    try:
        from peft import LoraConfig
        from peft.tuners.lora import LoraModel
    except ImportError:
        raise UserError(f"model.tune: lora needs peft: {install('lora')}") from None
    torch.manual_seed(seed >> 1)
    config = LoraConfig(
        r=options.rank,
        lora_alpha=options.alpha,
        lora_dropout=options.dropout,
        target_modules=options.target,
        exclude_modules=r".*pooler.*",
    )
    pooler = getattr(encoder.net, "pooler", None)
    encoder.adapters = [LoraModel(encoder.net, config, "default")]
    if pooler is not None:
        pooler.requires_grad_(True)


def merge(encoder: Encoder) -> None:
    """Fold the adapters into the weights; nothing happens where there are none."""
    while encoder.adapters:
        encoder.adapters.pop().merge_and_unload()
