"""Stopping on request: the first signal asks, a second Ctrl-C insists; before training begins the first one ends it."""

import signal
import threading
from types import FrameType, TracebackType

from encodery.errors import Stopped

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopRequest:
    """`with StopRequest() as stop:` the loop looks at `stop.requested` after each step, saves and ends with Stopped.

    A Ctrl-C after the first request raises KeyboardInterrupt at once. With `early` the first signal raises Stopped
    until `begin` is called: there is nothing to save yet. Outside the main thread, where Python allows no handlers,
    nothing is changed and nothing is requested.
    """

    def __init__(self, early: bool = False) -> None:
        self.early = early
        self.requested = False
        self.signal_name: str | None = None
        self._before: dict[signal.Signals, signal.Handlers | int | object] = {}

    def __enter__(self) -> "StopRequest":
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._receive) for number in _SIGNALS}
        return self

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        first, self.requested = not self.requested, True
        self.signal_name = self.signal_name or signal.Signals(number).name
        if self.early and first:
            raise self._stopped()

    def _stopped(self) -> Stopped:
        return Stopped(f"stopped by {self.signal_name} before training began; the same command starts it")

    def begin(self) -> None:
        """From now on there is something to finish and to save."""
        if self.early and self.requested:  # a library caught what the signal raised
            raise self._stopped()
        self.early = False

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)  # type: ignore[arg-type]
        self._before = {}
        if self.early and self.requested and isinstance(error, Exception) and not isinstance(error, Stopped):
            raise self._stopped() from None  # a library made another error of what the signal raised
