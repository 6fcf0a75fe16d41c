"""How an attempt of a run ended, and whether it is worth another one."""

import errno
import os
import re
import shutil
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from encodery.config.schema import TOKEN_BUDGET_OF_TEXT
from encodery.errors import AFTER_ALARM, EncoderyError
from encodery.runs.directory import RunDir
from encodery.runs.sweep_spec import RunSpec, State
from encodery.sweep import state
from encodery.sweep.state import RunStatus
from encodery.sweep.sweep_file import Limits

LITTLE_ROOM = 50e6  # bytes; below it a failure may well be the disk's
STOPPED, WRONG = 3, 2  # exit codes of `encodery train`
_MEMORY = re.compile(
    r"out of memory|OutOfMemoryError|can't allocate memory|Cannot allocate memory|MemoryError|std::bad_alloc"
    r"|CUBLAS_STATUS_ALLOC_FAILED",
)
_OUR_ERROR = re.compile(r"^encodery\.[\w.]+: ", re.MULTILINE)  # the last line of a traceback
_FULL = "|".join(re.escape(os.strerror(number)) for number in (errno.ENOSPC, errno.EDQUOT))
_NO_ROOM = re.compile(rf"{_FULL}|only [\d.]+ MB are free in ")
_RETRY = {"failed": "crash", "oom": "oom", "timeout": "timeout"}


def kills_by_memory() -> int:
    """How often the kernel has killed a process of this machine for want of memory; 0 where it does not say."""
    try:
        text = Path("/proc/vmstat").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in text.splitlines() if line.startswith("oom_kill ")), 0)


def ending(spec: RunSpec, run: Path, code: int | None, asked: State | None, kills: int | None = None) -> State:
    """The state of a run whose processes are gone; a code of None is one that nobody can know.

    `asked` is why it was told to stop, `kills` what `kills_by_memory` said when it began.
    """
    if RunDir(run).is_done if spec.command is None else code == 0 and asked is None:
        return "done"
    if asked is not None:
        return asked
    if spec.command is None and (code == STOPPED or (code is None and _says_stopped(run))):
        return "stopped"
    return "oom" if _memory_ran_out(run, code, kills) else "failed"


def _says_stopped(run: Path) -> bool:
    """Whether the run itself wrote down that it was stopped: the exit code of an adopted one is lost."""
    try:
        return (RunDir(run).info().get("ended") or {}).get("state") == "stopped"
    except EncoderyError:
        return False


def _memory_ran_out(run: Path, code: int | None, kills: int | None) -> bool:
    killed = code in (-signal.SIGKILL, 128 + signal.SIGKILL)
    if killed and kills is not None and kills_by_memory() > kills:
        return True
    return code != 0 and not killed and bool(_MEMORY.search(state.log_tail(run)))


def complaint(run: Path, code: int | None) -> str:
    """What a person should read first: the last lines of the log, the code, and whether the disk is full.

    A sentence of ours is enough by itself; the traceback before it stays in the log.
    """
    tail = state.log_tail(run)
    sentence = _sentence(run, tail)
    lines = [sentence] if sentence else [tail, spelled(code)]
    free = shutil.disk_usage(run).free
    if free < LITTLE_ROOM:
        lines.append(f"only {free / 1e6:.1f} MB are free in {run}")
    return "\n".join(line for line in lines if line)


def _sentence(run: Path, tail: str) -> str | None:
    """The message of an error of ours that a log ends with: alone, or once more behind its traceback."""
    messages = [tail[match.end() :] for match in _OUR_ERROR.finditer(tail)]
    if messages and (twice := messages[-1].strip()):
        once = twice[: len(twice) // 2].strip()
        if twice == f"{once}\n{once}":
            return once
    with suppress(EncoderyError):
        noted = str((RunDir(run).info().get("ended") or {}).get("error") or "")
        return noted if noted and f"\n{tail}".endswith(f"\n{noted}") else None
    return None


def spelled(code: int | None) -> str:
    """The exit code in words."""
    if code is None:
        return "ended without an exit code"
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"exit code {code}"


def again(spec: RunSpec, status: RunStatus, limits: Limits) -> bool:
    """Whether a run that ended so is tried again; a wrong setting or an alarm of its training would only repeat."""
    wrong = spec.command is None and (status.exit_code == WRONG or (status.error or "").endswith(AFTER_ALARM))
    if wrong or _RETRY.get(status.state) not in limits.retry_on or status.failures >= limits.retries:
        return False
    return status.state != "oom" or limits.on_oom != "fail"


def lacked_room(status: RunStatus) -> bool:
    """Whether a run failed because the disk was full: the same command then starts it again once there is room."""
    return status.state == "failed" and bool(_NO_ROOM.search(status.error or ""))


def smaller(spec: RunSpec, changed: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that need less memory for the same gradient: half the tokens, and half the rows, at once."""
    if spec.config is None:
        return dict(changed)
    train = spec.config.get("train", {})
    budget = changed.get("train.token_budget", train.get("token_budget")) or TOKEN_BUDGET_OF_TEXT  # the least default
    rows = changed.get("train.micro_batch", train.get("micro_batch"))
    found = {**changed, "train.token_budget": max(budget // 2, 16)}
    return found | ({"train.micro_batch": max(rows // 2, 1)} if rows else {})
