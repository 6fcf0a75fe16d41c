"""Writing tensors as a safetensors file, streamed, so that every byte is digested on its way to the disk.

The library's own writer reports a full disk without its error number and leaves the digest to a second reading.
Reading is the library's.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import safetensors
import torch
from torch import Tensor

from encodery import files
from encodery.digests import Written

_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


def write_bytes(path: Path, chunks: Iterator[bytes | memoryview]) -> Written:
    """Write a new file and wait until it is on the disk."""
    digest, size = hashlib.sha256(), 0
    with open(path, "xb", buffering=0) as stream:
        for chunk in chunks:
            view = memoryview(chunk).cast("B")
            digest.update(view)
            size += len(view)
            while len(view):  # an unbuffered write may take a part only
                view = view[stream.write(view) :]
        files.sync(stream)
    return Written(size, digest.hexdigest())


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> Written:
    """Write tensors of any layout and device as a safetensors file."""
    # the widest first, then by name: so each lies on a multiple of its own width, as the format wants
    order = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    return write_bytes(path, _chunks({name: tensors[name] for name in order}))


def _chunks(tensors: Mapping[str, Tensor]) -> Iterator[bytes | memoryview]:
    header: dict[str, object] = {}
    offset = 0
    for name, tensor in tensors.items():
        end = offset + tensor.numel() * tensor.element_size()
        kind = _NAMES.get(tensor.dtype)
        if kind is None:
            raise TypeError(f"{name}: tensors of {tensor.dtype} are not stored")
        header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little")
    yield text
    for tensor in tensors.values():
        if tensor.numel():
            yield tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a file, in memory of their own: a view of the file may lie askew, and sums may then differ."""
    with safetensors.safe_open(path, framework="pt") as stream:
        return {name: stream.get_tensor(name).clone() for name in stream.keys()}  # noqa: SIM118 (not a mapping)
