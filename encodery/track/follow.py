"""Hands the events of many runs on: once, or for as long as they work."""

import os
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from encodery.core.redact import scrub
from encodery.errors import UserError
from encodery.runs.directory import RunDir, find_runs
from encodery.track.base import Feed, Sink
from encodery.track.to_tensorboard import HERE

# Which variable says where a tracker keeps its runs if nothing else does.
DEFAULTS = {"tensorboard": "", "wandb": "WANDB_ENTITY", "mlflow": "MLFLOW_TRACKING_URI", "trackio": "TRACKIO_DIR"}


def opener(tracker: str) -> Callable[..., Sink]:
    """The class in the tracker's file, which imports the tracker when it is made."""
    found: Callable[..., Sink] = import_module(f"encodery.track.to_{tracker}").open_sink
    return found


def destination_of(tracker: str, project: str, where: str | None) -> str:
    """What tells one place from another: the project, and the server, folder or account that it is in."""
    named = where or os.environ.get(DEFAULTS[tracker], "")
    if tracker == "tensorboard":
        named = str(Path(named or HERE).resolve())
    return f"{project} @ {scrub(named)}" if named else project


class Follower:
    """Sends what is new of all runs below some folders; a run's connection stays open while the run works."""

    def __init__(self, folders: Sequence[str | Path], tracker: str, project: str, where: str | None = None):
        self.folders, self.tracker, self.project, self.where = list(folders), tracker, project, where
        self.open, self.destination = opener(tracker), destination_of(tracker, project, where)
        self.feeds: dict[Path, tuple[Feed, Sink]] = {}

    def look(self) -> tuple[int, int, bool]:
        """Send what is new: how many events of how many runs, and whether any of them still works."""
        events, runs, working = 0, 0, False
        for item in find_runs(*self.folders):
            if item.problem:
                continue
            count = self.send_run(item.run)
            events, runs = events + count, runs + bool(count)
            working = working or item.run.holder() is not None
        return events, runs, working

    def send_run(self, run: RunDir) -> int:
        """Send what is new of one run; what ended is closed."""
        path = run.path.resolve()
        if path not in self.feeds:
            feed = Feed(run, self.tracker, self.destination)
            if not feed.waiting:
                return 0
            self.feeds[path] = (feed, self.open(feed.tracked(), self.project, self.where))
        feed, sink = self.feeds[path]
        count = feed.pass_on(sink)
        if run.holder() is None:
            self.close(path)
        return count

    def close(self, path: Path) -> None:
        """End a run's connection and say how the run stands."""
        feed, sink = self.feeds.pop(path)
        ended: Any = feed.run.info().get("ended") or {}
        state = "done" if feed.run.is_done else "running" if feed.run.holder() else ended.get("state", "unfinished")
        sink.close(state)

    def finish(self) -> None:
        """End all that is open."""
        for path in list(self.feeds):
            self.close(path)


def track(
    folders: Sequence[str | Path],
    tracker: str,
    project: str,
    where: str | None = None,
    every: float | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> int:
    """Hand on what the tracker does not have yet; with `every`, again and again until no run works. How many events."""
    if not find_runs(*folders):
        raise UserError(f"{', '.join(map(str, folders))}: there are no runs")
    follower = Follower(folders, tracker, project, where)
    total = 0
    try:
        while True:
            events, runs, working = follower.look()
            total += events
            if events:
                tell(f"{events:,} events of {runs} runs sent to {tracker}")
            if every is None or not working:
                return total
            time.sleep(every)
    finally:
        follower.finish()
