"""Warm workers: a process per CPU slot that does one training run after the other and imports torch only once.

The scheduler writes a job as a line of JSON to the worker's stdin and reads `{"code": 0}` from a pipe of its own. What
the run prints goes into its log. A worker that is asked to stop, or whose scheduler is gone, ends after its run.
"""

import ctypes
import gc
import json
import os
import signal
import subprocess
import sys
import traceback
from contextlib import suppress
from pathlib import Path

from encodery.core.files import open_unlinked
from encodery.errors import EncoderyError
from encodery.sweep import processes
from encodery.sweep.slots import Slot

MOST_RUNS = 32  # then a fresh process: whatever a run leaks is given back


class Worker:
    """The scheduler's end of a warm worker."""

    def __init__(self, slot: Slot, token: str, log: Path) -> None:
        self.slot, self.token, self.runs = slot, token, 0
        self.reply, theirs = os.pipe()
        words = [sys.executable, "-m", "encodery.sweep.warm_worker", str(theirs)]
        try:
            with (
                processes.log_stream(log) as stream,
                slot.pinned(),
            ):  # of its first run: if importing fails, it is read there
                self.popen = subprocess.Popen(
                    words, stdin=subprocess.PIPE, stdout=stream, stderr=stream, start_new_session=True,
                    env=processes.environment(slot, token), pass_fds=[theirs],
                )  # fmt: skip
        finally:
            os.close(theirs)

    @property
    def usable(self) -> bool:
        """Whether it may get another run."""
        return self.popen.poll() is None and self.runs < MOST_RUNS

    def begin(self, config: Path, run: Path, changed: bool, allow_code: bool = False) -> "WarmRun":
        """Hand it a run."""
        assert self.popen.stdin is not None
        self.runs += 1
        words = processes.train_words(config, run, changed, allow_code)
        job = {"config": str(config), "out": str(run), "log": str(run / "log.txt"), "words": words}
        with suppress(BrokenPipeError):  # it has just died: the run will be seen to have ended with it
            allowed = {"allow_change": changed, "allow_code": allow_code}
            self.popen.stdin.write(json.dumps(job | allowed).encode() + b"\n")
            self.popen.stdin.flush()
        return WarmRun(self)

    def dismiss(self) -> None:
        """Let an idle worker end: without stdin it leaves by itself."""
        if self.popen.stdin is not None and not self.popen.stdin.closed:
            with suppress(BrokenPipeError):
                self.popen.stdin.close()
        if self.reply >= 0:
            os.close(self.reply)
            self.reply = -1


class WarmRun(processes.Started):
    """A run inside a worker."""

    def __init__(self, worker: Worker) -> None:
        super().__init__(worker.popen, worker.token)
        self.worker = worker
        self._code: int | None = None

    def handles(self) -> list[int]:
        return [*super().handles(), self.worker.reply]

    def ended(self) -> bool:
        self._listen()
        return self._code is not None or super().ended()

    def code(self) -> int | None:
        self._listen()
        return self._code if self._code is not None else super().code()

    def gone(self) -> bool:
        """A worker that answered and lives on is no leftover; one that died may have left some."""
        if self.ended() and self.worker.usable and self._code not in (None, 3):
            return True
        self.worker.dismiss()
        return processes.Started.ended(self) and not any(processes.members(self.pid, self.token))

    def close(self) -> None:
        processes.Watched.close(self)

    def _listen(self) -> None:
        if self._code is None and self.worker.reply >= 0 and processes.readable([self.worker.reply]):
            line = os.read(self.worker.reply, 100)  # one short line, written at once
            self._code = json.loads(line)["code"] if line else None


# The worker's own end


def main(reply: int) -> int:
    """Do jobs until there are no more."""
    import encodery.training.run  # noqa: F401  (what takes long, before the first job is read)

    os.set_inheritable(reply, False)
    for line in sys.stdin:
        code = work(json.loads(line))
        try:
            os.write(reply, json.dumps({"code": code}).encode() + b"\n")
        except BrokenPipeError:  # the scheduler is gone; the next one reads the run's files
            return 0
        if code in (3, 130):  # asked to stop: the signal meant this process
            return code
    return 0


def work(job: dict[str, object]) -> int:
    """One run, with everything it prints in its own log; the exit code that its command would have had."""
    log = open_unlinked(Path(str(job["log"])), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    sys.argv = ["encodery", *map(str, job["words"])]  # type: ignore[call-overload]  # what run.json will call the command
    try:
        train(str(job["config"]), str(job["out"]), bool(job["allow_change"]), bool(job["allow_code"]))
        return 0
    except EncoderyError as error:
        traceback.print_exc()
        print(str(error), file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except Exception:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        give_back_memory()


def give_back_memory() -> None:
    """To the system what a finished run has used: without this a worker grew by half a gigabyte a run."""
    gc.collect()  # models hold cycles
    with suppress(OSError, AttributeError):  # not glibc: it has no such call
        ctypes.CDLL("libc.so.6").malloc_trim(0)  # batches of many shapes leave the heap full of holes


def train(config: str, out: str, allow_change: bool, allow_code: bool = False) -> None:
    """What `encodery train` does."""
    from encodery.config.load import load
    from encodery.training.run import train_run

    train_run(load(config, allow_code=allow_code), out, allow_change=allow_change)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(main(int(sys.argv[1])))
