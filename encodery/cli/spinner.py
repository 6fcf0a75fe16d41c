"""Something that moves while a command has not printed anything yet: importing torch takes seconds."""

import itertools
import sys
import threading
import time
from types import TracebackType
from typing import Any, Self

DELAY = 0.1  # seconds; what is quicker needs no sign of life
FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
PLAIN = "|/-\\"
CLEAR = "\r\033[K"


class Spinner:
    """`with Spinner("train"): …` at a terminal; the first thing that is printed takes its place."""

    def __init__(self, verb: str) -> None:
        self.verb, self.begin = verb, time.monotonic()
        self.ended, self.lock = threading.Event(), threading.Lock()
        self.before: tuple[Any, Any] = (sys.stdout, sys.stderr)
        self.watched: tuple[Any, Any] = self.before
        self.shown = False

    def __enter__(self) -> Self:
        out, err = self.before
        encoding = (err.encoding or "").lower().replace("-", "")
        frames = FRAMES if encoding == "utf8" else PLAIN
        sys.stdout, sys.stderr = self.watched = _Watched(out, self), _Watched(err, self)
        threading.Thread(target=self._spin, args=(frames,), daemon=True).start()
        return self

    def _spin(self, frames: str) -> None:
        pause = DELAY
        for frame in itertools.cycle(frames):
            if self.ended.wait(pause):
                return
            pause = 0.1
            with self.lock:
                if self.ended.is_set():
                    return
                self.shown = True
                seconds = time.monotonic() - self.begin
                self.before[1].write(f"{CLEAR}{frame} encodery {self.verb}: starting ({seconds:.0f} s)")
                self.before[1].flush()

    def end(self) -> None:
        """Take it away. The streams stay as they are: `print` of Python 3.11 crashes when its stream is exchanged."""
        with self.lock:
            if self.ended.is_set():
                return
            self.ended.set()
            if self.shown:
                self.before[1].write(CLEAR)
                self.before[1].flush()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.end()
        for name, watched, stream in zip(("stdout", "stderr"), self.watched, self.before, strict=True):
            if getattr(sys, name) is watched:
                setattr(sys, name, stream)


class _Watched:
    """A stream that ends the spinner when something is written to it; all else is the stream's own."""

    def __init__(self, stream: Any, spinner: Spinner) -> None:
        self._stream, self._spinner = stream, spinner

    def write(self, text: str) -> int:
        self._spinner.end()
        return int(self._stream.write(text))

    def __getattr__(self, name: str) -> Any:
        if name == "buffer":  # whoever takes it is about to write
            self._spinner.end()
        return getattr(self._stream, name)
