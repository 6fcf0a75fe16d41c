"""Protocol buffers without that library: TensorFlow's index of a checkpoint and sentencepiece's models are such."""

from collections.abc import Iterator
from typing import Any

SIZES = {1: 8, 5: 4}  # bytes of the kinds that have always as many


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Number and value of each field: whole numbers as such, everything else as bytes."""
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        number, kind = tag >> 3, tag & 7
        if kind == 0:
            value, at = varint(data, at)
            yield number, value
            continue
        if kind != 2 and kind not in SIZES:
            raise ValueError(f"unknown kind of field {kind}")
        size, at = varint(data, at) if kind == 2 else (SIZES[kind], at)
        if number == 0 or at + size > len(data):
            raise ValueError(f"field {number} has no number, or ends behind the data")
        yield number, data[at : at + size]
        at += size


def varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of seven bits a byte, and where it ends."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
