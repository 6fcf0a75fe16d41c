"""Signals that wake a sleeping scheduler: SIGINT, SIGTERM and a terminal that is closed ask it to stop."""

import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Alarm:
    """`with Alarm() as alarm:` its handle becomes readable when a signal came; outside the main thread none does."""

    def __init__(self) -> None:
        self.asked = self.insisted = False
        self.handle, self._ring = os.pipe()
        os.set_blocking(self.handle, False)
        os.set_blocking(self._ring, False)
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Alarm":
        if threading.current_thread() is threading.main_thread():
            wanted = [s for s in _SIGNALS if s != signal.SIGHUP or signal.getsignal(s) == signal.SIG_DFL]  # not nohup's
            self._before = {number: signal.signal(number, self._receive) for number in wanted}
        return self

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.insisted = self.insisted or (self.asked and number == signal.SIGINT)
        self.asked = True
        self._wake()

    def ring(self) -> None:
        """Ask it to stop from another place of this process."""
        self.asked = True
        self._wake()

    def _wake(self) -> None:
        try:
            os.write(self._ring, b"!")
        except BlockingIOError:
            return  # it is ringing already

    def drain(self) -> None:
        """Be quiet until the next signal."""
        try:
            os.read(self.handle, 4096)
        except BlockingIOError:
            return

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        os.close(self.handle)
        os.close(self._ring)
