"""Which processes live: asked by locks and by those who clean up after the dead (no psutil)."""

import os
import subprocess
import time
from functools import cache
from pathlib import Path


def start_mark(pid: int) -> str | None:
    """What tells this process from a later one with the same number; None if there is no such process."""
    fields = _stat(pid)
    if fields is not None:
        return None if fields[0] in "ZX" else fields[19]  # state (a zombie is dead), start in ticks since boot
    if Path("/proc/self/stat").exists():
        return None
    return _ps(pid)


def start_time(pid: int) -> float:
    """When the process began, in seconds since 1970; now if the system does not say."""
    fields = _stat(pid)
    boot = _boot_time()
    if fields is None or boot is None:
        return time.time()
    return boot + int(fields[19]) / os.sysconf("SC_CLK_TCK")


def alive(pid: int, mark: str | None = None) -> bool:
    """Whether the process lives and, if a mark is given, is still the one that had it."""
    found = start_mark(pid)
    return found is not None and mark in (None, found)


@cache
def boot_id() -> str:
    """Names this boot of this machine, the same in all its containers; empty where the system has none."""
    path = Path("/proc/sys/kernel/random/boot_id")
    return path.read_text().strip() if path.exists() else ""


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/<pid>/stat from the state on; the command name before it may hold anything."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def _boot_time() -> int | None:
    try:
        lines = Path("/proc/stat").read_text().splitlines()
    except FileNotFoundError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("btime ")), None)


def _ps(pid: int) -> str | None:
    """The start as `ps` prints it, for systems without /proc."""
    done = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return done.stdout.strip() or None
