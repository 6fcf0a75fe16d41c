"""Runs of a curve on further data (`on`): every slot of `resources` has a process that scores one run after another.

Only what a run was not scored on yet; a process that ends loses the run that it has in hand, and the next call does it.
"""

import multiprocessing
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path

from encodery.config.schema import Config
from encodery.core.progress import Progress
from encodery.errors import EncoderyError, RunFailed
from encodery.inference.evaluate import evaluate, keep_in_run
from encodery.inference.task_argument import TaskSplit, resolve_split
from encodery.runs.directory import RunDir
from encodery.sweep.slots import Slot

SPAWN = multiprocessing.get_context("spawn")  # a fork would inherit torch's threads


@dataclass(frozen=True)
class FurtherScores:
    """What the runs are scored on, and how."""

    on: Sequence[str]
    config: Config  # that all runs share

    def left(self, path: Path) -> list[TaskSplit]:
        """What a run was not scored on yet."""
        run = RunDir.open(path)
        known = run.all_scores()
        wanted = [one for text in self.on for one in resolve_split(text, self.config.data, [run])]
        return [one for one in wanted if one.key not in known]

    def __call__(self, path: Path) -> list[str]:
        """Score a finished run; what is to be said of it."""
        from encodery.inference.classifier import open_classifier
        from encodery.inference.open_model import pick_device, pick_precision

        left = self.left(path)
        if not left:
            return []
        device = self.config.device
        precision = pick_precision(self.config, pick_device(device))  # as the run's own dev scores were made
        model = open_classifier(path, device, precision=precision)
        said = []
        for asked in left:
            evaluation = evaluate([model], asked)
            keep_in_run(RunDir.open(path), evaluation)
            said += [f"ALARM {path.name} on {asked.key}: {sentence}" for sentence in evaluation.alarms]
        return said

    def of_all(self, paths: Sequence[Path], slots: Sequence[Slot], progress: Progress) -> None:
        """Score all runs, on all slots at once."""
        left = {path: ", ".join(one.key for one in asked) for path in paths if (asked := self.left(path))}
        if len(left) < 2 or len(slots) < 2:
            for path, keys in left.items():
                progress.say(f"{path.name} on {keys}")
                self._say(self(path), progress)
            return
        with self._processes(slots[: len(left)]) as processes:
            self._hand_out(left, processes, progress)

    def _hand_out(
        self, left: Mapping[Path, str], processes: Mapping[Connection, SpawnProcess], progress: Progress
    ) -> None:
        waiting, busy = list(left), dict[Connection, Path]()
        idle = list(processes)
        while waiting or busy:
            while waiting and idle:
                path, free = waiting.pop(0), idle.pop()
                progress.say(f"{path.name} on {left[path]}  [{len(left) - len(waiting)} of {len(left)}]")
                free.send(path)
                busy[free] = path
            for ended in wait(list(busy)):
                assert isinstance(ended, Connection)
                path = busy.pop(ended)
                try:
                    answer = ended.recv()
                except EOFError:
                    processes[ended].join()
                    raise RunFailed(
                        f"{path}: the process that scored it on {left[path]} has ended (exit code "
                        f"{processes[ended].exitcode}; -9 often means too little memory); run the same command again"
                    ) from None
                if isinstance(answer, Exception):
                    raise answer
                self._say(answer, progress)
                idle.append(ended)

    @staticmethod
    def _say(sentences: Sequence[str], progress: Progress) -> None:
        for sentence in sentences:
            progress.say(sentence)

    @contextmanager
    def _processes(self, slots: Sequence[Slot]) -> Iterator[dict[Connection, SpawnProcess]]:
        """One for each slot, which sees nothing but its devices; all end with the block."""
        processes: dict[Connection, SpawnProcess] = {}
        try:
            for slot in slots:
                ours, theirs = SPAWN.Pipe()
                with slot.pinned(), _environment(slot.environment()):
                    process = SPAWN.Process(target=_work, args=(self, theirs), daemon=True)
                    process.start()
                theirs.close()
                processes[ours] = process
            yield processes
        finally:
            for ours, process in processes.items():
                ours.close()  # those that wait end by themselves
                process.terminate()
                process.join()


def _work(scores: FurtherScores, parent: Connection) -> None:
    """Score what the parent names until it is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent has heard it too, and ends this process
    while True:
        try:
            path = parent.recv()
        except EOFError:
            return
        try:
            parent.send(scores(path))
        except EncoderyError as error:
            parent.send(error)


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Processes that are started inside have these variables: some are read while torch is imported."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
