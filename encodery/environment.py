"""What a run ran on: versions, machine, command. Asks the package metadata, so nothing heavy is imported."""

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

from encodery.scrub import scrub_arguments

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


def versions() -> dict[str, str]:
    """The installed version of every package that can change a number."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


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
