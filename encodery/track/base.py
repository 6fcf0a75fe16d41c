"""What trackers are given: a run's events, each once, whatever was sent before and however often it is asked for.

A hidden file in the run's folder remembers, for each tracker and each place there (project, server, folder), by which
id it knows the run and how many events it has.
"""

import secrets
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from encodery.config.load import flat
from encodery.core import files, yaml
from encodery.runs.directory import RunDir
from encodery.runs.sweep_spec import PLAN

NAME = ".track-{}.json"
ABOUT = ("step", "time", "split")  # of a record: they say when and where, not how much


@dataclass(frozen=True)
class Event:
    """Some numbers at a step."""

    step: int
    time: float  # seconds since 1970
    values: Mapping[str, float]


@dataclass(frozen=True)
class Tracked:
    """A run as a tracker sees it."""

    name: str
    group: str | None  # the sweep, or the folder of its seeds
    config: Mapping[str, Any]  # dotted keys
    id: str  # the tracker's own, the same whenever the run is sent
    is_known: bool  # whether the tracker has it already


@dataclass(frozen=True)
class Memory:
    """What one tracker has of a run in one place."""

    id: str
    sent: int = 0  # records of metrics.jsonl
    final: bool = False  # and the final scores


class Sink(Protocol):
    """Where the events of one run go."""

    @property
    def id(self) -> str:
        """By which the tracker knows the run."""

    def send(self, event: Event) -> None:
        """Hand one event on."""

    def close(self, state: str) -> None:
        """Nothing more comes now; the run is done, failed, or goes on later."""


@dataclass
class Feed:
    """The events of a run that one tracker does not have yet in one place."""

    run: RunDir
    tracker: str
    destination: str = ""
    memory: Memory = field(init=False)
    is_known: bool = field(init=False)

    def __post_init__(self) -> None:
        found = self._places().get(self.destination)
        self.is_known = found is not None
        self.memory = Memory(**found) if found is not None else Memory(secrets.token_hex(8))

    def _places(self) -> dict[str, Any]:
        """What is remembered of each place. Earlier versions knew one: it counts for the place that is asked first."""
        found = files.read_json(self.path) if self.path.is_file() else {}
        return {self.destination: found} if "id" in found else dict(found.get("places", {}))

    @property
    def path(self) -> Path:
        return self.run.path / NAME.format(self.tracker)

    def tracked(self) -> Tracked:
        """The run, for the tracker."""
        tree = yaml.read_text(self.run.config_text(), str(self.run.config)).tree
        return Tracked(self.run.path.resolve().name, group_of(self.run.path), flat(tree), self.memory.id, self.is_known)

    @property
    def waiting(self) -> bool:
        """Whether there may be something to send: a tracker that has all of a finished run is left alone."""
        return not self.memory.final and (self.run.is_done or len(self.run.metrics()) > self.memory.sent)

    def pass_on(self, sink: Sink) -> int:
        """Send what is new, then remember it; how many events. A resumed run repeats records: a count will do."""
        records = self.run.metrics()
        events = [event_of(record) for record in records[self.memory.sent :]]
        finished = self.run.is_done and not self.memory.final
        if finished and (values := final_values(self.run.read_scores())):
            last = max((int(record["step"]) for record in records), default=0)
            events.append(Event(last, (self.run.path / "DONE").stat().st_mtime, values))
        events = [event for event in events if event.values]
        for event in events:
            sink.send(event)
        sent = max(self.memory.sent, len(records))
        self.remember(Memory(sink.id, sent, self.memory.final or finished))
        return len(events)

    def remember(self, memory: Memory) -> None:
        """Keep what the tracker has."""
        if memory != self.memory or not self.path.is_file():
            files.write_json(self.path, {"places": {**self._places(), self.destination: asdict(memory)}})
        self.memory, self.is_known = memory, True


def event_of(record: Mapping[str, Any]) -> Event:
    """A line of metrics.jsonl; nulls (NaN) are left out."""
    split = str(record.get("split") or "eval")
    if "task" in record:  # one of several
        split = f"{str(record['task']).replace('/', '-')}-{split}"
    values = {called(key, split): float(value) for key, value in numbers(record)}
    return Event(int(record["step"]), float(record.get("time", 0.0)), values)


def numbers(record: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for key, value in record.items():
        if key not in ABOUT and isinstance(value, int | float) and not isinstance(value, bool):
            yield key, value


def called(key: str, split: str) -> str:
    """loss → train/loss, eval.accuracy → dev/accuracy, method.norm → method/norm."""
    if key.startswith("eval."):
        return f"{split}/{key[5:]}"
    return key.replace(".", "/", 1) if "." in key else f"train/{key}"


def final_values(result: Mapping[str, Any]) -> dict[str, float]:
    """scores.json: final/glue-rte-dev/accuracy."""
    return {
        f"final/{key.replace('/', '-').replace(':', '-')}/{metric}": float(value)
        for key, scores in result.get("scores", {}).items()
        for metric, value in scores.items()
    }


def group_of(path: Path) -> str | None:
    """The sweep that a run belongs to: the nearest of the two folders above it that has a plan."""
    above = list(path.resolve().parents)[:2]
    return next((folder.name for folder in above if (folder / PLAN).is_file()), None)
