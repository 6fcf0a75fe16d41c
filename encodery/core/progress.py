"""What a person sees while a run works: a bar at a terminal, plain lines in a pipe, nothing when quiet."""

import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:  # a sweep's scheduler speaks too, and never loads torch
    from encodery.training.loop import StepReport

LONG, SETTLED = 600, 20  # seconds that are left of a training that is told how to be faster; steps until that is known


class Bar:
    """Speaks to stderr, so that stdout holds results only."""

    def __init__(self, quiet: bool = False, every: float = 10.0):
        self.quiet = quiet
        self.every = every  # seconds between plain lines
        self.bar: Any = None
        self.task: Any = None
        self.begin = self.said = time.monotonic()

    def open(
        self, name: str, total: float | None, done: float = 0, *, count: bool = True, transient: bool = False
    ) -> None:
        """Show the bar, if this is a terminal."""
        if self.quiet or self.bar is not None or not sys.stderr.isatty():
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn

        columns = [
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn() if count else TaskProgressColumn(),
        ]
        columns.append(TextColumn("{task.fields[now]}"))
        self.bar = Progress(*columns, console=Console(stderr=True), transient=transient)
        self.bar.start()
        self.task = self.bar.add_task(name, total=total, completed=done, now="")

    def show(self, done: float, now: str, line: Callable[[], str], last: bool = False) -> None:
        """Move the bar; without one a plain line from time to time, and the last."""
        if self.bar is not None:
            self.bar.update(self.task, completed=done, now=now)
        elif last or time.monotonic() - self.said >= self.every:
            self.said = time.monotonic()
            self.say(line())

    def say(self, line: str) -> None:
        if self.quiet:
            return
        if self.bar is not None:
            self.bar.console.print(line, markup=False, highlight=False)
        else:
            print(line, file=sys.stderr, flush=True)

    def stop(self) -> None:
        """Take the bar away."""
        if self.bar is not None:
            self.bar.stop()
            self.bar = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class Progress(Bar):
    """Of a training."""

    def __init__(self, quiet: bool = False, every: float = 10.0, peak: float | None = None):
        super().__init__(quiet, every)
        self.peak = peak  # FLOP/s of a device, where the user has said it
        self.said = 0.0
        self.total = self.first = 0
        self.speed = 0.0
        self.tip = ""  # what would be faster, for a training that turns out to be a long one

    def start(self, name: str, total: int, step: int) -> None:
        """Training begins, or goes on at a step."""
        self.total, self.first, self.begin = total, step, time.monotonic()
        self.open(name, total, step)

    def step(self, report: "StepReport", loss: float, device: str = "") -> None:
        """One step was taken; `device` says how well its device is used."""
        now = report.tokens / max(report.seconds, 1e-9)
        self.speed = now if not self.speed else 0.9 * self.speed + 0.1 * now
        pace = (time.monotonic() - self.begin) / max(report.step - self.first, 1)
        seconds = pace * (self.total - report.step)
        if self.tip and seconds > LONG and report.step - self.first >= SETTLED:
            self.say(self.tip)
            self.tip = ""
        left = f"{duration(seconds)} left"
        parts = [f"loss {loss:.4f}", f"rate {report.rate:.2e}", f"{self.speed:,.0f} tokens/s", device, left]
        text = "  ".join(filter(None, parts))
        self.show(report.step, text, lambda: f"step {report.step}/{self.total}  {text}", report.step == self.total)


class Portion(Bar):
    """Progress of work whose end is known as a share only: `portion(0.25, 8_000_000)` means a quarter is behind us.

    What was there before (no characters) does not count for the pace.
    """

    def __init__(self, name: str, quiet: bool = False, every: float = 10.0):
        super().__init__(quiet, every)
        self.name, self.share, self.before, self.characters = name, 0.0, 0.0, 0

    def __call__(self, share: float | None, characters: int) -> None:
        """So much is done; None: nobody knows how much there is."""
        self.open(self.name, 1.0, count=False)  # now, when there is something to show: often the work was done before
        self.share = max(self.share, share or 0.0)
        self.characters += characters
        if not characters:
            self.before, self.begin = self.share, time.monotonic()
        self.show(self.share, self.words(), lambda: f"{self.name}  {self.share:.0%}  {self.words()}")

    def words(self) -> str:
        """Characters, pace, time left."""
        seconds = max(time.monotonic() - self.begin, 1e-9)
        done = self.share - self.before
        left = f"  {duration(seconds / done * (1 - self.share))} left" if done > 0 else ""
        return f"{self.characters / 1e6:,.1f} M characters  {self.characters / seconds / 1e6:.2f} M/s{left}"


class Counting(Bar):
    """`with Counting("glue/rte:dev", 277) as tick:` a bar or lines for work that is counted in rows; `tick(8)`."""

    def __init__(self, name: str, total: int, quiet: bool = False, every: float = 10.0):
        super().__init__(quiet, every)
        self.name, self.total, self.done = name, total, 0
        self.open(name, total, transient=True)

    def __call__(self, rows: int) -> None:
        """So many rows more."""
        self.done += rows
        left = f"{duration((time.monotonic() - self.begin) / max(self.done, 1) * (self.total - self.done))} left"
        self.show(self.done, left, lambda: f"{self.name}  {self.done:,}/{self.total:,}  {left}")


def duration(seconds: float) -> str:
    """`1:02:03`, `4:05` or `12 s`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def spell_scores(scores: Mapping[str, float], main: str, most: int | None = None) -> str:
    """`accuracy 0.8123  f1 0.7610 …`, the headline first, and at most so many."""
    order = [name for name in (main, *(name for name in scores if name != main)) if name in scores]
    rest = f"  … and {len(order) - most} more" if most is not None and len(order) > most else ""
    return "  ".join(f"{name} {scores[name]:.4f}" for name in order[:most]) + rest
