"""Sweeps for tests: trivial commands, a plan that offers them in order, and a scheduler in a process of its own."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from encodery.runs.sweep_spec import Outcome, RunSpec
from encodery.sweep import state
from encodery.sweep.execute import execute
from encodery.sweep.sweep_file import Limits, Resources

ROOT = Path(__file__).parents[2]


class Plan:
    """A fixed list of runs."""

    def __init__(self, specs: Sequence[RunSpec], stop: Callable[[RunSpec, Path], bool] | None = None) -> None:
        self.specs, self.stop = list(specs), stop

    def ready(self, ended: Any, started: Any, free: int) -> list[RunSpec]:
        open_ = (s for s in self.specs if s.id not in started and s.id not in ended)
        return [s for s in open_ if all(n in ended and ended[n].state == "done" for n in s.needs)][:free]

    def exhausted(self, ended: Any, started: Any) -> bool:
        return all(s.id in ended for s in self.specs)

    def should_stop(self, spec: RunSpec, metrics: Path) -> bool:
        return self.stop is not None and self.stop(spec, metrics)


def command(line: str, name: str = "run", **more: Any) -> RunSpec:
    """A spec that runs a shell line."""
    key = hashlib.sha256(f"{line} {name}".encode()).hexdigest()[:8]
    return RunSpec(key, f"{key}-{name}", command=line, **more)


def training(tree: dict[str, Any], name: str = "run") -> RunSpec:
    """A spec that trains."""
    key = hashlib.sha256(f"{json.dumps(tree)} {name}".encode()).hexdigest()[:8]
    return RunSpec(key, f"{key}-{name}", config=tree)


def sweep(folder: Path, specs: Sequence[RunSpec], devices: str = "cpu:2", **limits: Any) -> dict[str, Outcome]:
    """Execute here; how each run of the plan ended."""
    resources = Resources(devices=devices)
    ended = {o.id: o for o in execute(folder, Plan(specs), resources, Limits(**{"grace": "2s", **limits}))}
    return {spec.id: ended[spec.id] for spec in specs}


def states(folder: Path) -> dict[str, str]:
    """State of each run by the readable part of its name."""
    return {one.name[9:]: one.state for one in state.status(folder)}


def start_sweep(
    folder: Path, specs: Sequence[RunSpec], devices: str = "cpu:2", **limits: Any
) -> "subprocess.Popen[str]":
    """Execute in a process of its own, which prints the states at its end as JSON."""
    job = {"folder": str(folder), "devices": devices, "limits": {"grace": "2s", **limits}}
    text = json.dumps(job | {"specs": [asdict(spec) for spec in specs]})
    words = [sys.executable, "-m", "tests.sweep.runs", text]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(words, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def until(condition: Callable[[], Any], seconds: float = 20.0) -> Any:
    """Wait for something to be true."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.02)
    return found


def ended_states(process: "subprocess.Popen[str]") -> dict[str, str]:
    """What a sweep of `start_sweep` printed."""
    out, _ = process.communicate(timeout=200)
    return dict(json.loads(out))


def kill(process: "subprocess.Popen[str]") -> None:
    """kill -9."""
    process.send_signal(signal.SIGKILL)
    process.communicate()


def main(text: str) -> None:
    job = json.loads(text)
    specs = [RunSpec(**{**spec, "needs": tuple(spec["needs"])}) for spec in job["specs"]]
    ended = execute(Path(job["folder"]), Plan(specs), Resources(devices=job["devices"]), Limits(**job["limits"]))
    print(json.dumps({outcome.id: outcome.state for outcome in ended}))


if __name__ == "__main__":
    main(sys.argv[1])
