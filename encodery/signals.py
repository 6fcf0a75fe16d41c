"""Stopping on request: the first signal asks, a second Ctrl-C insists."""

import signal
import threading
from types import FrameType, TracebackType

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopRequest:
    """`with StopRequest() as stop:` the loop looks at `stop.requested` after each step, saves and ends with Stopped.

    A Ctrl-C after the first request raises KeyboardInterrupt at once. Outside the main thread, where Python allows
    no handlers, nothing is changed and nothing is requested.
    """

    def __init__(self) -> None:
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
        self.requested = True
        self.signal_name = self.signal_name or signal.Signals(number).name

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)  # type: ignore[arg-type]
        self._before = {}
