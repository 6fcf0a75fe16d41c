"""A cheap check at load: does this very encoder give the same packed as padded?"""

import numpy as np
import torch

from encodery.data.batches import Batch, Cutter
from encodery.data.tokens import TokenTable
from encodery.errors import RunFailed
from encodery.models import packed
from encodery.models.encoder import Encoder

TOLERANCE = 1e-4


class _Probe(TokenTable):
    """A few made-up sequences as a token table that lies in memory."""

    def __init__(self, ids: list[np.ndarray], types: list[np.ndarray]):
        object.__setattr__(self, "folder", None)
        lengths = [len(x) for x in ids]
        self.__dict__.update(
            ids=np.concatenate(ids),
            types=np.concatenate(types),
            starts=np.concatenate([[0], np.cumsum(lengths)]),
            targets={},
        )


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
    return _Probe(ids, types)


def largest_difference(encoder: Encoder) -> float:
    """Largest difference of any hidden value between the packed and the padded layout, beside the largest value."""
    table = probe_table(encoder)
    rows = np.arange(len(table))
    device = next(encoder.parameters()).device
    found = []
    was_training = encoder.training
    encoder.eval()
    try:
        for layout in ("packed", "rows"):
            encoder.net.set_attn_implementation(packed.NAME if layout == "packed" else "sdpa")
            cutter = Cutter(layout, encoder.form, 1 << 30, device=device)
            batch: Batch = cutter.batch(table, rows, "probe", 0)
            with torch.no_grad():
                found.append(batch.tokens(encoder(batch)))
    finally:
        encoder.net.set_attn_implementation(packed.NAME)
        encoder.train(was_training)
    largest = max(1.0, float(found[1].abs().max()))  # rounding grows with the numbers
    return float((found[0] - found[1]).abs().max()) / largest


def require_equal(encoder: Encoder) -> None:
    """Refuse to train packed where it is not the same mathematics."""
    difference = largest_difference(encoder)
    if not difference < TOLERANCE:
        raise RunFailed(
            f"packed layout: this {encoder.kind} differs from its padded self by {difference:.1e}; use layout rows"
        )
