"""Sizes and digests of files: what a file was when it was written, and whether it still is. No torch.

A run lists its files in DONE, a checkpoint and a folder of a cache in manifest.json.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from encodery.core import files

SETTLED = 2.0  # seconds after which a file that is written again has another time
_verifying = True  # whether digests are compared where a person may do without
_verified: dict[tuple[int, ...], str] = {}  # file as the system knows it -> its digest, for this process


@dataclass(frozen=True)
class Written:
    """Size and digest of a file, as it was meant to be written."""

    bytes: int
    sha256: str

    @classmethod
    def read(cls, entry: Any) -> "Written | None":
        """From JSON data; None if it is not such an entry."""
        sound = isinstance(entry, Mapping) and isinstance(entry.get("bytes"), int)
        return cls(entry["bytes"], entry["sha256"]) if sound and isinstance(entry.get("sha256"), str) else None


def of_file(path: Path) -> Written:
    """Size and digest of a file as it is now."""
    return Written(path.stat().st_size, files.sha256(path))


def known_sha256(path: Path) -> str:
    """The digest of a file; computed once in a process as long as the file is not written again."""
    about = path.stat()
    key = (about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns)
    if key in _verified:
        return _verified[key]
    settled = time.time() - about.st_ctime > SETTLED  # else a write in the same tick of the clock would go unseen
    digest = files.sha256(path)
    if settled:
        _verified[key] = digest
    return digest


def damage(path: Path, expected: Written, listing: str, *, digest: bool = True) -> str | None:
    """What is wrong with a file, as a sentence; None if it is as it was written. `listing` names the list."""
    if not path.is_file():
        return f"{path} is missing"
    size = path.stat().st_size
    if size != expected.bytes:
        return f"{path} is damaged: {size} bytes instead of {expected.bytes}"
    if digest and known_sha256(path) != expected.sha256:
        return f"{path} is damaged: its sha256 is not the one in {listing}"
    return None


def verifying() -> bool:
    """Whether digests of models are compared; sizes always are."""
    return _verifying


@contextmanager
def sizes_only(wanted: bool = True) -> Iterator[None]:
    """Inside, the files of finished runs are compared by size alone: for models so large that reading them is slow."""
    global _verifying
    before, _verifying = _verifying, _verifying and not wanted
    try:
        yield
    finally:
        _verifying = before
