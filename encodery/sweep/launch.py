"""Starts a run in a slot: a warm worker, a fresh process, or a shell for somebody's own command."""

import copy
import secrets
import socket
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any

from encodery.core import files, process, yaml
from encodery.core.files import check_name
from encodery.runs.sweep_spec import RunSpec
from encodery.sweep import processes, state
from encodery.sweep.processes import Child
from encodery.sweep.slots import Slot
from encodery.sweep.state import RunStatus
from encodery.sweep.warm_worker import Worker


class Launcher:
    """Knows how runs are started in a sweep's folder; keeps the warm workers."""

    def __init__(self, folder: Path, warm: bool = True) -> None:
        self.folder, self.warm = folder, warm
        self.workers: dict[int, Worker] = {}

    def start(self, spec: RunSpec, before: RunStatus | None, slot: Slot) -> tuple[RunStatus, Child]:
        """The next attempt of a run whose claim we hold."""
        run = state.run_path(self.folder, spec.name)
        own = {worker.token for worker in self.workers.values()}
        if before is not None and before.here and before.token not in own:
            processes.clear(before.token)
        status = self._status(spec, before, slot)
        if status.attempt > 1:
            state.put_log_aside(run)
        state.write_spec(self.folder, spec)
        state.write(self.folder, status)  # first: if we die in between, the token still finds the process
        started = self._process(spec, status, slot, run)
        status = replace(status, pid=started.pid, mark=process.start_mark(started.pid))
        state.write(self.folder, status)
        return status, started

    def _status(self, spec: RunSpec, before: RunStatus | None, slot: Slot) -> RunStatus:
        """What stands in status.json while it runs."""
        before = before or RunStatus(spec.id, spec.name, "queued")
        worker = self._worker(slot) if self._is_warm(spec, slot) else None
        return RunStatus(
            spec.id, spec.name, "running", attempt=before.attempt + 1, failures=before.failures,
            host=socket.gethostname(), boot=process.boot_id(), slot=slot.number, device=slot.label,
            token=worker.token if worker else secrets.token_hex(8), started=time.time(), changed=before.changed,
        )  # fmt: skip

    def _process(self, spec: RunSpec, status: RunStatus, slot: Slot, run: Path) -> Child:
        if spec.command is not None:
            return processes.start_command(self.folder, spec, slot, status.attempt, status.token)
        config = write_config(self.folder, spec, slot, status.changed)
        changed = bool(status.changed)
        if not self._is_warm(spec, slot):
            code = spec.allow_code
            return processes.start_train(config.resolve(), run.resolve(), slot, status.token, changed, code)
        worker = self._worker(slot) or Worker(slot, status.token, run / "log.txt")
        self.workers[slot.number] = worker
        return worker.begin(config.resolve(), run.resolve(), changed, spec.allow_code)

    def _is_warm(self, spec: RunSpec, slot: Slot) -> bool:
        return self.warm and slot.kind == "cpu" and spec.command is None

    def _worker(self, slot: Slot) -> Worker | None:
        """The slot's worker, if it can take another run."""
        worker = self.workers.get(slot.number)
        if worker is not None and not worker.usable:
            worker.dismiss()
            del self.workers[slot.number]
            return None
        return worker

    def close(self) -> None:
        """Send the idle workers home."""
        for worker in self.workers.values():
            worker.dismiss()
        for worker in self.workers.values():
            try:
                worker.popen.wait(timeout=10)
            except TimeoutExpired:
                worker.popen.kill()
                worker.popen.wait()
        self.workers = {}


def write_config(folder: Path, spec: RunSpec, slot: Slot, changed: Mapping[str, Any]) -> Path:
    """The config file of a run, as `encodery train` reads it: the spec's, in this slot, with what had to change."""
    tree = copy.deepcopy(dict(spec.config or {}))
    if slot.kind == "cpu":  # the slot was reserved with these cores
        tree |= {"device": "cpu", "threads": slot.threads}
    for key, value in changed.items():
        section, _, name = key.partition(".")
        tree[section] = {**tree.get(section, {}), name: value}
    path = state.hidden(folder) / f"{check_name(spec.name)}.yaml"
    files.write_atomic(path, yaml.write(tree))
    return path
