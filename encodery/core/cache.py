"""Folders and arrays that can be made again: token tables, embeddings, head importances, teachers, corpora. No torch.

A folder lists size and sha256 of its files in manifest.json. It is compared with the list when it is opened; what was
damaged is named, moved aside and made again. An array that is a file of its own carries its digest at its end. Folders
that were made before have no list and are read as they are.
"""

import fcntl
import hashlib
import io
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from encodery.core import files
from encodery.core.files import Written
from encodery.errors import RunFailed, UserError

MANIFEST = "manifest.json"
LARGE = 4_000_000_000  # bytes of a folder up to which all of it is read when it is opened
_MAGIC = b"sha256:\x00"  # behind an array, before its digest


# Folders


def write_manifest(folder: Path, names: Iterable[str], more: Mapping[str, bytes] | None = None) -> None:
    """List files of a folder, each read again whole. `more`: the content of files that are written after the list."""
    listed = {name: files.of_file(folder / name) for name in names}
    for name, content in (more or {}).items():
        listed[name] = Written(len(content), hashlib.sha256(content).hexdigest())
    files.write_atomic(folder / MANIFEST, _manifest_text(listed))


def complete(folder: Path, names: Iterable[str], meta: Mapping[str, Any]) -> None:
    """Write the list, then meta.json, the sign that everything is there."""
    text = (files.plain_json(dict(meta), indent=2) + "\n").encode()
    write_manifest(folder, names, {"meta.json": text})
    files.write_atomic(folder / "meta.json", text)


def damages(folder: Path) -> dict[str, str]:
    """What is wrong with a folder: file -> sentence. Of very large folders the shards are compared by size alone."""
    if not (folder / MANIFEST).is_file():
        return {}
    try:
        listed = _listed(folder)
    except UserError as error:
        return {MANIFEST: str(error)}
    large = sum(one.bytes for one in listed.values()) > LARGE
    sentences = {
        name: files.damage(folder / name, one, MANIFEST, digest=not (large and name.startswith("shards/")))
        for name, one in listed.items()
    }
    return {name: sentence for name, sentence in sentences.items() if sentence}


def require_intact(folder: Path, remedy: str) -> None:
    """Refuse a folder that is not as it was made."""
    if found := damages(folder):
        raise UserError(f"{next(iter(found.values()))}; {remedy}")


def discard(folder: Path, damaged: Mapping[str, str], names: Iterable[str] | None = None) -> None:
    """Move these files of a folder (all of them, unless some are named) to <folder>.damaged-1, -2, … and say so."""
    target = _aside(folder)
    entries = [path for path in folder.iterdir() if not path.name.startswith(".")]
    paths = entries if names is None else [folder / name for name in names]
    for path in dict.fromkeys(paths):
        if path.exists():
            place = target / path.relative_to(folder)
            place.parent.mkdir(parents=True, exist_ok=True)
            os.rename(path, place)
    _tell(damaged.values(), target)


def discard_folder(folder: Path) -> None:
    """Move a whole folder aside if it is damaged. Of several processes that see it, one does."""
    with _alone(folder.parent):
        if damaged := damages(folder):
            target = _aside(folder, make=False)
            os.rename(folder, target)
            files.sync_folder(target.parent)
            _tell(damaged.values(), target)


def repair(folder: Path) -> bool:
    """Take damaged parts of a corpus, and the sign that it is whole, out of its folder; whether there were any.

    What is left is kept: the next preparation makes only what is missing. With the lock held.
    """
    found = damages(folder)
    if found:
        discard(folder, found, None if MANIFEST in found else [*found, MANIFEST, "meta.json"])
    return bool(found)


def require_shard(path: Path) -> None:
    """Compare a shard of a corpus with the list of its folder before it is read; a damaged one is moved aside."""
    folder = path.parent.parent
    expected = _listing(folder).get(path.relative_to(folder).as_posix())
    sentence = files.damage(path, expected, MANIFEST) if expected else None
    if sentence:
        target = _aside(folder)
        for name in (path, folder / "meta.json"):
            with suppress(FileNotFoundError):
                os.rename(name, target / name.name)
        raise RunFailed(
            f"{sentence}; moved to {target}. Run the same command again to rebuild it (for a folder written by "
            "`encodery prepare`: run that command first)"
        )


@lru_cache(maxsize=16)
def _listing(folder: Path) -> Mapping[str, Written]:
    return _listed(folder) if (folder / MANIFEST).is_file() else {}


def _listed(folder: Path) -> dict[str, Written]:
    """The text must be exactly what we would write, so that no bit of it can flip unnoticed."""
    manifest = folder / MANIFEST
    text = manifest.read_bytes()
    try:
        listed = {name: Written(**entry) for name, entry in json.loads(text)["files"].items()}
        sound = text == _manifest_text(listed)
    except (ValueError, KeyError, TypeError, AttributeError):
        sound = False
    if not sound:
        raise UserError(f"{manifest} is damaged: it is not a manifest")
    return listed


def _manifest_text(listed: Mapping[str, Written]) -> bytes:
    """The list and its own digest: else a flipped letter of a name would look like a missing file."""
    entries = {name: asdict(one) for name, one in sorted(listed.items())}
    digest = files.digest_text(json.dumps(entries))
    return json.dumps({"files": entries, "sha256": digest}, indent=1).encode()


def _aside(path: Path, *, make: bool = True) -> Path:
    """A free name beside a damaged file or folder."""
    places = (path.with_name(f"{path.name}.damaged-{number}") for number in range(1, 1_000_000))
    target = next(place for place in places if not place.exists())
    if make:
        target.mkdir()
    return target


def _tell(sentences: Iterable[str], target: Path) -> None:
    """Also where progress is not shown: somebody's disk is failing."""
    listed = list(sentences)
    more = f" (and {len(listed) - 1} more)" if len(listed) > 1 else ""
    print(f"warning: {listed[0]}{more}; moved to {target} and rebuilt", file=sys.stderr, flush=True)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One process at a time, as far as the file system can tell."""
    with open(folder / ".repair", "ab") as stream:
        with suppress(OSError):
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield


# Single arrays


def save_array(path: Path, array: np.ndarray) -> None:
    """Write an array with its digest behind it; numpy reads such a file like any other."""
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=False)
    data = stream.getbuffer()
    with files.atomic(path) as out:
        out.write(data)
        out.write(_MAGIC + hashlib.sha256(data).digest())


def has_array(path: Path) -> bool:
    """Whether the array is there, as it was written; a damaged one is named and moved aside."""
    if not path.is_file():
        return False
    with _alone(path.parent):
        sentence = _array_damage(path) if path.is_file() else None
        if sentence:
            target = _aside(path, make=False)
            os.rename(path, target)
            _tell([sentence], target)
    return path.is_file()


def _array_damage(path: Path) -> str | None:
    data = memoryview(path.read_bytes())
    body, mark, digest = data[:-40], data[-40:-32], data[-32:]
    if mark != _MAGIC:
        return f"{path} is damaged: its end is missing"
    same = hashlib.sha256(body).digest() == digest
    return None if same else f"{path} is damaged: its sha256 is not the one at its end"


def require_arrays(paths: Sequence[Path]) -> None:
    """Refuse pieces that are not as they were written, just before they are joined."""
    for path in paths:
        if sentence := _array_damage(path):
            raise RunFailed(f"{sentence}; run the same command again to rebuild it")
