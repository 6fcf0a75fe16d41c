"""What a run ran on: versions, machine, command. Asks the package metadata, so nothing heavy is imported."""

import contextlib
import ctypes
import os
import platform
import shlex
import socket
import subprocess
import sys
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from encodery.core.redact import scrub_arguments

PACKAGES = (
    "encodery", "torch", "transformers", "accelerate", "datasets", "tokenizers", "safetensors", "numpy", "scipy",
    "scikit-learn", "pydantic", "pyarrow", "peft",
)  # fmt: skip


def environment() -> dict[str, Any]:
    """The record for run.json; secrets on the command line are hidden."""
    return {
        "command": shlex.join(scrub_arguments([Path(sys.argv[0]).name, *sys.argv[1:]])),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "host": socket.gethostname(),
        "cpus": os.cpu_count(),
        **code(),
    }


@cache
def code() -> dict[str, Any]:
    """What this process has loaded; it does not change while it lives, and asking takes as long as a few steps."""
    return {"packages": versions(), "revision": revision(Path(__file__).parent)}


def version() -> str:
    try:
        return metadata.version("encodery")
    except metadata.PackageNotFoundError:  # run from a checkout that was not installed
        return "0+unknown"


def versions() -> dict[str, str]:
    """The installed version of every package that can change a number."""
    by_name = {}
    for name in PACKAGES:
        try:
            by_name[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return by_name


def revision(package: Path) -> str | None:
    """The commit if this package runs from its own checkout (`+changes` if edited); None if it was installed."""
    top = _git(package, "rev-parse", "--show-toplevel")
    if top is None or Path(top).resolve() != package.resolve().parent:
        return None  # installed below somebody else's checkout
    commit = _git(package, "rev-parse", "HEAD")
    changed = _git(package, "status", "--porcelain", "--untracked-files=no", "--", str(package))
    return f"{commit}+changes" if commit and changed else commit


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


# Keep freed memory in the process: a step frees what the next one asks for again.


# The names of glibc's malloc.h.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3


def keep() -> None:
    """Tell glibc to give neither large blocks nor the end of its heap back to the system; elsewhere nothing changes.

    By itself it returns every block above 32 MB (the gradient of the word embeddings) and, after the backward pass, the
    activations; then the kernel clears each page anew, which is a tenth of a step on short texts.
    """
    with contextlib.suppress(AttributeError, OSError, TypeError):  # not glibc
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_THRESHOLD, 1 << 30)
        libc.mallopt(M_TRIM_THRESHOLD, -1)
