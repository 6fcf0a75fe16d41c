"""A run as processes: its own session, one log, and an end that is only reached when the last grandchild is gone.

A session is left by whoever calls `setsid`; so every process of a run also carries a token in its environment, and
both are looked for.
"""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Protocol

import psutil

from encodery.core import files, process
from encodery.runs.sweep_spec import RunSpec
from encodery.sweep import state
from encodery.sweep.slots import Slot

TOKEN = "ENCODERY_RUN"
# The shell leaves the exit code in a file: a scheduler that adopts the command later is not its parent. A trap that
# does something (`:`) is not inherited, so the command itself still dies of the signal. The inner shell writes the code
# too: Ray kills the children of a lost worker, and not their children, whose work must not be done a second time.
_INNER = """trap 'echo $? > "$2"' EXIT; eval "$1" """
_SHELL = 'trap : TERM INT; /bin/sh -c "$3" encodery-run "$1" "$2"; code=$?; echo $code > "$2"; exit $code'


class Child(Protocol):
    """A run at work, as the scheduler sees it."""

    pid: int
    token: str

    def handles(self) -> list[int]:
        """What becomes readable when something happens; empty: one has to ask from time to time."""

    def ended(self) -> bool:
        """Whether the run has ended; its descendants may still live."""

    def code(self) -> int | None:
        """The exit code, negative for a signal; None if nobody can know."""

    def gone(self) -> bool:
        """Whether nothing of it is left."""

    def send(self, number: signal.Signals) -> None:
        """A signal to the run and all its descendants."""

    def close(self) -> None:
        """Give back what the scheduler holds for it."""


class Watched:
    """A process known by its number: an orphan of a dead scheduler that is adopted, or our own child."""

    def __init__(self, pid: int, token: str, mark: str | None = None) -> None:
        self.pid, self.token, self.mark = pid, token, mark
        self._handle = _pidfd(pid)

    def handles(self) -> list[int]:
        return [] if self._handle is None else [self._handle]

    def ended(self) -> bool:
        if self._handle is not None and not readable([self._handle]):
            return False
        return not process.alive(self.pid, self.mark)

    def code(self) -> int | None:
        return None

    def gone(self) -> bool:
        return self.ended() and not any(members(self.pid, self.token))

    def send(self, number: signal.Signals) -> None:
        send(self.pid, self.token, number)

    def close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


class Started(Watched):
    """A process of our own."""

    def __init__(self, popen: "subprocess.Popen[bytes]", token: str) -> None:
        self.popen = popen
        super().__init__(popen.pid, token)

    def ended(self) -> bool:
        return self.popen.poll() is not None

    def code(self) -> int | None:
        return self.popen.poll()

    def close(self) -> None:
        super().close()
        if self.popen.stdin is not None:
            self.popen.stdin.close()


def _pidfd(pid: int) -> int | None:
    """A handle that becomes readable when the process ends, where the system has such things."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def readable(handles: list[int], seconds: float = 0.0) -> bool:
    """Wait until one of the handles has something to say, but not longer than this."""
    poll = select.poll()
    for handle in handles:
        poll.register(handle, select.POLLIN)
    return bool(poll.poll(max(seconds, 0.0) * 1000))


# Starting


def environment(slot: Slot, token: str) -> dict[str, str]:
    """This process's environment with what the slot and the run add."""
    above = os.environ.get(TOKEN)  # a sweep inside a run of another sweep: both must find it
    return {**os.environ, **slot.environment(), TOKEN: f"{above},{token}" if above else token}


def log_stream(log: Path) -> IO[bytes]:
    """A run's log, for what a program adds to it."""
    return os.fdopen(files.open_unlinked(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab")


def start(words: list[str], log: Path, slot: Slot, token: str, more: Mapping[str, str] | None = None) -> Started:
    """Start a program in a session of its own, bound to the slot; all that it prints is added to the log."""
    variables = {**environment(slot, token), **(more or {})}
    with log_stream(log) as stream, slot.pinned():
        popen = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, env=variables, start_new_session=True
        )
    return Started(popen, token)


def start_command(folder: Path, spec: RunSpec, slot: Slot, attempt: int, token: str) -> Started:
    """Somebody's own command, through the shell; its folder is in $ENCODERY_RUN_DIR."""
    run = state.run_path(folder, spec.name).resolve()
    words = ["/bin/sh", "-c", _SHELL, "encodery-run", str(spec.command), str(state.exit_path(run, attempt)), _INNER]
    return start(words, run / "log.txt", slot, token, {"ENCODERY_RUN_DIR": str(run)})


def train_words(config: Path, run: Path, changed: bool, allow_code: bool) -> list[str]:
    """The command line of a training run, after `encodery`."""
    more = [*(["--allow-change"] if changed else []), *(["--allow-code"] if allow_code else [])]
    return ["train", str(config), "-o", str(run), "--quiet", "--traceback", *more]


def start_train(config: Path, run: Path, slot: Slot, token: str, changed: bool, allow_code: bool = False) -> Started:
    """A training run in a fresh process."""
    words = [sys.executable, "-m", "encodery", *train_words(config, run, changed, allow_code)]
    return start(words, run / "log.txt", slot, token, {"PYTHONUNBUFFERED": "1"})


# Finding and ending all of it


def members(session: int, token: str) -> Iterator[int]:
    """The living processes of a run."""
    return (pid for pid in psutil.pids() if _belongs(pid, session, token))


def _belongs(pid: int, session: int, token: str) -> bool:
    try:
        ours = session in (os.getpgid(pid), os.getsid(pid))
        if not ours and token:
            ours = token in psutil.Process(pid).environ().get(TOKEN, "").split(",")
        return ours and process.alive(pid)
    except (OSError, psutil.Error):  # it has just gone, or is not ours to look at
        return False


def send(session: int, token: str, number: signal.Signals) -> None:
    """A signal to every process of a run; those that are forked meanwhile get it with the group."""
    _quietly(os.killpg, session, number)
    for pid in members(session, token):
        if not _in_group(pid, session):
            _quietly(os.kill, pid, number)


def clear(token: str, seconds: float = 5.0) -> None:
    """Kill what an earlier attempt of a run has left on this machine, and wait until it is gone."""
    end = time.monotonic() + seconds
    while token and (left := list(members(-1, token))) and time.monotonic() < end:
        for pid in left:
            _quietly(os.kill, pid, signal.SIGKILL)
        time.sleep(0.05)


def _in_group(pid: int, group: int) -> bool:
    try:
        return os.getpgid(pid) == group
    except ProcessLookupError:
        return True


def _quietly(kill: Callable[[int, int], None], pid: int, number: signal.Signals) -> None:
    try:
        kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return
