"""Files that are whole or not there at all, whenever the process dies; and their digests: what a file was when it was
written, and whether it still is.

A run lists its files in DONE, a checkpoint and a folder of a cache in manifest.json.
"""

import errno
import hashlib
import json
import math
import os
import re
import secrets
import shutil
import stat
import time
import unicodedata
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from encodery.core import process
from encodery.errors import RunFailed, UserError

_LEFTOVER = re.compile(r"^\..+\.(?:tmp|old)-(\d+)-([0-9a-f]{8})-[0-9a-f]{8}$")


_IN_WORDS = re.compile(r"\(os error (\d+)\)")  # how safetensors, which is written in Rust, reports an errno
SETTLED = 2.0  # seconds after which a file that is written again has another time
_verifying = True  # whether digests are compared where a person may do without
_verified: dict[tuple[int, ...], str] = {}  # file as the system knows it -> its digest, for this process


def cache_root() -> Path:
    """Where fetched files, token tables and embeddings are kept."""
    return Path(os.environ.get("ENCODERY_CACHE") or Path.home() / ".cache" / "encodery")


def hidden_sibling(path: Path, kind: str = "tmp") -> Path:
    """A fresh hidden name beside the path; it names our process, so that others can tell when it is an orphan."""
    pid = os.getpid()
    return path.with_name(f".{path.name}.{kind}-{pid}-{_mark(pid)}-{secrets.token_hex(4)}")


def is_hidden_sibling(name: object) -> bool:
    """Whether a name is one that `hidden_sibling` gives."""
    return isinstance(name, str) and "/" not in name and _LEFTOVER.match(name) is not None


def _mark(pid: int) -> str | None:
    """The start of a process, short; in containers a new process often has the number of the killed one."""
    mark = process.start_mark(pid)
    return None if mark is None else f"{zlib.crc32(mark.encode()):08x}"


def write_atomic(path: Path, content: bytes | str) -> None:
    """Replace the file by new content in one instant."""
    with atomic(path) as stream:
        stream.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def atomic(path: Path) -> Iterator[IO[bytes]]:
    """A stream whose bytes become the file when the block ends well, and vanish otherwise."""
    temporary = hidden_sibling(path)
    with io_trouble(f"{path} could not be written", path.parent):
        try:
            with open(temporary, "xb") as stream:
                yield stream
                sync(stream)
            os.rename(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """A folder to fill, which takes its name when the block ends well; a folder of that name gives way."""
    temporary = hidden_sibling(path)
    with io_trouble(f"{path} could not be written", path.parent):
        try:
            temporary.mkdir()
            yield temporary
            _open_to_readers(temporary)
            sync_tree(temporary)
            replace_folder(temporary, path)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise


def _open_to_readers(folder: Path) -> None:
    """Files with the mode that the umask leaves: safetensors makes its own readable by their owner alone."""
    mode = folder.stat().st_mode & 0o666
    for root, _, names in os.walk(folder):
        for path in (Path(root, name) for name in names):
            if not path.is_symlink() and stat.S_IMODE(path.stat().st_mode) & 0o666 != mode:
                path.chmod(mode | (stat.S_IMODE(path.stat().st_mode) & 0o111))


def replace_folder(new: Path, path: Path) -> None:
    """Rename a finished folder to its name; what stood there is moved away first and removed last."""
    old = hidden_sibling(path, "old") if path.exists() else None
    if old is not None:
        os.rename(path, old)
    os.rename(new, path)
    sync_folder(path.parent)
    if old is not None:
        shutil.rmtree(old)


def open_unlinked(path: Path, flags: int) -> int:
    """Open a file for writing, which must be a file: a link in a run directory may lead to anything of its reader's.

    A new file gets the mode that the umask leaves.
    """
    try:
        handle = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # a link; a pipe or a socket
            raise _not_a_file(path) from None
        raise
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise _not_a_file(path)
    return handle


def require_unlinked(path: Path) -> None:
    """The same for a file that somebody else will open, if it is there already."""
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(path.lstat().st_mode):
            raise _not_a_file(path)


def _not_a_file(path: Path) -> UserError:
    return UserError(
        f"{path} is a link or not a regular file, and links are not followed here; check it, then remove it"
    )


def append_line(path: Path, text: str) -> None:
    """Add one line by one write. A torn last line of a killed process is ended first; a half write is undone."""
    with io_trouble(f"{path} could not be written", path.parent):
        handle = open_unlinked(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        try:
            size = os.fstat(handle).st_size
            torn = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
            _write_whole(handle, ("\n" * torn + text + "\n").encode(), size)
        finally:
            os.close(handle)


def _write_whole(handle: int, data: bytes, size_before: int) -> None:
    written = os.write(handle, data)
    if written != len(data):
        os.ftruncate(handle, size_before)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def cut_torn_line(path: Path) -> None:
    """Remove what a killed process left of its last line."""
    with io_trouble(f"{path} could not be written", path.parent):
        data = path.read_bytes() if path.exists() else b""
        if data and not data.endswith(b"\n"):
            handle = open_unlinked(path, os.O_WRONLY)
            try:
                os.ftruncate(handle, data.rfind(b"\n") + 1)
            finally:
                os.close(handle)


def plain_json(value: Any, indent: int | None = None) -> str:
    """JSON that every reader accepts: ASCII only, NaN and infinities as null."""
    return json.dumps(_finite(value), indent=indent, allow_nan=False)


def readable_json(value: Any) -> str:
    """The same for rows that people read: letters are written as they are. Escaped are half a character, which UTF-8
    cannot spell, and what some readers take for the end of a line."""
    text = json.dumps(_finite(value), allow_nan=False, ensure_ascii=False)
    return re.sub(r"[\x7f-\x9f\u2028\u2029\ud800-\udfff]", lambda half: f"\\u{ord(half[0]):04x}", text)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value


def write_json(path: Path, value: Any) -> None:
    """Write a value as readable JSON, atomically."""
    write_atomic(path, plain_json(value, indent=2) + "\n")


def is_run(folder: Path | str) -> bool:
    """Whether a folder is the directory of a run, whole or not; code in it runs by stricter rules (own_code.py)."""
    return Path(folder, "run.json").is_file()


def read_json(path: Path) -> Any:
    """Read a JSON file; a missing or damaged one is an error that names it."""
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        raise UserError(f"{path} does not exist") from None
    except (IsADirectoryError, PermissionError) as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    except RecursionError:
        raise UserError(f"{path} is damaged, it is nested too deeply: restore it from a copy") from None
    except ValueError as error:  # bad JSON or bad UTF-8
        raise UserError(f"{path} is damaged, it is not JSON ({error}): restore it from a copy") from None


def require_same_plan(folder: Path, plan: dict[str, Any], what: str) -> None:
    """An empty folder keeps what is planned for it; one that was made by another plan is refused, with what differs."""
    stored = next((read_json(folder / n) for n in ("meta.json", "plan.json") if (folder / n).is_file()), None)
    if stored is None:
        strange = [entry.name for entry in folder.iterdir() if not entry.name.startswith(".")]
        if strange:
            raise UserError(f"{folder} is not empty and holds no {what} ({strange[0]}): give another folder with -o")
        write_json(folder / "plan.json", plan)
        return
    other = [key for key, value in plan.items() if stored.get(key) != value]
    if other:
        listed = "; ".join(f"{key}: {stored.get(key)} there, {plan[key]} now" for key in other)
        raise UserError(f"{folder} holds other {what} ({listed}); give another folder with -o")


def digest(value: Any) -> str:
    """The digest of plain data; keys of dicts count in alphabetical order. Stored hashes depend on it."""
    return digest_text(json.dumps(value, sort_keys=True))


def digest_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def sha256(path: Path) -> str:
    """The digest of a file's bytes."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def digest_tree(folder: Path) -> str:
    """The digest of a file, or of the names and bytes of all files below a folder; hidden ones do not count."""
    if folder.is_file():
        return sha256(folder)
    if not folder.is_dir():
        raise UserError(f"{folder} does not exist")
    names = sorted(str(path.relative_to(folder).as_posix()) for path in _visible_files(folder))
    listing = [[name, sha256(folder / name)] for name in names]
    return digest(listing)


def _visible_files(folder: Path, above: tuple[Path, ...] = ()) -> Iterator[Path]:
    """All files below, through links too (hub caches are links); a link to a folder above is not followed again."""
    above = (*above, folder.resolve())
    for path in folder.iterdir():
        if path.name.startswith("."):
            continue
        if path.is_dir() and path.resolve() not in above:
            yield from _visible_files(path, above)
        elif path.is_file():
            yield path


def sync(stream: IO[bytes]) -> None:
    """Wait until the bytes are on the disk."""
    stream.flush()
    os.fsync(stream.fileno())


def sync_file(path: Path) -> None:
    """Wait until a file that somebody else wrote is on the disk."""
    with open(path, "rb") as stream:
        os.fsync(stream.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until the folder's names are on the disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network file systems cannot do this for folders; their renames are safe
            raise
    finally:
        os.close(handle)


def sync_tree(folder: Path) -> None:
    """Wait until every file and every name below is on the disk."""
    for root, _, names in os.walk(folder):
        for name in names:
            sync_file(Path(root, name))
        sync_folder(Path(root))


def remove_leftovers(folder: Path) -> None:
    """Remove the hidden files and folders of writers that died. Only for those who hold the folder's lock:
    a living writer on another machine looks dead from here.
    """
    for path in folder.iterdir() if folder.is_dir() else ():
        match = _LEFTOVER.match(path.name)
        if match and _mark(int(match[1])) != match[2]:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


@contextmanager
def io_trouble(what: str, folder: Path) -> Iterator[None]:
    """Turn an error of the disk into a sentence that says what failed, why, and how much room there is."""
    try:
        yield
    except OSError as error:
        raise RunFailed(trouble(what, folder, error)) from error
    except Exception as error:
        found = from_safetensors(error)
        if found is None:
            raise
        raise RunFailed(trouble(what, folder, found)) from error


def from_safetensors(error: BaseException) -> OSError | None:
    """The system's error behind one of safetensors, which tells it in words only."""
    found = _IN_WORDS.search(str(error)) if type(error).__name__ == "SafetensorError" else None
    return OSError(int(found[1]), os.strerror(int(found[1])), "model.safetensors") if found else None


def trouble(what: str, folder: Path, error: OSError) -> str:
    """The sentence for an error of the disk."""
    remedy = "free some space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "fix this"
    reason = error.strerror or str(error)
    return f"{what}: {reason} ({_free(folder)}); {remedy} and run the same command again to resume"


def _free(folder: Path) -> str:
    try:
        return f"{shutil.disk_usage(folder).free / 1e6:,.1f} MB free in {folder}"
    except OSError:
        return f"free space in {folder} unknown"


# Names and paths that may come from others: limited characters, and never outside their root.


_OTHER = re.compile(r"[^A-Za-z0-9._-]+")
_LEGAL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,149}")
_NAME = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,199}$")


def check_name(name: str) -> str:
    """The name itself if it is safe on every disk, an error otherwise."""
    if not _NAME.match(name) or name.endswith("\n"):
        raise UserError(
            f"{name!r} cannot be a name: use letters, digits, `.`, `_` and `-`, and do not begin with `.` or `-`"
        )
    return name


def as_name(text: str) -> str:
    """The nearest safe name: `glue/rte` becomes `glue-rte`."""
    return _OTHER.sub("-", text).strip("-.") or "run"


def file_name(text: str) -> str:
    """A task's name as a name of files: `glue/rte` is `glue-rte`; of any other text what is legal, and a digest of it.

    The digest keeps `a b` and `a+b` apart.
    """
    if ".." in text.split("/"):
        raise UserError(f"'{text}' cannot be a name: it points outside its folder.")
    plain = text.replace("/", "-")
    if _LEGAL.fullmatch(plain):
        return plain
    ascii_only = unicodedata.normalize("NFKD", plain).encode("ascii", "ignore").decode()
    mark = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{as_name(ascii_only)[:80].rstrip('-.')}-{mark}"


def below(root: Path, name: str) -> Path:
    """The path of a name below a root, an error if it would lead elsewhere (by `..` or by a link)."""
    inside(root, name)
    return root / name


def inside(root: Path, path: Path | str) -> Path:
    """`root / path` with links followed, or an error if that lies outside the root."""
    resolved = (root / path).resolve()
    if not resolved.is_relative_to(root.resolve()):
        raise UserError(f"'{path}' points outside {root}, which is not allowed.")
    return resolved


def require_new(folder: Path) -> None:
    """A folder that does not exist yet, below one that does."""
    if folder.exists():
        raise UserError(f"{folder}: already exists; give a new folder")
    if not folder.resolve().parent.is_dir():
        raise UserError(f"{folder}: the folder {folder.parent} does not exist")


# What a file was when it was written, and whether it still is


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
    return Written(path.stat().st_size, sha256(path))


def known_sha256(path: Path) -> str:
    """The digest of a file; computed once in a process as long as the file is not written again."""
    about = path.stat()
    key = (about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns)
    if key in _verified:
        return _verified[key]
    settled = time.time() - about.st_ctime > SETTLED  # else a write in the same tick of the clock would go unseen
    digest = sha256(path)
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
