"""A cheap check at load: does this very encoder give the same packed as padded?"""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from encodery.data.batches import Batch, MicroBatcher
from encodery.data.token_table import TokenTable
from encodery.errors import RunFailed
from encodery.models import packed
from encodery.models.encoder import Encoder

TOLERANCE = 1e-4


def probe_table(encoder: Encoder, lengths: tuple[int, ...] = (3, 11, 6)) -> TokenTable:
    """Sequences of different lengths, one of them longer than any attention window."""
    config, form = encoder.net.config, encoder.form
    window = getattr(config, "sliding_window", None) or getattr(config, "local_attention", 0)
    room = config.max_position_embeddings - form.first_position
    rng = np.random.default_rng(0)
    sizes = [min(n, room) for n in (*lengths, max(2 * (window or 0), 16))]
    low = form.pad_id + 1 if form.pad_id + 1 < config.vocab_size else 0
    ids = [rng.integers(low, config.vocab_size, n).astype(np.int32) for n in sizes]
    types = [(np.arange(n) > n // 2).astype(np.uint8) for n in sizes]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    return TokenTable.in_memory(ids=np.concatenate(ids), types=np.concatenate(types), starts=starts, targets={})


def largest_difference(encoder: Encoder) -> float:
    """Largest difference of any hidden value between the packed and the padded layout, beside the largest value."""
    table = probe_table(encoder)
    rows = np.arange(len(table))
    device = next(encoder.parameters()).device
    hidden = []
    was_training = encoder.training
    encoder.eval()
    try:
        for layout in ("packed", "rows"):
            encoder.net.set_attn_implementation(packed.NAME if layout == "packed" else "sdpa")
            batcher = MicroBatcher(layout, encoder.form, 1 << 30, device=device)
            batch: Batch = batcher.batch(table, rows, "probe", 0)
            with torch.no_grad():
                hidden.append(batch.tokens(encoder(batch)))
    finally:
        encoder.net.set_attn_implementation(packed.NAME)
        encoder.train(was_training)
    largest = max(1.0, float(hidden[1].abs().max()))  # rounding grows with the numbers
    return float((hidden[0] - hidden[1]).abs().max()) / largest


def require_equal(encoder: Encoder) -> None:
    """Refuse to train packed where it is not the same mathematics."""
    difference = largest_difference(encoder)
    if not difference < TOLERANCE:
        raise RunFailed(
            f"packed layout: this {encoder.kind} differs from the padded layout by {difference:.1e}; use layout rows"
        )


# Two made-up sequences for questions to an encoder, and the state in which it answers them.


LENGTHS = (9, 6)


def probe(encoder: Encoder) -> tuple[Tensor, Tensor]:
    """Two short sequences of different lengths, and which of their cells are real."""
    device = next(encoder.parameters()).device
    size, pad = encoder.net.config.vocab_size, encoder.form.pad_id
    ids = torch.arange(3, 3 + LENGTHS[0] * 2).reshape(2, -1) % size
    ids = torch.where(ids == pad, (pad + 1) % size, ids)
    mask = torch.arange(LENGTHS[0])[None] < torch.tensor(LENGTHS)[:, None]
    return torch.where(mask, ids, pad).to(device), mask.to(device)


@contextmanager
def unpacked(encoder: Encoder) -> Iterator[None]:
    """Inside, an encoder of the packed layout reads rows."""
    if encoder.layout != "packed":
        yield
        return
    encoder.net.set_attn_implementation("sdpa" if encoder.net._supports_sdpa else "eager")
    try:
        yield
    finally:
        encoder.net.set_attn_implementation(packed.NAME)


@contextmanager
def resting(*modules: nn.Module) -> Iterator[None]:
    """Inside, nothing is dropped."""
    parts = [part for module in modules for part in module.modules() if part.training]
    for part in parts:
        part.training = False
    try:
        yield
    finally:
        for part in parts:
            part.training = True
