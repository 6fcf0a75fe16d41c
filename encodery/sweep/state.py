"""What is known about each run of a sweep: one status.json per run folder, written whole or not at all. No torch.

<sweep>/<id>-<readable>/status.json     written by whoever holds the run's claim (`claim`)
<sweep>/.sweep/                         the specs that were started, and the request to stop
"""

import json
import os
import re
import secrets
import socket
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, get_args

from encodery.core import files, process
from encodery.core.files import below, check_name
from encodery.core.lock import STALE, Holder, disk_time, ourselves
from encodery.core.redact import scrub
from encodery.errors import UserError
from encodery.runs.directory import RunDir
from encodery.runs.sweep_spec import Outcome, RunSpec, State

# Who may start a run: one scheduler, the one that created the newest claim file of the run's folder.
#
# Claims are numbered and never removed, so that creating number n + 1 can succeed for one process only, and taking over
# from a dead one cannot race. A claim counts while it is not released and its scheduler lives: by its process on this
# machine, by the time of its last touch on another.


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


STATES: tuple[State, ...] = get_args(State)
FINAL: tuple[State, ...] = ("done", "failed", "timeout", "oom", "pruned")
TAIL_LINES, TAIL_BYTES = 20, 4000
_ID = re.compile(r"([0-9a-f]{16}|[0-9a-f]{8})(?:-|$)")


@dataclass(frozen=True)
class RunStatus:
    """How a run stands."""

    id: str
    name: str
    state: State
    attempt: int = 0  # how often it was started
    failures: int = 0  # how many of these failed since the last `retry`
    pid: int | None = None
    mark: str | None = None  # the start of that process, which tells it from a later one with the same number
    boot: str = ""
    host: str = ""
    slot: int | None = None
    device: str = ""
    token: str = ""  # stands in the environment of all its processes
    exit_code: int | None = None  # negative: ended by that signal
    started: float | None = None  # of the last attempt, seconds since 1970
    ended: float | None = None
    error: str | None = None  # the last lines that it wrote
    changed: Mapping[str, Any] = field(default_factory=dict)  # settings that differ from the plan: less memory

    @property
    def here(self) -> bool:
        """Whether its process is, or was, one of this machine."""
        return self.boot == process.boot_id() if self.boot else self.host == socket.gethostname()

    @property
    def alive(self) -> bool:
        """Whether its process lives on this machine."""
        return self.state == "running" and self.here and self.pid is not None and process.alive(self.pid, self.mark)

    @property
    def outcome(self) -> Outcome:
        """As the sweep's source wants it."""
        return Outcome(self.id, self.state, error=self.error)


def id_of(name: str) -> str:
    """The id that a run folder's name begins with: 8 digits, or 16 where two runs share the first ones."""
    match = _ID.match(name)
    return match[1] if match else name[:8]


def run_path(folder: Path, name: str) -> Path:
    """The folder of a run; a name that leads elsewhere is refused."""
    return below(folder, check_name(name))


def write(folder: Path, status: RunStatus) -> None:
    """Store it in the run's folder, which is made if need be."""
    path = run_path(folder, status.name)
    with files.io_trouble(f"{path} could not be made", folder):
        path.mkdir(parents=True, exist_ok=True)
    files.write_json(RunDir(path).status, asdict(status))


def read(path: Path) -> RunStatus | None:
    """The stored status of a run folder; None if there is none or it is damaged."""
    stored, names = RunDir(path).read_status(), {field.name for field in fields(RunStatus)}
    try:
        status = RunStatus(**{key: value for key, value in stored.items() if key in names})
    except TypeError:  # a field is missing
        return None
    sound = status.state in STATES and isinstance(status.attempt, int) and isinstance(status.changed, dict)
    return replace(status, id=id_of(path.name), name=path.name) if sound else None


def status_of(path: Path) -> RunStatus:
    """The status of a run folder, with what its files say where status.json is missing, damaged or out of date."""
    stored = read(path)
    status = stored or _guess(path)
    if status.state == "running" and status.here and not status.alive:
        if not ended_well(path, status.attempt):
            return replace(status, state="queued")
        status = replace(status, state="done", exit_code=0, ended=_ended_at(path, status.attempt))
    return status


def _ended_at(path: Path, attempt: int) -> float | None:
    """When a run was done that no scheduler saw to its end."""
    marks = [mark for mark in (path / "DONE", exit_path(path, attempt)) if mark.exists()]
    return min((mark.stat().st_mtime for mark in marks), default=None)


def _guess(path: Path) -> RunStatus:
    """Without a status: a living holder of the run's lock is its process, a finished run is done, all else is open."""
    name, attempt = path.name, max([*_exits(path), 0])
    holder = RunDir(path).holder()
    if holder is not None and holder.here and holder.alive:
        return RunStatus(
            id_of(name), name, "running", attempt=max(attempt, 1), pid=holder.pid, mark=holder.mark, boot=holder.boot,
            host=holder.host,
        )  # fmt: skip
    state: State = "done" if ended_well(path, attempt) else "queued"
    note = "its status.json is damaged" if RunDir(path).status.exists() else None
    return RunStatus(id_of(name), name, state, attempt=attempt, error=None if state == "done" else note)


def ended_well(path: Path, attempt: int) -> bool:
    """Whether the files of a run say that it is done: DONE, or for a command the exit code 0 of this attempt."""
    return RunDir(path).is_done or exit_code(path, attempt) == 0


def exit_path(path: Path, attempt: int) -> Path:
    """Where the shell leaves a command's exit code, for schedulers that are not its parent."""
    return path / f".exit-{attempt}"


def exit_code(path: Path, attempt: int) -> int | None:
    """The code that the shell left, if it got so far."""
    try:
        return int(exit_path(path, attempt).read_text())
    except (OSError, ValueError):
        return None


def _exits(path: Path) -> list[int]:
    found = (re.fullmatch(r"\.exit-(\d+)", name) for name in (os.listdir(path) if path.is_dir() else ()))
    return [int(match[1]) for match in found if match]


def status(folder: Path) -> list[RunStatus]:
    """Every run that was ever started in a sweep's folder, by name."""
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder")
    return [status_of(path) for path in sorted(folder.iterdir()) if RunDir(path).status.exists()]


def select(statuses: Iterable[RunStatus], words: Iterable[str]) -> list[RunStatus]:
    """The runs that people name by id, by its beginning, or by folder; an unknown or ambiguous one is an error."""
    every, selected = list(statuses), []
    for word in words:
        match = [s for s in every if word in (s.id, s.name)] or [s for s in every if s.name.startswith(word)]
        if len(match) != 1:
            raise UserError(f"'{word}' names {len(match)} runs of this sweep; `encodery sweep status` lists their ids")
        selected += match
    return selected


# The log


def log_tail(path: Path) -> str:
    """The last lines that a run wrote, without secrets."""
    try:
        with open(path / "log.txt", "rb") as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - TAIL_BYTES))
            text = stream.read(TAIL_BYTES).decode(errors="replace")
    except OSError:
        return ""
    return scrub("\n".join(text.splitlines()[-TAIL_LINES:]))


def put_log_aside(path: Path) -> None:
    """Keep the log of an earlier attempt as log.1.txt, log.2.txt, …"""
    log = path / "log.txt"
    if log.exists():
        number = next(n for n in range(1, 1_000_000) if not (path / f"log.{n}.txt").exists())
        os.rename(log, path / f"log.{number}.txt")


# Specs and requests


def hidden(folder: Path) -> Path:
    """The sweep's own files, which are nobody's result."""
    path = folder / ".sweep"
    with files.io_trouble(f"{path} could not be made", folder):
        path.mkdir(parents=True, exist_ok=True)
    return path


def write_spec(folder: Path, spec: RunSpec) -> None:
    """Keep a spec, so that a later scheduler can go on with the run whatever its own plan says."""
    files.write_json(hidden(folder) / f"{check_name(spec.name)}.json", asdict(spec))


def read_spec(folder: Path, name: str) -> RunSpec | None:
    """The spec that a run was started with."""
    try:
        found = json.loads((folder / ".sweep" / f"{check_name(name)}.json").read_bytes())
        return RunSpec(**{**found, "needs": tuple(found["needs"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None


def request_stop(folder: Path, now: bool) -> None:
    """Ask every scheduler of this folder, here or elsewhere, to stop its runs; they look once a second."""
    files.write_json(hidden(folder) / "stop.json", {"token": secrets.token_hex(8), "now": now})


def stop_requested(folder: Path) -> tuple[str, bool] | None:
    """The latest request: what tells it from an older one, and whether it said now."""
    try:
        found = json.loads((folder / ".sweep" / "stop.json").read_bytes())
        return str(found["token"]), bool(found["now"])
    except (OSError, ValueError, TypeError, KeyError):
        return None
