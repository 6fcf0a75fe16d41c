"""What a person sees while a run works: a bar at a terminal, plain lines in a pipe, nothing when quiet."""

import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # a sweep's scheduler speaks too, and never loads torch
    from encodery.loop import StepReport


class Progress:
    """Speaks to stderr, so that stdout holds results only."""

    def __init__(self, quiet: bool = False, every: float = 10.0):
        self.quiet = quiet
        self.bar: Any = None
        self.task: Any = None
        self.every = every  # seconds between plain lines
        self.said = 0.0
        self.total = 0
        self.first: int | None = None
        self.begin = time.monotonic()
        self.speed = 0.0

    def say(self, line: str) -> None:
        """One line."""
        if self.quiet:
            return
        if self.bar is not None:
            self.bar.console.print(line, markup=False, highlight=False)
        else:
            print(line, file=sys.stderr, flush=True)

    def start(self, name: str, total: int, step: int) -> None:
        """Training begins, or goes on at a step."""
        self.total, self.first, self.begin = total, step, time.monotonic()
        if self.quiet or not sys.stderr.isatty():
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = [
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[now]}"),
        ]
        self.bar = Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True))
        self.bar.start()
        self.task = self.bar.add_task(name, total=total, completed=step, now="")

    def step(self, report: "StepReport", loss: float) -> None:
        """One step was taken."""
        now = report.tokens / max(report.seconds, 1e-9)
        self.speed = now if not self.speed else 0.9 * self.speed + 0.1 * now
        if self.bar is not None:
            text = f"loss {loss:.4f}  rate {report.rate:.2e}  {self.speed:,.0f} tokens/s"
            self.bar.update(self.task, completed=report.step, now=text)
        elif time.monotonic() - self.said >= self.every or report.step == self.total:
            self.said = time.monotonic()
            share = f"step {report.step}/{self.total}"
            self.say(
                f"{share}  loss {loss:.4f}  rate {report.rate:.2e}  {self.speed:,.0f} tokens/s  {self.left(report)}"
            )

    def left(self, report: "StepReport") -> str:
        """Time left, from the pace so far."""
        done = report.step - (self.first or 0)
        seconds = (time.monotonic() - self.begin) / max(done, 1) * (self.total - report.step)
        return f"{duration(seconds)} left"

    def stop(self) -> None:
        """Take the bar away."""
        if self.bar is not None:
            self.bar.stop()
            self.bar = None


def duration(seconds: float) -> str:
    """`1:02:03`, `4:05` or `12 s`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def spell_scores(scores: Mapping[str, float], main: str) -> str:
    """`accuracy 0.8123  f1 0.7610 …`, the headline first."""
    order = [main, *(name for name in scores if name != main)]
    return "  ".join(f"{name} {scores[name]:.4f}" for name in order if name in scores)


class Portion:
    """Progress of work whose end is known as a share only: `portion(0.25, 8_000_000)` means a quarter is behind us.

    What was there before (no characters) does not count for the pace.
    """

    def __init__(self, name: str, quiet: bool = False, every: float = 10.0):
        self.name, self.quiet, self.every = name, quiet, every
        self.share = self.before = 0.0
        self.characters = 0
        self.begin = self.said = time.monotonic()
        self.bar: Any = None
        self.task: Any = None

    def __enter__(self) -> "Portion":
        return self

    def open(self) -> None:
        """The bar, when there is something to show: often the work was done before."""
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

        columns = [TextColumn("{task.description}"), BarColumn(), TaskProgressColumn()]
        self.bar = Progress(*columns, TextColumn("{task.fields[now]}"), console=Console(stderr=True))
        self.bar.start()
        self.task = self.bar.add_task(self.name, total=1.0, now="")

    def __call__(self, share: float | None, characters: int) -> None:
        """So much is done; None: nobody knows how much there is."""
        if self.bar is None and not self.quiet and sys.stderr.isatty():
            self.open()
        self.share = max(self.share, share or 0.0)
        self.characters += characters
        if not characters:
            self.before, self.begin = self.share, time.monotonic()
        if self.bar is not None:
            self.bar.update(self.task, completed=self.share, now=self.words())
        elif not self.quiet and time.monotonic() - self.said >= self.every:
            self.said = time.monotonic()
            print(f"{self.name}  {self.share:.0%}  {self.words()}", file=sys.stderr, flush=True)

    def words(self) -> str:
        """Characters, pace, time left."""
        seconds = max(time.monotonic() - self.begin, 1e-9)
        done = self.share - self.before
        left = f"  {duration(seconds / done * (1 - self.share))} left" if done > 0 else ""
        return f"{self.characters / 1e6:,.1f} M characters  {self.characters / seconds / 1e6:.2f} M/s{left}"

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()


class Counting:
    """`with Counting("glue/rte:dev", 277) as tick:` a bar or lines for work that is counted in rows; `tick(8)`."""

    def __init__(self, name: str, total: int, quiet: bool = False, every: float = 10.0):
        self.name, self.total, self.quiet, self.every = name, total, quiet, every
        self.done = 0
        self.bar: Any = None
        self.task: Any = None
        self.begin = self.said = time.monotonic()

    def __enter__(self) -> Callable[[int], None]:
        if not self.quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import Progress

            self.bar = Progress(console=Console(stderr=True), transient=True)
            self.bar.start()
            self.task = self.bar.add_task(self.name, total=self.total)
        return self.tick

    def tick(self, rows: int) -> None:
        """So many rows more."""
        self.done += rows
        if self.bar is not None:
            self.bar.update(self.task, completed=self.done)
        elif not self.quiet and time.monotonic() - self.said >= self.every:
            self.said = time.monotonic()
            left = (self.said - self.begin) / self.done * (self.total - self.done)
            print(f"{self.name}  {self.done:,}/{self.total:,}  {duration(left)} left", file=sys.stderr, flush=True)

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()
