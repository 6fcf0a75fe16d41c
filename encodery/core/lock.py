"""One writer per folder.

The lock is `flock` on a file in the folder: the kernel gives it back when its holder dies, however it dies. The file
also says who holds it. Where the folder is shared between machines, `flock` may be blind to the others, so a record
of another machine counts as held while its file was touched (every 15 s) within the last two minutes, by the
file system's own clock. Where there is no `flock` at all, the recorded process decides: its number and its start.
"""

import errno
import fcntl
import json
import os
import socket
import threading
import time
import weakref
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType

from encodery.core import process
from encodery.core.files import hidden_sibling, io_trouble, open_unlinked
from encodery.errors import UserError

NAME = ".lock"
BEAT = 15.0  # seconds between two touches
STALE = 120.0  # a record of another machine that was not touched for so long is of a dead process
PATIENCE = 1.0  # seconds; a holder may just be leaving
DEATH = 10.0  # seconds; a killed process keeps its files open until its memory is returned


@dataclass(frozen=True)
class Holder:
    """Who holds a lock."""

    pid: int
    host: str
    boot: str
    mark: str
    started: str

    @property
    def here(self) -> bool:
        """Whether it is, or was, a process of this machine (another container of it included)."""
        return self.host == socket.gethostname() or (self.boot != "" and self.boot == process.boot_id())

    @property
    def alive(self) -> bool:
        """Whether that process lives, as far as this machine can tell."""
        return not self.here or (self.boot == process.boot_id() and process.alive(self.pid, self.mark))

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, started {self.started}"


class RunLock:
    """`with RunLock(folder):` nobody else writes there. A second one is refused and told who is first."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / NAME
        self._handle: int | None = None
        self._leave = threading.Event()
        self._heart: threading.Thread | None = None

    def acquire(self) -> None:
        """Take the lock, over a dead process's record if need be; UserError if somebody holds it."""
        begun = time.monotonic()
        with io_trouble(f"{self.folder} could not be locked", self.folder):
            while self._handle is None:
                self._handle = self._attempt(time.monotonic() - begun)
        _held.add(self)
        self._leave.clear()
        self._heart = threading.Thread(target=self._beat, args=(self._handle,), daemon=True)
        self._heart.start()

    def _attempt(self, waited: float) -> int | None:
        handle = open_unlinked(self.path, os.O_RDWR | os.O_CREAT)
        taken = False
        try:
            taken = self._try(handle, waited)
        finally:
            if not taken:
                os.close(handle)
        return handle if taken else None

    def _try(self, handle: int, waited: float) -> bool:
        locked = _flock(handle)
        first = _read(handle)
        if locked is False:
            if waited > (PATIENCE if first is None or first.alive else DEATH):
                raise self._refusal(first)
            time.sleep(0.05)
            return False
        if not _is_at(handle, self.path):  # its former holder removed it between our open and our lock
            return False
        if first is not None and _holds(first, handle, self.folder, decided=locked is True):
            raise self._refusal(first)
        _write(handle, ourselves())
        if locked is None:
            time.sleep(0.5)  # without flock two may take over at once: the one whose record stays has won
            if _read(handle) != ourselves():
                raise self._refusal(_read(handle))
        return True

    def _refusal(self, first: Holder | None) -> UserError:
        who = first or "another process (its record cannot be read)"
        return UserError(
            f"{self.folder} is in use by {who}: wait for it or stop it, or give another folder with -o"
            + ("" if first is None or first.here else f"; if it is dead, try again in {STALE:.0f} s")
        )

    def _beat(self, handle: int) -> None:
        while not self._leave.wait(BEAT):
            with suppress(OSError):  # of a disk that fails for a moment
                os.utime(handle)

    def release(self) -> None:
        """Give the lock back."""
        if self._handle is None or self._heart is None:
            return
        self._leave.set()
        self._heart.join()  # it must not touch a closed file
        try:
            os.ftruncate(self._handle, 0)
            if _is_at(self._handle, self.path):  # not after the folder was moved
                self.path.unlink()
        except OSError:  # a disk that fails or cannot be written: closing the file gives the lock back all the same
            pass
        finally:
            os.close(self._handle)
            self._handle = None
        _held.discard(self)

    def forget(self) -> None:
        """In a forked child: close our copy, so that the lock dies with the parent."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def __enter__(self) -> "RunLock":
        self.acquire()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()


_held: weakref.WeakSet[RunLock] = weakref.WeakSet()


def _forget_all() -> None:
    for lock in list(_held):
        lock.forget()


os.register_at_fork(after_in_child=_forget_all)


def ourselves() -> Holder:
    """This process as a holder."""
    pid = os.getpid()
    started = time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(process.start_time(pid)))
    return Holder(pid, socket.gethostname(), process.boot_id(), process.start_mark(pid) or "", started)


def holder(folder: Path) -> Holder | None:
    """Who holds the folder now, without taking it."""
    try:
        handle = os.open(folder / NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP, errno.ENXIO):  # nobody's lock; taking it will say what it is
            return None
        raise
    try:
        locked = _flock(handle, fcntl.LOCK_SH)
        first = _read(handle)
        if first is None or locked is False:
            return first
        return first if _holds(first, handle, folder, decided=locked is True) else None
    finally:
        os.close(handle)


def _holds(first: Holder, handle: int, folder: Path, *, decided: bool) -> bool:
    """Whether a recorded holder still holds, when flock (if it decided) was free."""
    if first.here:
        return not decided and first.alive
    return disk_time(folder) - os.fstat(handle).st_mtime < STALE


def disk_time(folder: Path) -> float:
    """The time by the clock that stamps the folder's files: two machines' own clocks may differ."""
    probe = hidden_sibling(folder / NAME)
    try:
        probe.touch()
        return probe.stat().st_mtime
    except OSError:  # a reader without the right to write
        return time.time()
    finally:
        probe.unlink(missing_ok=True)


def _flock(handle: int, kind: int = fcntl.LOCK_EX) -> bool | None:
    """True: ours; False: somebody else's; None: this file system has no such locks."""
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        if error.errno in (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL):
            return None
        raise
    return True


def _is_at(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.lstat(path))
    except FileNotFoundError:
        return False


def _write(handle: int, who: Holder) -> None:
    os.ftruncate(handle, 0)
    os.pwrite(handle, json.dumps(asdict(who)).encode(), 0)


def _read(handle: int) -> Holder | None:
    try:
        return Holder(**json.loads(os.pread(handle, 10_000, 0)))
    except (ValueError, TypeError):  # empty, or in the middle of being written
        return None
