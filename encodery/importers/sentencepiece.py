"""Reads a sentencepiece model (`sp.model`, a protobuf file) without that library: pieces, scores and the normaliser."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from encodery.errors import UserError

PIECES, TRAINER, NORMALIZER = 1, 2, 3  # fields of the model
PIECE, SCORE, TYPE = 1, 2, 3  # of a piece
MODEL_TYPE = 3  # of the trainer
CHARSMAP, DUMMY_PREFIX, EXTRA_SPACES, ESCAPE = 2, 3, 4, 5  # of the normaliser
NORMAL, USER_DEFINED = 1, 4  # types of pieces that text is cut into
KINDS: dict[int, Literal["unigram", "bpe"]] = {1: "unigram", 2: "bpe"}


@dataclass(frozen=True)
class Pieces:
    """What text is cut into."""

    kind: Literal["unigram", "bpe"]
    scores: dict[str, float]
    charsmap: bytes  # the normaliser, as sentencepiece compiles it; may be empty


def read(path: Path) -> Pieces:
    """The pieces of a model file."""
    try:
        found = _fields(path.read_bytes())
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    except (IndexError, struct.error, ValueError):
        raise UserError(f"{path}: is no sentencepiece model") from None
    scores = dict(_piece(raw) for number, raw in found if number == PIECES and _is_text(raw))
    trainer, normalizer = (_sub(found, number) for number in (TRAINER, NORMALIZER))
    kind = KINDS.get(trainer.get(MODEL_TYPE, 1))
    if not scores or kind is None:
        raise UserError(f"{path}: is no sentencepiece model of pieces (unigram or BPE)")
    if not all(normalizer.get(flag, 1) for flag in (DUMMY_PREFIX, EXTRA_SPACES, ESCAPE)):
        raise UserError(f"{path}: keeps spaces in another way than AMOS's model does")
    return Pieces(kind, scores, normalizer.get(CHARSMAP, b""))


def _piece(raw: bytes) -> tuple[str, float]:
    fields = dict(_fields(raw))
    return fields[PIECE].decode(), struct.unpack("<f", fields.get(SCORE, b"\0\0\0\0"))[0]


def _is_text(raw: bytes) -> bool:
    return dict(_fields(raw)).get(TYPE, NORMAL) in (NORMAL, USER_DEFINED)


def _sub(found: list[tuple[int, Any]], number: int) -> dict[int, Any]:
    return dict(_fields(next((raw for n, raw in found if n == number), b"")))


def _fields(data: bytes) -> list[tuple[int, Any]]:
    return list(_walk(data))


def _walk(data: bytes) -> Iterator[tuple[int, Any]]:
    """Number and value of each field: whole numbers as such, everything else as bytes."""
    place = 0
    while place < len(data):
        tag, place = _varint(data, place)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, place = _varint(data, place)
            yield number, value
            continue
        if wire == 2:
            size, place = _varint(data, place)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(f"wire type {wire}")
        if number == 0 or place + size > len(data):
            raise ValueError("field")
        yield number, data[place : place + size]
        place += size


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        value |= (byte & 0x7F) << shift
        place += 1
        if not byte & 0x80:
            return value, place
        shift += 7
