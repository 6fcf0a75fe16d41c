"""What a sweep hands to whoever executes it: run specs, how they ended, and a source of runs that may start now."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

State = Literal["queued", "running", "done", "failed", "stopped", "timeout", "oom", "pruned"]


@dataclass(frozen=True)
class RunSpec:
    """One run, ready to be started anywhere: `encodery train` with a complete config, or somebody's own command."""

    id: str  # the first 8 hex digits of the hash of its content
    name: str  # its folder in the sweep: the id and what is particular about it, readable
    config: Mapping[str, Any] | None = None  # complete and resolved
    command: str | None = None  # a shell line, where config is None
    axes: Mapping[str, Any] = field(default_factory=dict)  # what varies in this sweep, by dotted key, the seed included
    variant: str | None = None
    stage: str = "main"
    needs: tuple[str, ...] = ()  # ids of runs that must be done before
    allow_code: bool = False  # code of run directories may run


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    id: str
    state: State
    score: float | None = None  # the sweep's metric, where the run is done
    error: str | None = None


class Source(Protocol):
    """Where the next runs come from: a fixed plan, or a search that learns from what has ended."""

    def ready(self, ended: Mapping[str, Outcome], started: Collection[str], free: int) -> list[RunSpec]:
        """Up to `free` runs that may start now."""

    def exhausted(self, ended: Mapping[str, Outcome], started: Collection[str]) -> bool:
        """Whether nothing will ever become ready any more."""

    def should_stop(self, spec: RunSpec, metrics: Path) -> bool:
        """Whether a running run is not worth going on (early stopping), judged by its metrics.jsonl."""
