"""How runs stand while they work, from their files alone: progress, loss, rate, time left, and what failed."""

import itertools
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from encodery.core import slurm
from encodery.errors import UserError
from encodery.report.records import Plans, state_of, state_unseen
from encodery.runs.directory import FoundRun, find_runs, task_and_split

ORDER = ("running", "failed", "timeout", "oom", "damaged", "stopped", "unfinished", "queued", "pruned", "done")
LIVE = ("running", "queued")
IDLE = ("queued", "stopped", "unfinished")  # no process works on it
BAD = ("failed", "timeout", "oom", "damaged")


@dataclass(frozen=True)
class Seen:
    """One run at one look; None where nobody knows."""

    path: Path
    name: str
    state: str
    why: str = ""
    step: int = 0
    steps: int | None = None
    loss: float | None = None
    rate: float | None = None
    speed: float | None = None  # tokens a second
    score: str = ""  # the latest evaluation, or the final one
    left: float | None = None  # seconds
    total: float | None = None  # seconds that all its steps take

    @property
    def share(self) -> float | None:
        """How much of it is done."""
        return min(self.step / self.steps, 1.0) if self.steps else None


class Watch:
    """Looks again and again; what is done is read once."""

    def __init__(self, folders: Sequence[str | Path]):
        self.folders = [Path(folder) for folder in folders]
        self.done: dict[Path, Seen] = {}

    def look(self) -> list[Seen]:
        """All runs at and below the folders, those of a sweep's plan that have not begun too; the busiest first."""
        plans, seen = Plans(), {}
        for item in find_runs(*self.folders):
            plan = plans.of(item.run.path)
            if plan is None or plan.has(item.run.path):
                seen[item.run.path.resolve()] = self.look_at(item)
        for path, _ in plans.planned(self.folders):
            if path.resolve() not in seen:
                seen[path.resolve()] = Seen(path, path.name, *state_unseen(path))
        found = [*seen.values(), *submitted(self.folders, seen)]
        return sorted(with_reasons(found), key=lambda one: (rank(one.state), one.name))

    def look_at(self, item: FoundRun) -> Seen:
        """A run, from memory if it was done at an earlier look."""
        path = item.run.path
        if path not in self.done:
            found = read(item)
            if found.state != "done":
                return found
            self.done[path] = found
        return self.done[path]


def submitted(folders: Sequence[Path], seen: Mapping[Path, Seen]) -> list[Seen]:
    """Trainings that Slurm has not begun: they have no folder yet."""
    waiting = []
    for folder in folders:
        for name, why in slurm.waiting(folder / slurm.FOLDER).items():
            if (folder / name).resolve() not in seen:
                waiting.append(Seen(folder / name, name, "queued", why))
    return waiting


def with_reasons(seen: Sequence[Seen]) -> list[Seen]:
    """Runs whose jobs Slurm has in its queue wait, and Slurm knows why."""
    parents = {one.path.parent: slurm.beside(one.path) for one in seen if one.state in IDLE}
    return [
        replace(run, state="queued", why=parents[run.path.parent][run.name])
        if run.state in IDLE and run.name in parents[run.path.parent]
        else run
        for run in seen
    ]


def rank(state: str) -> int:
    """Where a state stands in the list."""
    return ORDER.index(state) if state in ORDER else len(ORDER)


def read(item: FoundRun) -> Seen:
    """One run as its files are now; a file that is just being written must not end the watch."""
    run = item.run
    if item.problem:
        return Seen(run.path, run.path.name, "damaged", item.problem)
    try:
        info = run.info()
        state, why = state_of(run, info)
        records = run.metrics_file.last()
        final = final_score(run.read_scores()) if state == "done" else ""
    except (UserError, OSError) as error:
        return Seen(run.path, run.path.name, "damaged", str(error))
    return described(run.path, state, why, info.get("steps"), records, final)


def described(
    path: Path, state: str, why: str, steps: int | None, records: Sequence[Mapping[str, Any]], final: str
) -> Seen:
    """What the latest records say."""
    training = [one for one in records if "loss" in one and None not in (one.get("seconds"), one.get("time"))]
    last: Mapping[str, Any] = training[-1] if training else {}
    step = max((int(one["step"]) for one in records), default=0)
    pace = seconds_a_step(training)
    known = pace is not None and steps is not None
    left = pace * max(steps - step, 0) if known and state == "running" else None  # type: ignore[operator]
    total = pace * steps if known else None  # type: ignore[operator]
    speed = last["tokens"] / last["seconds"] if last.get("seconds") and last.get("tokens") is not None else None
    return Seen(
        path, path.name, state, why, step, steps, last.get("loss"), last.get("lr"), speed,
        final or latest_score(records), left, total,
    )  # fmt: skip


def seconds_a_step(training: Sequence[Mapping[str, Any]]) -> float | None:
    """The median pace between records, so that a pause in the middle does not count; else what steps took."""
    pairs = itertools.pairwise(training)
    paces = [(b["time"] - a["time"]) / (b["step"] - a["step"]) for a, b in pairs if b["step"] > a["step"]]
    if paces:
        return float(statistics.median(paces))
    return float(training[-1]["seconds"]) if training else None


def latest_score(records: Sequence[Mapping[str, Any]]) -> str:
    """`dev accuracy 0.8123`: the first metric of the latest evaluation."""
    for record in reversed(records):
        numbers = ((key, value) for key, value in record.items() if isinstance(value, int | float))
        scores = [(key[5:], value) for key, value in numbers if key.startswith("eval.")]
        if scores:
            where = ":".join(str(record[key]) for key in ("task", "split") if key in record)
            return f"{where} {scores[0][0]} {scores[0][1]:.4f}".strip()
    return ""


def final_score(result: Mapping[str, Any]) -> str:
    """The main score of the first data set."""
    for key, scores in (result.get("scores") or {}).items():
        metric = (result.get("main") or {}).get(key)
        if scores and scores.get(metric) is not None:
            return f"{task_and_split(key)[1]} {metric} {scores[metric]:.4f}"
    return ""


def counted(seen: Sequence[Seen]) -> str:
    """`2 running, 1 failed, 3 done`."""
    states = Counter(one.state for one in seen)
    return ", ".join(f"{states[state]} {state}" for state in sorted(states, key=rank)) or "no runs yet"


def time_left(seen: Sequence[Seen]) -> float | None:
    """For everything: the rest of what runs now, and as much for each run that waits as the known ones take."""
    running = [one for one in seen if one.state == "running"]
    queued = sum(one.state == "queued" for one in seen)
    totals = [one.total for one in seen if one.total]
    rests = [one.left for one in running if one.left is not None]
    if not rests and not (queued and totals and running):
        return None
    more = queued * statistics.mean(totals) if totals else 0.0
    return max([*rests, 0.0]) if not queued else (sum(rests) + more) / max(len(running), 1)
