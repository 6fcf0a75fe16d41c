"""Gates on attention heads: what the importance of a head is the derivative of."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

from encodery.data.batches import Batch
from encodery.models.attention_heads import cut, heads_of, hooked, places_of, rows_of
from encodery.models.encoder import Encoder
from encodery.models.kernels.first_token import first_only
from tests.toolbox.layouts import spread


@contextmanager
def gated(encoder: Encoder, batch: Batch, gates: Tensor) -> Iterator[None]:
    """Inside, every head's output is multiplied by its gate: [sequences, layers, heads]. Ones change no bit."""
    places = places_of(encoder)
    shape = (len(batch), rows_of(encoder), heads_of(encoder))
    whole, short = batch.inputs["input_ids"].shape, first_only(batch)  # a classifier's last layer may be cut
    if tuple(gates.shape) != shape:  # else it might be broadcast in silence
        raise ValueError(f"gates {tuple(gates.shape)} for {shape}")

    def seen(layer: int, context: Tensor) -> Tensor:
        seen_as = batch if context.shape[:2] == whole else short
        each = spread(seen_as.layout, gates[:, layer])  # [1, T, heads] or [n, L, heads]
        return (cut(context, shape[2], -1) * each.unsqueeze(-1)).flatten(-2)

    with hooked(encoder, places.output, seen):
        yield
