"""`train.compile`: the repeated layers of an encoder are compiled, one by one and for any length.

All layers of a network share one compiled graph, so that a deep encoder costs no more than a shallow one. Embeddings
and heads stay as they are: perturbations of embeddings are seen. Attention of the packed layout is not traced, its
kernels have nothing to fuse and its groups change from batch to batch.
"""

from typing import Any

import torch
from torch import nn

from encodery.errors import UserError
from encodery.models.encoder import Encoder
from encodery.models.first_block import BLOCKS


def compile_layers(model: nn.Module) -> None:
    """Compile every layer of the encoders in a model, of a network that two of them share once."""
    encoders = [part for part in model.modules() if isinstance(part, Encoder)]
    for net in {id(encoder.net): encoder.net for encoder in encoders}.values():
        for layer in layers_of(net):
            layer.compile(dynamic=True)
    for encoder in encoders:
        encoder.compiled = True


def layers_of(net: nn.Module) -> list[nn.Module]:
    """The repeated layers of a network."""
    lists = [part for name, part in net.named_modules() if isinstance(part, nn.ModuleList) and BLOCKS.search(name)]
    found = {id(layer): layer for part in lists for layer in part}
    if not found:
        raise UserError(f"train.compile: cannot find the layers of {type(net).__name__}; set it to false")
    return list(found.values())


def graphs() -> int:
    """How many graphs were compiled in this process so far."""
    counters: Any = torch._dynamo.utils.counters
    return int(counters["stats"]["unique_graphs"])
