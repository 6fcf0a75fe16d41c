"""Which processes live: asked by locks and by those who clean up after the dead."""

import ctypes
import os
import signal
import sys
from functools import cache
from pathlib import Path

WITH_PARENT = "ENCODERY_WITH_PARENT"  # in the environment of processes that must not outlive what started them
_PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """Be killed when the parent ends, however it ends, where the environment asks for that (Linux).

    For jobs of a cluster that kills only the processes that it started itself.
    """
    if WITH_PARENT in os.environ and sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def start_mark(pid: int) -> str | None:
    """What tells this process from a later one with the same number; None if there is no such process.

    Ticks since boot where /proc has them: psutil gives the start on the clock of the system, which can be set.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None if Path("/proc/self/stat").exists() else _start_elsewhere(pid)
    fields = stat.rpartition(")")[2].split()  # the command name in parentheses may hold anything
    return None if fields[0] in "ZX" else fields[19]  # a zombie is dead


def start_time(pid: int) -> float:
    """When the process began, in seconds since 1970."""
    import psutil  # 20 ms that most commands need not spend

    return float(psutil.Process(pid).create_time())


def alive(pid: int, mark: str | None = None) -> bool:
    """Whether the process lives and, if a mark is given, is still the one that had it."""
    found = start_mark(pid)
    return found is not None and mark in (None, found)


def _start_elsewhere(pid: int) -> str | None:
    import psutil

    return str(start_time(pid)) if psutil.pid_exists(pid) else None


@cache
def boot_id() -> str:
    """Names this boot of this machine, the same in all its containers; empty where the system has none."""
    path = Path("/proc/sys/kernel/random/boot_id")
    return path.read_text().strip() if path.exists() else ""


def is_main_process() -> bool:
    """Of the processes of a run, which all do the same, the one that talks; known before torch is imported."""
    return os.environ.get("RANK", "0") == "0"
