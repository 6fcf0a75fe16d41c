"""Follow runs and sweeps while they train: progress, time left, scores, loss, failed runs.

At a terminal it refreshes a table until no run is working (Ctrl-C ends the watch, not the runs); in a pipe it prints
one line for each change. It reads files only, so runs of other machines on a shared disk are shown too.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from encodery.cli.parsing import Parser

if TYPE_CHECKING:
    from encodery.report.watch import Seen

WIDTH = 12  # of a bar
COLOURS = {"running": "cyan", "done": "green", "failed": "red", "timeout": "red", "oom": "red", "damaged": "red"}


def arguments(parser: Parser) -> None:
    parser.add_argument("folders", nargs="+", metavar="DIR", help="run directories, sweeps, or folders above them")
    parser.add_argument("--every", type=float, metavar="S", help="seconds between updates; default 2, in a pipe 10")
    parser.add_argument("--once", action="store_true", help="print the current state and exit")
    parser.shared(
        "--format",
        help="md, csv, json: print one table and exit; rich: the table that refreshes itself, also in a pipe",
    )
    parser.examples(
        "encodery watch runs/",
        "encodery watch runs/freelb --every 5",
        "encodery watch runs/ --once",
        "encodery watch runs/rte | tee watch.log",
        "encodery watch runs/ --format json",
    )


def run(args: argparse.Namespace, rest: list[str]) -> int:
    from encodery.errors import UserError
    from encodery.report.watch import Watch

    if args.every is not None and args.every <= 0:
        raise UserError("--every: must be above 0 seconds")
    watch = Watch(args.folders)
    if args.format in ("md", "csv", "json"):
        from encodery.cli.print_table import show_records

        show_records({"runs": [record(one) for one in watch.look()]}, args.format)
        return 0
    try:
        _live(watch, args) if args.format == "rich" or sys.stdout.isatty() else _lines(watch, args)
    except KeyboardInterrupt:  # the person has seen enough
        print(file=sys.stderr)
    args.next = f"encodery table {' '.join(args.folders)}, encodery report {' '.join(args.folders)}"
    return 0


def record(run: "Seen") -> dict[str, Any]:
    """A run as data; `left` is in seconds."""
    return {
        "run": run.name, "state": run.state, "left": run.left, "score": run.score, "step": run.step,
        "steps": run.steps, "loss": run.loss, "tokens/s": run.speed, "rate": run.rate, "why": run.why,
    }  # fmt: skip


def _over(seen: "Sequence[Seen]", once: bool) -> bool:
    from encodery.report.watch import LIVE

    return once or (bool(seen) and not any(one.state in LIVE for one in seen))


def _lines(watch: Any, args: argparse.Namespace) -> None:
    """A line for each run that is not as it was, and how many there are of each state."""
    import time

    from encodery.report.watch import counted

    before: dict[Any, Any] = {}
    while True:
        seen = watch.look()
        changed = [one for one in seen if before.get(one.path) != (one.state, one.step, one.score, one.why)]
        before = {one.path: (one.state, one.step, one.score, one.why) for one in seen}
        for one in changed:
            print(plain_line(one))
        if changed or not seen:
            print(counted(seen) + _all_left(seen), flush=True)
        if _over(seen, args.once):
            return
        time.sleep(args.every or 10.0)


def plain_line(run: "Seen") -> str:
    """`running  rte-1  120/390  2:30 left  dev accuracy 0.61  loss 0.512  rate 1.8e-05  5,210 tokens/s`."""
    from encodery.core.progress import duration

    words = [f"{run.state:8}", run.name, _steps(run), f"{duration(run.left)} left" if run.left is not None else ""]
    words += [run.score, run.why]
    words += [f"loss {run.loss:.4f}"] if run.loss is not None else []
    words += [f"rate {run.rate:.1e}"] if run.rate is not None and run.state == "running" else []
    words += [f"{run.speed:,.0f} tokens/s"] if run.speed and run.state == "running" else []
    return "  ".join(word for word in words if word)


def _steps(one: "Seen") -> str:
    return (f"{one.step}/{one.steps}" if one.steps else str(one.step)) if one.step else ""


def _all_left(seen: "Sequence[Seen]") -> str:
    from encodery.core.progress import duration
    from encodery.report.watch import time_left

    left = time_left(seen)
    return f"; about {duration(left)} left" if left is not None else ""


def _live(watch: Any, args: argparse.Namespace) -> None:
    import time

    from rich.console import Console
    from rich.live import Live

    console = Console()
    seen = watch.look()
    with Live(table(seen, *console.size), console=console, auto_refresh=False) as live:
        while not _over(seen, args.once):
            time.sleep(args.every or 2.0)
            seen = watch.look()
            live.update(table(seen, *console.size), refresh=True)


# Columns, the most important first: where the terminal is narrow the last ones are left out.
COLUMNS = ("run", "state", "left", "score", "progress", "step", "loss", "tokens/s", "rate")
RIGHT = ("left", "step", "loss", "tokens/s")
LEAST = {"run": 12, "score": 10}  # characters that these are cut down to, before a column is left out


def table(seen: "Sequence[Seen]", width: int, height: int) -> Any:
    """Counts and time left, what failed and why, then as many runs and columns as fit."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from encodery.report.watch import BAD, counted

    bad = [one for one in seen if one.state in (*BAD, "queued") and one.why][:5]
    most = max(height - 5 - len(bad), 3)
    head = Text(counted(seen) + _all_left(seen), style="bold")
    for one in bad:
        head.append(f"\n{one.name}: {one.why}", style="red" if one.state in BAD else "yellow")
    rows = [_cells(one) for one in seen[:most]]
    drawn = Table(box=None, pad_edge=False)
    names = fitting(rows, width)
    for name in names:
        drawn.add_column(
            name, no_wrap=True, overflow="ellipsis", justify="right" if name in RIGHT else "left",
            min_width=LEAST.get(name),
        )  # fmt: skip
    for row in rows:
        drawn.add_row(*(row[name] for name in names))
    return Group(head, drawn, *([Text(f"… and {len(seen) - most} more")] if len(seen) > most else []))


def fitting(rows: "Sequence[dict[str, Any]]", width: int) -> list[str]:
    """The columns that fit; one that is empty in all rows is left out."""
    columns: list[str] = []
    for name in COLUMNS:
        sizes = [WIDTH if name == "progress" and row[name] else len(row[name]) for row in rows]
        if not any(sizes) and name != "run":
            continue
        need = max(len(name), LEAST.get(name, max(sizes))) + 1
        if need > width and columns:
            break
        width -= need
        columns.append(name)
    return columns


def _cells(run: "Seen") -> dict[str, Any]:
    from rich.progress_bar import ProgressBar
    from rich.text import Text

    from encodery.core.progress import duration

    return {
        "run": Text(run.name),
        "state": Text(run.state, style=COLOURS.get(run.state, "")),
        "left": "" if run.left is None else duration(run.left),
        "score": Text(run.score),
        "progress": "" if run.share is None else ProgressBar(total=1.0, completed=run.share, width=WIDTH),
        "step": _steps(run),
        "loss": "" if run.loss is None else f"{run.loss:.4f}",
        "tokens/s": f"{run.speed:,.0f}" if run.speed and run.state == "running" else "",
        "rate": "" if run.rate is None else f"{run.rate:.1e}",
    }
