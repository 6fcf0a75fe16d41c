"""Frozen processes are noticed: each one beats, and each listens to its neighbour.

A dead process is seen by the launcher at once; one that only stands still (stopped, swapped out, stuck in a driver)
would let the others wait for ever. Each process counts up a number in the store through which the processes have met,
from a thread. A neighbour whose number stands still for 36 seconds is named, killed where it is on this machine,
and this process ends, so that the launcher ends or restarts the job.
"""

import os
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from datetime import timedelta
from importlib import import_module
from typing import Any

from encodery.core.text import first_line
from encodery.errors import ProcessLost

BEAT = 3.0  # seconds between two beats, unless the environment says ENCODERY_BEAT
MISSED = 12  # a neighbour that was silent for so many beats is frozen

_running: "Heart | None" = None


def start(rank: int, size: int) -> None:
    """Begin to beat and to listen, if that has not begun."""
    global _running
    dist: Any = import_module("torch.distributed")  # whose types do not name the stores

    if _running is not None:
        return
    every = float(os.environ.get("ENCODERY_BEAT", BEAT))
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = dist.TCPStore(host, port, is_master=False, timeout=timedelta(seconds=MISSED * every))  # its own connection
    # A group that was restarted must not hear the beats of the one before.
    again = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    _running = Heart(dist.PrefixStore(f"encodery-{again}", store), rank, (rank + 1) % size, every)
    _running.beat()
    _running.thread.start()


def stop() -> None:
    """No more beats, and nobody is missed."""
    global _running
    if _running is not None:
        _running.leave.set()
        _running.thread.join()
        _running.store.delete_key(f"beat-{_running.rank}")
        _running = None


class Heart:
    """The thread of one process."""

    def __init__(self, store: Any, rank: int, neighbour: int, every: float = BEAT) -> None:
        self.store, self.rank, self.neighbour = store, rank, neighbour
        self.every, self.limit = every, MISSED * every
        self.leave = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.count = 0
        self.heard: tuple[str, float] = ("", time.monotonic())  # the neighbour's last number, and when it changed

    def run(self) -> None:
        """Until somebody is lost or all is over."""
        while not self.leave.is_set():
            slept = time.monotonic()
            if self.leave.wait(self.every):
                return
            if time.monotonic() - slept > self.every + self.limit / 2:  # this process itself stood still: listen anew
                self.heard = ("", time.monotonic())
            try:
                self.beat()
                self.listen()
            except Exception as error:  # the store is gone or stands still: whoever holds it is lost
                if not self.leave.is_set():
                    self.end(f"no answer from {os.environ.get('MASTER_ADDR')} ({first_line(error)[:120]})")

    def beat(self) -> None:
        self.count += 1
        self.store.set(f"beat-{self.rank}", f"{self.count} {os.getpid()} {socket.gethostname()}")

    def listen(self) -> None:
        """Has the neighbour's number changed?"""
        key = f"beat-{self.neighbour}"
        said = self.store.get(key).decode() if self.store.check([key]) else ""
        now = time.monotonic()
        if said != self.heard[0] or not said:  # without a word it has not begun, or has ended in order
            self.heard = (said, now)
        elif now - self.heard[1] > self.limit:
            self.end(f"rank {self.neighbour} has not answered for {self.limit:.0f} s: it is frozen", said)

    def end(self, sentence: str, said: str = "") -> None:
        """Say it, end the frozen process if it is here, and end this one."""
        print(f"rank {self.rank}: {sentence}", file=sys.stderr, flush=True)
        _, pid, host = [*said.split(), "", "", ""][:3]
        if host == socket.gethostname():
            with suppress(OSError):
                os.kill(int(pid), signal.SIGKILL)
        time.sleep(1)  # the launcher should see that death first, and name it
        os._exit(ProcessLost.exit_code)
