"""Reads TensorFlow's checkpoints (`model.ckpt.index`, `model.ckpt.data-00000-of-00001`) without TensorFlow.

The index is a table of sorted blocks as LevelDB writes them: name -> where the tensor lies. The data files are raw.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from encodery.errors import UserError
from encodery.importers import protobuf
from encodery.importers.protobuf import varint

MAGIC = 0xDB4775248B80FB57
FOOTER = 48
TRAILER = 5  # after each block: its compression and a checksum
DTYPES = {1: "<f4", 2: "<f8", 3: "<i4", 9: "<i8", 19: "<f2"}


@dataclass(frozen=True)
class Entry:
    """Where a tensor lies."""

    dtype: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int


def find_prefix(path: Path) -> Path:
    """The checkpoint that a person means: `model.ckpt`, one of its files, or the folder that holds the only one."""
    if path.is_dir():
        indexes = sorted(path.glob("*.index"))
        if len(indexes) != 1:
            names = ", ".join(one.stem for one in indexes) or "none"
            raise UserError(f"{path}: name the checkpoint; there are: {names}")
        return indexes[0].with_suffix("")
    for prefix in (path, path.with_suffix("")):
        if Path(f"{prefix}.index").is_file():
            return prefix
    raise UserError(f"{path}: there is no {path}.index")


def read(prefix: Path, drop: tuple[str, ...] = ()) -> dict[str, np.ndarray]:
    """All tensors by name, but those whose names end in one of `drop`."""
    index = Path(f"{prefix}.index")
    try:
        entries = dict(_entries(index.read_bytes()))
    except (IndexError, ValueError, struct.error, UnicodeDecodeError) as error:
        raise UserError(f"{index}: is not an index of a TensorFlow checkpoint, or is damaged ({error})") from None
    header = _fields(entries.pop("", b""))
    shards = _int(header, 1, 1)
    if _int(header, 2):
        raise UserError(f"{index}: its tensors are big-endian")
    wanted = {name: _entry(index, name, raw) for name, raw in entries.items() if not name.endswith(drop)}
    return {name: _tensor(prefix, shards, name, entry) for name, entry in wanted.items()}


def _entries(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Keys and values of the table, in order."""
    if len(data) < FOOTER or struct.unpack("<Q", data[-8:])[0] != MAGIC:
        raise ValueError("wrong ending")
    at = len(data) - FOOTER
    for _ in range(2):  # the list of further blocks, which is empty, then the list of blocks
        offset, at = varint(data, at)
        size, at = varint(data, at)
    for _, handle in _block(data, offset, size):
        begin, place = varint(handle, 0)
        length, _ = varint(handle, place)
        for key, value in _block(data, begin, length):
            yield key.decode(), value


def _block(data: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """A block's keys, each of which gives only what differs from the one before, and values."""
    block = data[offset : offset + size]
    if len(block) != size or offset + size + TRAILER > len(data):
        raise ValueError("a block is truncated")
    if data[offset + size]:
        raise ValueError("its blocks are compressed")
    (checksum,) = struct.unpack_from("<I", data, offset + size + 1)
    if _masked(_crc32c(data[offset : offset + size + 1])) != checksum:
        raise ValueError("the checksum of a block is wrong")
    (restarts,) = struct.unpack("<I", block[-4:])
    at, end, key = 0, size - 4 - 4 * restarts, b""
    while at < end:
        shared, at = varint(block, at)
        fresh, at = varint(block, at)
        length, at = varint(block, at)
        key = key[:shared] + block[at : at + fresh]
        yield key, block[at + fresh : at + fresh + length]
        at += fresh + length


def _entry(index: Path, name: str, raw: bytes) -> Entry:
    fields = _fields(raw)
    if 7 in fields:
        raise UserError(f"{index}: {name} is cut into slices, which is not supported")
    shape = fields.get(2, [b""])[0]
    assert isinstance(shape, bytes)
    sizes = [_int(_fields(dim), 1) for dim in _fields(shape).get(2, []) if isinstance(dim, bytes)]
    return Entry(_int(fields, 1), tuple(sizes), _int(fields, 3), _int(fields, 4), _int(fields, 5))


def _tensor(prefix: Path, shards: int, name: str, entry: Entry) -> np.ndarray:
    path = Path(f"{prefix}.data-{entry.shard:05d}-of-{shards:05d}")
    if entry.dtype not in DTYPES:
        raise UserError(f"{path}: {name} is of TensorFlow's type {entry.dtype}, which is not supported")
    dtype = np.dtype(DTYPES[entry.dtype])
    count = int(np.prod(entry.shape, dtype=np.int64))
    if count * dtype.itemsize != entry.size:
        raise UserError(f"{path}: {name} has {entry.size} bytes, which do not fit its shape {entry.shape}")
    try:
        with path.open("rb") as stream:
            stream.seek(entry.offset)
            raw = stream.read(entry.size)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    if len(raw) != entry.size:
        raise UserError(f"{path}: ends inside {name}; the file is not complete")
    return np.frombuffer(raw, dtype).reshape(entry.shape)


def _fields(data: bytes) -> dict[int, list[int | bytes]]:
    """The fields of a protocol buffer by number."""
    by_number: dict[int, list[int | bytes]] = {}
    for number, value in protobuf.fields(data):
        by_number.setdefault(number, []).append(value)
    return by_number


def _int(fields: dict[int, list[int | bytes]], number: int, default: int = 0) -> int:
    value = fields.get(number, [default])[0]
    if not isinstance(value, int):
        raise ValueError(f"field {number} is not a number")
    return value


def _crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 255] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def _table_entry(value: int) -> int:
    for _ in range(8):
        value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
    return value


_TABLE = [_table_entry(i) for i in range(256)]


def _masked(crc: int) -> int:
    """The table stores checksums rotated and shifted, so that a checksum of checksums is harmless."""
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF
