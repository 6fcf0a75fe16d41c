"""Who may start a run: one scheduler, the one that created the newest claim file of the run's folder.

Claims are numbered and never removed, so that creating number n + 1 can succeed for one process only, and taking over
from a dead one cannot race. A claim counts while it is not released and its scheduler lives: by its process on this
machine, by the time of its last touch on another.
"""

import json
import os
from dataclasses import asdict
from pathlib import Path

from encodery import files
from encodery.lock import STALE, Holder, disk_time, ourselves

YOUNG = 10.0  # seconds in which a claim may still be without its content
_NAME = ".claim-"


class Claim:
    """A run that is ours."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def touch(self) -> None:
        """Say that its scheduler lives, to those on other machines."""
        os.utime(self.path)

    def release(self) -> None:
        """Let others have the run."""
        files.require_unlinked(self.path)
        self.path.write_text("{}")


def claim(run: Path) -> Claim | None:
    """Take a run; None if somebody has it."""
    with files.io_trouble(f"{run} could not be claimed", run.parent):
        run.mkdir(parents=True, exist_ok=True)
        newest = _newest(run)
        if newest and _held(run / f"{_NAME}{newest}"):
            return None
        path = run / f"{_NAME}{newest + 1}"
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        except FileExistsError:
            return None
        try:
            os.write(handle, json.dumps(asdict(ourselves())).encode())
        finally:
            os.close(handle)
    return Claim(path)


def is_claimed(run: Path) -> bool:
    """Whether a living scheduler has the run."""
    newest = _newest(run)
    return newest > 0 and _held(run / f"{_NAME}{newest}")


def _newest(run: Path) -> int:
    names = os.listdir(run) if run.is_dir() else []
    numbers = [name.removeprefix(_NAME) for name in names if name.startswith(_NAME)]
    return max((int(number) for number in numbers if number.isdigit()), default=0)


def _held(path: Path) -> bool:
    try:
        found = json.loads(path.read_bytes())
        if found == {}:
            return False
        who = Holder(**found)
    except (ValueError, TypeError):  # created, and not written yet or never
        return _age(path) < YOUNG
    return who.alive if who.here else _age(path) < STALE


def _age(path: Path) -> float:
    """Seconds since the claim was touched, by the clock of its disk."""
    return disk_time(path.parent) - path.stat().st_mtime
