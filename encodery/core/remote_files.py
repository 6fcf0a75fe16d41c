"""Files on other machines through fsspec: corpora are fetched into the cache, finished things are copied away.

`s3://bucket/text/*.txt`, `gs://…`, `hf://datasets/owner/name/file.parquet`. Run directories and checkpoints stay on a
local or shared disk: they need renames and locks, which such stores do not have.
"""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from encodery.core import files
from encodery.core.text import kind_and_line
from encodery.errors import RunFailed, UserError

_URL = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*(::[A-Za-z][A-Za-z0-9+.-]*)*://")
LAST = "DONE"  # of a copied run: who sees it sees a whole copy
BUCKETS = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "oci", "oss"}  # stores whose paths begin with a bucket


def is_remote(name: str) -> bool:
    """Whether a name is an address and not a path."""
    return bool(_URL.match(name))


def _open(address: str) -> tuple[Any, str]:
    """The file system of an address, and the path in it."""
    import fsspec

    try:
        system, path = fsspec.core.url_to_fs(address)
    except ImportError as error:  # says which package
        raise UserError(f"{address}: {error}") from None
    except ValueError as error:
        raise UserError(f"{address}: unsupported kind of address ({error})") from None
    return system, path


def check(address: str) -> None:
    """An error now, not after a day of training, if nobody here can speak to that store or its bucket is missing."""
    if not is_remote(address):
        raise UserError(f"{address}: not an address such as s3://bucket/name")
    with _speaking(address):
        system, path = _open(address)
        if not _has_buckets(system):
            return
        bucket = path.partition("/")[0]
        try:
            system.info(bucket)
        except PermissionError:  # who may write into a bucket need not be allowed to look at it
            pass
        except FileNotFoundError:
            raise UserError(
                f"{address}: there is no bucket {bucket}; create it first, encodery creates no buckets"
            ) from None


def refuse_address(option: str, name: object) -> None:
    """A place on disk was asked for: an address would become a folder of that name."""
    if name and is_remote(str(name)):
        why = "results are written to a local or shared disk, where renames and locks work"
        raise UserError(f"{option} {name}: {why}; `train --copy-to` and `export` copy finished ones to an address")


def _has_buckets(system: Any) -> bool:
    kinds = system.protocol
    return bool(BUCKETS.intersection([kinds] if isinstance(kinds, str) else kinds))


@contextmanager
def _speaking(address: str) -> Iterator[None]:
    """What a store's client raises, as a sentence."""
    try:
        yield
    except (UserError, RunFailed):
        raise
    except FileNotFoundError:
        raise UserError(f"{address} does not exist") from None
    except Exception as error:  # every store has its own zoo: credentials, network, permission
        raise RunFailed(f"{address}: {kind_and_line(error)}; run the same command again") from error


def fetched(addresses: Sequence[str], cache: Path) -> list[Path]:
    """Local copies of files, folders and patterns, in the order given and sorted within each."""
    return [path for address in addresses for path in _fetched(address, cache)]


def _fetched(address: str, cache: Path) -> list[Path]:
    with _speaking(address):
        system, path = _open(address)
        found = _listed(system, path)
        if not found:
            raise UserError(f"files: {address} does not exist or holds no file")
        return [_copy(system, one, cache) for one in found]


def _listed(system: Any, path: str) -> list[str]:
    if any(mark in path for mark in "*?["):
        return sorted(one for one in system.glob(path) if system.isfile(one))
    if system.isdir(path):
        return sorted(one for one in system.find(path) if not one.rpartition("/")[2].startswith("."))
    return [path] if system.exists(path) else []


def _copy(system: Any, path: str, cache: Path) -> Path:
    """The file in the cache, named by its address and version; fetched if that version is not there."""
    about = system.info(path)
    version = ("size", "ETag", "etag", "mtime", "LastModified", "created")
    kept = {key: str(about[key]) for key in version if key in about}
    key = files.digest([type(system).__name__, path, kept])[:32]
    local = cache / "remote" / key / path.rpartition("/")[2]
    if not local.is_file():
        local.parent.mkdir(parents=True, exist_ok=True)
        beside = files.hidden_sibling(local)
        try:
            system.get_file(path, str(beside))
            files.sync_file(beside)
            os.rename(beside, local)
        finally:
            beside.unlink(missing_ok=True)
    return local


def put(folder: Path, address: str, leave_out: Sequence[str] = ()) -> int:
    """Copy a folder to an address, file by file, DONE last; how many files. Every copy is compared by size.

    A copy that broke off has no DONE, also where an older copy had one; the same again makes it whole.
    """
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and _wanted(path, folder, leave_out)]
    paths.sort(key=lambda path: (path.name == LAST, path == folder / LAST))
    with _speaking(address):
        system, root = _open(address)
        mark = f"{root.rstrip('/')}/{LAST}"
        if folder / LAST in paths and system.exists(mark):
            system.rm_file(mark)
        for path in paths:
            target = f"{root.rstrip('/')}/{path.relative_to(folder).as_posix()}"
            if not _has_buckets(system):  # there it would create the bucket, and folders are none
                system.makedirs(target.rpartition("/")[0], exist_ok=True)
            system.put_file(str(path), target)
            if system.info(target)["size"] != path.stat().st_size:
                raise RunFailed(f"{target}: the copy is not as long as {path}")
    return len(paths)


def _wanted(path: Path, folder: Path, leave_out: Sequence[str]) -> bool:
    parts = path.relative_to(folder).parts
    return not any(part.startswith(".") for part in parts) and not set(parts) & set(leave_out)
