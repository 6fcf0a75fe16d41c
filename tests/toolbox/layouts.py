"""What tests need of a batch's layout."""

from torch import Tensor

from encodery.data.layouts import Packed, Rows


def spread(layout: Packed | Rows, per_sequence: Tensor) -> Tensor:
    """One value per sequence, given to each of its tokens: [1, T, …] or [n, L, …], with zero on padding."""
    if isinstance(layout, Packed):
        return per_sequence.index_select(0, layout.sequence_of_token)[None]
    mask = layout.mask.view(*layout.mask.shape, *[1] * (per_sequence.dim() - 1))
    return per_sequence[:, None] * mask
