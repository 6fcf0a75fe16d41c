"""The end of an encoder when nothing but first tokens is read there, as classifiers do.

What follows the last layer's attention (its output projection and its feed-forward part, three quarters of the layer)
is then computed for first tokens alone. The mathematics is the same: what is left out is read by nobody.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from encodery.data.batches import Batch
from encodery.data.layouts import Layout, Packed, Rows
from encodery.models.encoder import Encoder

# In these architectures attention.output takes the heads' output and what it is added to.
OUTPUT = ".attention.output"
KNOWN = frozenset({"bert", "roberta", "xlm-roberta", "camembert", "electra", "amos"})


_last_layers: WeakKeyDictionary[nn.Module, str] = WeakKeyDictionary()  # network -> the name of its last layer


def can_end_with_first(encoder: Encoder) -> bool:
    """Whether the place is known, and nobody has compiled it."""
    return encoder.kind in KNOWN and not encoder.compiled


def first_only(batch: Batch) -> Batch:
    """The batch as it is where every sequence has one token left."""
    one = torch.ones(len(batch), 1, dtype=torch.bool, device=batch.layout.lengths.device)
    known = np.ones(len(batch), np.int64)
    short: Layout = Rows(one, known) if isinstance(batch.layout, Rows) else Packed(one[:, 0].long(), known)
    return replace(batch, layout=short)


@contextmanager
def ending_with_first(encoder: Encoder, batch: Batch) -> Iterator[Batch]:
    """Inside, hidden states of the batch are those of `first_only(batch)`, which is given.

    With gradient checkpointing the last layer is not computed again: the backward pass would begin with that and need
    all its memory at once, and what is drawn for dropout stays the same with and without.
    """
    short, layer = first_only(batch), last_layer(encoder)
    again = layer.gradient_checkpointing
    cells = (len(batch), 1) if isinstance(batch.layout, Rows) else (1, len(batch))

    def before(_module: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Attention may have been cut down already (joined_attention.py)."""
        return tuple(v if v.shape[:2] == cells else short.layout.from_tokens(batch.first(v)) for v in given)

    handle = last_output(encoder).register_forward_pre_hook(before)
    layer.gradient_checkpointing = False
    try:
        yield short
    finally:
        layer.gradient_checkpointing = again
        handle.remove()


def last_layer(encoder: Encoder) -> Any:
    net = encoder.net
    if net not in _last_layers:  # a walk over all modules at every step would be a twentieth of the host's time
        outputs = [name for name, _ in net.named_modules() if name.endswith(OUTPUT)]
        _last_layers[net] = outputs[-1].removesuffix(OUTPUT)
    return net.get_submodule(_last_layers[net])


def last_output(encoder: Encoder) -> nn.Module:
    """Where the last layer leaves its attention."""
    return last_layer(encoder).attention.output  # type: ignore[no-any-return]
