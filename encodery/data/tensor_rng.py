"""The draws of rng.py as tensor operations, for a device that is not to wait for the host.

Bits and uniform numbers are those of numpy, to the bit: 64 bits are held as int64, whose products wrap around as those
of uint64 do, and whose shifts are made logical. Normal numbers differ by a device's rounding of logarithm and cosine.
"""

import math

import numpy as np
import torch
from torch import Tensor

from encodery.data import rng

SHIFTS = ((30, (1 << 34) - 1), (27, (1 << 37) - 1), (31, (1 << 33) - 1))  # and what is left of 64 bits


def signed(value: int | np.uint64) -> int:
    """The same 64 bits as a whole number of torch, which has no unsigned ones."""
    return int(np.uint64(value).astype(np.int64))


STRIDE = int(rng.STRIDE.astype(np.int64))
FACTORS = (int(rng.FACTORS[0].astype(np.int64)), int(rng.FACTORS[1].astype(np.int64)))


def mixed(values: Tensor) -> Tensor:
    """`rng.mix`; the values are overwritten."""
    for (shift, rest), factor in zip(SHIFTS, [*FACTORS, 1], strict=True):
        values ^= (values >> shift).bitwise_and_(rest)
        values *= factor
    return values


def hashed(starts: Tensor, size: int) -> Tensor:
    """Numbers that follow each of these 64 bits: [n, size]."""
    return mixed(starts[:, None] + STRIDE * torch.arange(1, size + 1, device=starts.device))


def rows_of(key: int, ids: Tensor) -> Tensor:
    """Where the numbers of each id begin."""
    return mixed(mixed(ids.clone()) + signed(key))


def bits(key: int, ids: Tensor, size: int) -> Tensor:
    """`rng.bits`: [len(ids), size] of int64."""
    return hashed(rows_of(key, ids), size)


def as_uniform(drawn: Tensor) -> Tensor:
    """Numbers in [0, 1) of 64 bits each; the bits are overwritten."""
    return (drawn >> 11).bitwise_and_((1 << 53) - 1).double().mul_(2.0**-53)


def uniform(key: int, ids: Tensor, size: int) -> Tensor:
    """`rng.uniform`: [len(ids), size] of float64."""
    return as_uniform(bits(key, ids, size))


def per_token(key: int, ids: Tensor, lengths: Tensor, sequence: Tensor, width: int) -> Tensor:
    """`rng.per_token`: [tokens, width] of float64; `sequence` [tokens] is the number of each token's sequence."""
    place = torch.arange(len(sequence), device=ids.device) - (lengths.cumsum(0) - lengths)[sequence]
    return as_uniform(hashed(rows_of(key, ids)[sequence] + STRIDE * (place * width), width))


def normal(first: Tensor, second: Tensor) -> Tensor:
    """Normal numbers of two uniform ones each, by Box and Muller."""
    return (-2.0 * torch.log1p(-first)).sqrt() * torch.cos(2.0 * math.pi * second)
