"""Faults for tests: a process that dies, or a call to the system that fails, at every place where one can."""

import builtins
import errno
import io
import itertools
import os
import signal
import sys
import traceback
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from encodery.cli import main

WRITES = {"write", "pwrite", "fsync", "rename", "mkdir"}
CALLS = WRITES | {"open", "unlink", "rmdir", "close", "truncate", "ftruncate"}


@contextmanager
def at_call(number: int, act: Callable[[], None], calls: Collection[str] = WRITES) -> Iterator[None]:
    """Act instead of the n-th of these calls to the system (from 0) that is made inside the block."""
    counter = itertools.count()

    def watch(frame: FrameType, event: str, called: Any) -> None:
        if event == "c_call" and called.__name__ in calls and next(counter) == number:
            sys.setprofile(None)
            act()

    sys.setprofile(watch)
    try:
        yield
    finally:
        sys.setprofile(None)


def dies_at(number: int, action: Callable[[], object]) -> bool:
    """Do it in a process that is gone at its n-th call, without any clean-up; False if it never made that many."""

    def work() -> None:
        with at_call(number, lambda: os._exit(77), CALLS):
            action()

    code = in_child(work)
    assert code in (0, 77), code
    return code == 77


def in_child(action: Callable[[], object]) -> int:
    """Do it in a forked process and wait; its exit code, negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(start_child(action), 0)[1])


def start_child(action: Callable[[], object]) -> int:
    """Start doing it in a forked process; its pid."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            action()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return pid


def running(pid: int) -> bool:
    """Whether a process of `start_child` is still at it."""
    return os.waitpid(pid, os.WNOHANG) == (0, 0)


def kill_9(pid: int) -> None:
    """End a running process of `start_child` without any clean-up."""
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def fail_with(number: int) -> Callable[[], None]:
    """An act for `at_call`: the error of that number."""

    def act() -> None:
        raise OSError(number, os.strerror(number))

    return act


disk_full = fail_with(errno.ENOSPC)


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    output: str  # of both streams

    @property
    def is_bug(self) -> bool:
        """Whether a person was told that encodery has a bug, or saw a traceback."""
        return "this is a bug" in self.output or "Traceback (most recent call last)" in self.output


def command(words: Sequence[str], folder: Path, stdin: str = "", before: Callable[[], object] = lambda: None) -> Ended:
    """`encodery WORDS` in a forked process that stands in the folder: everything is imported already."""
    given, shown = folder / ".stdin", folder / ".output"
    given.write_text(stdin)

    def work() -> None:
        os.chdir(folder)
        for number, path, flags in ((0, given, os.O_RDONLY), (1, shown, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)):
            os.dup2(os.open(path, flags, 0o644), number)
        os.dup2(1, 2)
        sys.stdin, sys.stdout, sys.stderr = (os.fdopen(n, "r" if n == 0 else "w", closefd=False) for n in range(3))
        before()
        code = main(list(words))
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(code)

    code = in_child(work)
    return Ended(code, shown.read_text(encoding="utf-8", errors="replace"))


def broken_disk(root: Path, number: int) -> None:
    """In this process, from now on: whatever would write below the root fails with the error of that number."""

    def guarded(inner: Callable[..., Any], writes: Callable[..., bool]) -> Callable[..., Any]:
        def call(path: Any, *given: Any, **more: Any) -> Any:
            below = isinstance(path, str | os.PathLike) and Path(os.path.abspath(path)).is_relative_to(root)
            if below and writes(*given, **more):
                raise OSError(number, os.strerror(number), os.fspath(path))
            return inner(path, *given, **more)

        return call

    def to_write(mode: Any = "r", *_: Any, **more: Any) -> bool:
        return any(letter in str(more.get("mode", mode)) for letter in "wxa+")

    for name in ("mkdir", "rename", "unlink", "truncate", "replace"):
        setattr(os, name, guarded(getattr(os, name), lambda *_, **__: True))
    os.open = guarded(os.open, lambda flags=0, *_, **__: bool(flags & (os.O_WRONLY | os.O_RDWR)))
    builtins.open = io.open = guarded(io.open, to_write)  # type: ignore[misc, assignment]
