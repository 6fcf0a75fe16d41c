"""A folder of one large array, made in shards: a killed command resumes at the first shard that is missing.

plan.json   what the shards are pieces of; written first
shards/     000000.npy …, each with its digest behind it
meta.json   the plan and what was found; written last, when the array is whole and shards/ is gone
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from encodery.core import cache, files
from encodery.core.lock import RunLock


def in_cache(kind: str, plan: Mapping[str, Any]) -> Path:
    """The folder in the cache that is named by a hash of the plan."""
    return files.cache_root() / kind / files.digest(plan)[:32]


@contextmanager
def locked(folder: Path, plan: dict[str, Any], what: str) -> Iterator[bool]:
    """Inside, the folder is ours; gives whether it is still to be made. One of another plan is refused."""
    with files.io_trouble(f"{folder} cannot be written", folder.parent):
        folder.mkdir(parents=True, exist_ok=True)
    with RunLock(folder):
        files.remove_leftovers(folder)
        if damaged := cache.damages(folder):
            cache.discard(folder, damaged)
        files.require_same_plan(folder, plan, what)
        yield not (folder / "meta.json").is_file()


def shard_path(folder: Path, number: int) -> Path:
    """Where a shard is, or will be."""
    return folder / "shards" / f"{number:06d}.npy"


def missing(folder: Path, count: int) -> list[int]:
    """The numbers of the shards that are not there yet, or damaged."""
    shards = folder / "shards"
    shards.mkdir(exist_ok=True)
    files.remove_leftovers(shards)
    return [number for number in range(count) if not cache.has_array(shard_path(folder, number))]


def join(folder: Path, name: str, shape: tuple[int, ...]) -> Iterator[np.ndarray]:
    """Write all shards into one float32 file; gives each as it passes."""
    shards = sorted((folder / "shards").glob("*.npy"))
    cache.require_arrays(shards)
    with files.atomic(folder / name) as stream:
        header = {"descr": "<f4", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(stream, header)
        for path in shards:
            values = np.load(path, allow_pickle=False).astype("<f4")
            stream.write(values.tobytes())
            yield values


def finish(folder: Path, names: Sequence[str], meta: dict[str, Any]) -> None:
    """Everything is there: list the files with their digests, write meta.json and remove what is no longer needed."""
    cache.complete(folder, names, meta)
    (folder / "plan.json").unlink(missing_ok=True)
    shutil.rmtree(folder / "shards")
