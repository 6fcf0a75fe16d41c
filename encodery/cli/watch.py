"""Watch runs and sweeps while they work: progress, loss, rate, time left, failed runs.

At a terminal a table that renews itself until nothing works any more (Ctrl-C ends the watch, not the runs); in a pipe
one line for each change. Only files are read, so runs of other machines on a shared disk are seen too.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from encodery.cli.parsing import Parser

if TYPE_CHECKING:
    from encodery.report.watching import Seen

WIDTH = 20  # of a bar
COLOURS = {"running": "cyan", "done": "green", "failed": "red", "timeout": "red", "oom": "red", "damaged": "red"}


def arguments(parser: Parser) -> None:
    """What, and how often."""
    parser.add_argument("folders", nargs="+", metavar="DIR", help="run directories, sweeps, or folders above them")
    parser.add_argument("--every", type=float, metavar="S", help="seconds between looks; default 2, in a pipe 10")
    parser.add_argument("--once", action="store_true", help="look once")
    parser.examples(
        "encodery watch runs/",
        "encodery watch runs/freelb --every 5",
        "encodery watch runs/ --once",
        "encodery watch runs/rte | tee watch.log",
    )


def run(args: argparse.Namespace, rest: list[str]) -> int:
    """Look until nothing runs or waits."""
    from encodery.errors import UserError
    from encodery.report.watching import Watch

    if args.every is not None and args.every <= 0:
        raise UserError("--every: more than 0 seconds")
    watch = Watch(args.folders)
    try:
        _live(watch, args) if sys.stdout.isatty() else _lines(watch, args)
    except KeyboardInterrupt:  # the person has seen enough
        print(file=sys.stderr)
    return 0


def _over(seen: "Sequence[Seen]", once: bool) -> bool:
    from encodery.report.watching import LIVE

    return once or (bool(seen) and not any(one.state in LIVE for one in seen))


def _lines(watch: Any, args: argparse.Namespace) -> None:
    """A line for each run that is not as it was, and how many there are of each state."""
    import time

    from encodery.report.watching import counted

    before: dict[Any, Any] = {}
    while True:
        seen = watch.look()
        changed = [one for one in seen if before.get(one.path) != (one.state, one.step, one.score)]
        before = {one.path: (one.state, one.step, one.score) for one in seen}
        for one in changed:
            print(plain_line(one))
        if changed or not seen:
            print(counted(seen) + _all_left(seen), flush=True)
        if _over(seen, args.once):
            return
        time.sleep(args.every or 10.0)


def plain_line(one: "Seen") -> str:
    """`running  rte-1  120/390  loss 0.512  rate 1.8e-05  5,210 tokens/s  dev accuracy 0.61  2:30 left`."""
    from encodery.progress import duration

    words = [f"{one.state:8}", one.name, _steps(one)]
    words += [f"loss {one.loss:.4f}"] if one.loss is not None else []
    words += [f"rate {one.rate:.1e}"] if one.rate is not None and one.state == "running" else []
    words += [f"{one.speed:,.0f} tokens/s"] if one.speed and one.state == "running" else []
    words += [one.score, f"{duration(one.left)} left" if one.left is not None else "", one.why]
    return "  ".join(word for word in words if word)


def _steps(one: "Seen") -> str:
    return (f"{one.step}/{one.steps}" if one.steps else str(one.step)) if one.step else ""


def _all_left(seen: "Sequence[Seen]") -> str:
    from encodery.progress import duration
    from encodery.report.watching import time_left

    left = time_left(seen)
    return f"; about {duration(left)} left" if left is not None else ""


def _live(watch: Any, args: argparse.Namespace) -> None:
    import time

    from rich.console import Console
    from rich.live import Live

    console = Console()
    seen = watch.look()
    with Live(table(seen, console.height), console=console, auto_refresh=False) as live:
        while not _over(seen, args.once):
            time.sleep(args.every or 2.0)
            seen = watch.look()
            live.update(table(seen, console.height), refresh=True)


def table(seen: "Sequence[Seen]", height: int) -> Any:
    """As many rows as fit; what failed says why under the table."""
    from rich.table import Table
    from rich.text import Text

    from encodery.report.watching import BAD, counted

    bad = [one for one in seen if one.state in BAD and one.why][:5]
    most = max(height - 6 - len(bad), 3)
    found = Table(box=None, pad_edge=False, caption_justify="left", caption_style="")
    for name in ("run", "state", "progress", "step", "loss", "rate", "tokens/s", "score", "left"):
        found.add_column(
            name, no_wrap=True, justify="right" if name in ("step", "loss", "tokens/s", "left") else "left"
        )
    for one in seen[:most]:
        found.add_row(*_cells(one))
    lines = [f"… and {len(seen) - most} more"] if len(seen) > most else []
    lines.append(counted(seen) + _all_left(seen))
    said = Text("\n".join(lines))
    for one in bad:
        said.append(f"\n{one.name}: {one.why}", style="red")
    found.caption = said
    return found


def _cells(one: "Seen") -> list[Any]:
    from rich.progress_bar import ProgressBar
    from rich.text import Text

    from encodery.progress import duration

    bar = "" if one.share is None else ProgressBar(total=1.0, completed=one.share, width=WIDTH)
    left = "" if one.left is None else duration(one.left)
    numbers = ["" if one.loss is None else f"{one.loss:.4f}", "" if one.rate is None else f"{one.rate:.1e}"]
    speed = f"{one.speed:,.0f}" if one.speed and one.state == "running" else ""
    state = Text(one.state, style=COLOURS.get(one.state, ""))
    return [Text(one.name), state, bar, _steps(one), *numbers, speed, Text(one.score), left]
