"""Writes a TensorFlow checkpoint as the format describes it, for tests: sorted blocks with shared key beginnings."""

import struct
from pathlib import Path

import numpy as np


def varint(value: int) -> bytes:
    out = b""
    while value >= 128:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value) if value else b""
    return varint(number << 3 | 2) + varint(len(value)) + value


def crc32c(data: bytes) -> int:
    """Bit by bit, on purpose unlike the reader's table."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 & -(crc & 1))
    return crc ^ 0xFFFFFFFF


class Table:
    def __init__(self) -> None:
        self.data = b""

    def block(self, items: list[tuple[bytes, bytes]], interval: int = 16) -> bytes:
        """Append a block; its handle."""
        out, restarts, last = b"", [], b""
        for i, (key, value) in enumerate(items):
            shared = 0
            if i % interval == 0:
                restarts.append(len(out))
            else:
                while shared < min(len(key), len(last)) and key[shared] == last[shared]:
                    shared += 1
            out += varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
            last = key
        restarts = restarts or [0]
        out += b"".join(struct.pack("<I", one) for one in restarts) + struct.pack("<I", len(restarts))
        handle = varint(len(self.data)) + varint(len(out))
        crc = crc32c(out + b"\0")
        masked = ((crc >> 15 | crc << 17) & 0xFFFFFFFF) + 0xA282EAD8 & 0xFFFFFFFF
        self.data += out + b"\0" + struct.pack("<I", masked)
        return handle


def write(prefix: Path, tensors: dict[str, np.ndarray], per_block: int = 7) -> None:
    kinds = {"float32": 1, "int64": 9, "float16": 19}
    items, data = [(b"", field(1, 1) + field(3, field(1, 1)))], b""
    for name in sorted(tensors):
        array = tensors[name]
        shape = b"".join(field(2, field(1, size)) for size in array.shape)
        entry = field(1, kinds[str(array.dtype)]) + field(2, shape) + field(4, len(data)) + field(5, array.nbytes)
        items.append((name.encode(), entry + varint(6 << 3 | 5) + b"\0\0\0\0"))
        data += array.tobytes()
    table = Table()
    chunks = [items[i : i + per_block] for i in range(0, len(items), per_block)]
    index = [(chunk[-1][0], table.block(chunk)) for chunk in chunks]
    further = table.block([])
    handles = further + table.block(index, interval=1)
    footer = handles + b"\0" * (40 - len(handles)) + struct.pack("<Q", 0xDB4775248B80FB57)
    Path(f"{prefix}.index").write_bytes(table.data + footer)
    Path(f"{prefix}.data-00000-of-00001").write_bytes(data)
