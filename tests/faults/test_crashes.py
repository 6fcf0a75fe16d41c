"""A process that dies at each of its file operations, with whole and with torn files: the next one ends the same."""

import itertools
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from encodery.inference.classifier import open_classifier
from encodery.inference.evaluate import evaluate, keep_in_run
from encodery.inference.task_argument import resolve_split
from encodery.runs.directory import RunDir
from tests.toolbox.fault_counts import Tally
from tests.toolbox.faults import command, disk_full, in_child
from tests.toolbox.runs import metrics_of, run, settings

# What changes a disk or makes it keep a change. Writing to a buffer does not; its bytes are there before the sync.
CHANGES = {"write", "pwrite", "fsync", "rename", "replace", "mkdir", "unlink", "rmdir", "truncate", "ftruncate"}
DEAD = 77
CASES = 40  # of a training: each k-th operation, from another one for torn files than for whole ones
SHORT = {"max_steps": 3, "save": "1 steps", "batch_size": 8, "evaluate": "2 steps"}


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A training of three steps with a cache of its own, which is killed too."""
    monkeypatch.setenv("ENCODERY_CACHE", str(tmp_path / "cache"))
    return settings(tmp_path, rows=24, dev=8, train=SHORT)


def result(folder: Path) -> tuple[bytes, list[dict[str, Any]], dict[str, Any], list[str]]:
    """What a person keeps of a run: weights, losses, scores, and the names of all files."""
    one = RunDir(folder)
    assert one.is_done
    assert one.problem() is None
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    return (one.model / "model.safetensors").read_bytes(), metrics_of(one), one.read_scores(), names


class Disk:
    """Knows what of the files below some folders is safe on the disk: what was there before, and what was synced."""

    def __init__(self, *roots: Path) -> None:
        self.roots = roots
        self.safe = {found.st_ino: (found.st_size, found.st_mtime_ns) for found in map(os.stat, self.files())}

    def files(self) -> list[Path]:
        return [path for root in self.roots for path in root.rglob("*") if path.is_file() and not path.is_symlink()]

    def note(self) -> None:
        """Everything that a process of ours has open was just synced; files that others open are not ours."""
        for name in os.listdir("/proc/self/fd"):
            try:
                found = os.fstat(int(name))
            except OSError:  # the handle of the listing itself
                continue
            self.safe[found.st_ino] = found.st_size, found.st_mtime_ns

    def tear(self) -> None:
        """Of what was not synced half the new bytes are lost, as in a power cut."""
        for path in self.files():
            found = os.stat(path)
            size, changed = self.safe.get(found.st_ino, (0, 0))
            if (found.st_size, found.st_mtime_ns) != (size, changed):
                os.truncate(path, (min(size, found.st_size) + found.st_size) // 2)


def changes(called: Any) -> bool:
    """Whether a call of C code is one of the system that changes a disk."""
    return called.__name__ in CHANGES and called.__module__ == os.open.__module__


def count(action: Callable[[], object], folder: Path) -> int:
    """How many changes of the disk an undisturbed process makes."""
    counter = itertools.count()

    def work() -> None:
        sys.setprofile(lambda frame, event, called: event == "c_call" and changes(called) and next(counter))  # type: ignore[arg-type, func-returns-value]
        action()
        sys.setprofile(None)
        (folder / "counted").write_text(str(next(counter)))

    assert in_child(work) == 0
    return int((folder / "counted").read_text())


def spread(total: int, start: int) -> range:
    """At most so many numbers below the total, evenly spread."""
    step = -(-total // CASES)
    return range(start % step, total, step)


def dies(number: int, action: Callable[[], object], disk: Disk | None = None) -> bool:
    """Do it in a process that dies at its n-th change of the disk; with a disk, unsynced files are torn then."""
    counter = itertools.count()

    def watch(frame: FrameType, event: str, called: Any) -> None:
        if event == "c_return" and disk is not None and called.__name__ == "fsync":
            disk.note()
        if event == "c_call" and changes(called) and next(counter) == number:
            sys.setprofile(None)
            if disk is not None:
                disk.tear()
            os._exit(DEAD)

    def work() -> None:
        sys.setprofile(watch)
        try:
            action()
        finally:
            sys.setprofile(None)

    code = in_child(work)
    assert code in (0, DEAD), code
    return code == DEAD


@pytest.mark.timeout(900)
@pytest.mark.parametrize("torn", [False, True], ids=["whole", "torn"])
def test_a_training_that_dies_at_any_change_of_the_disk_ends_the_same(
    tree: dict[str, Any], tmp_path: Path, tally: Tally, torn: bool
) -> None:
    """File operations all over a short training, tokenising and the last clean-up included."""
    what = "torn writes at" if torn else "kill at"
    out, cache = tmp_path / "out", tmp_path / "cache"
    for folder in (tmp_path / "calm", cache):
        folder.mkdir()
    total = count(lambda: run(tree, tmp_path / "calm"), tmp_path)
    wanted = result(tmp_path / "calm")
    numbers = spread(total, int(torn))
    for number in numbers:
        for folder in (out, cache):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        died = dies(number, lambda: run(tree, out), Disk(out, cache) if torn else None)
        again = in_child(lambda: compare(tree, out, wanted))
        tally.case(f"{what} file operations of a training", died and again == 0, f"operation {number} of {total}")
    assert len(numbers) > CASES // 2


def compare(tree: dict[str, Any], out: Path, wanted: object) -> None:
    """Train on in this process and look at the end."""
    run(tree, out)
    found = result(out)
    for one, other in zip(found, wanted, strict=True):  # type: ignore[call-overload]
        assert one == other, (str(one)[:2000], str(other)[:2000])


@pytest.mark.timeout(900)
def test_a_training_on_a_full_disk_is_a_sentence_and_ends_the_same(
    tree: dict[str, Any], tmp_path: Path, tally: Tally
) -> None:
    """No room at writes all over a training; afterwards there is room again, and the same command completes it."""
    out, cache = tmp_path / "out", tmp_path / "cache"
    for folder in (tmp_path / "calm", cache):
        folder.mkdir()
    total = count(lambda: run(tree, tmp_path / "calm"), tmp_path)
    wanted = result(tmp_path / "calm")
    (tmp_path / "c.yaml").write_text(json.dumps(tree))
    for number in spread(total, 0):
        for folder in (out, cache):
            shutil.rmtree(folder, ignore_errors=True)
        ended = command(["train", "c.yaml", "-o", "out"], tmp_path, before=lambda number=number: no_room_at(number))
        named = ended.code == 0 or (ended.code in (1, 2) and "No space left on device" in ended.output)
        again = in_child(lambda: compare(tree, out, wanted))
        held = named and not ended.is_bug and again == 0
        tally.case("full disk at writes of a training", held, f"{number} of {total}: {again} after {ended}")


def no_room_at(number: int) -> None:
    """In this process: no room at the n-th change of the disk."""
    counter = itertools.count()

    def watch(frame: FrameType, event: str, called: Any) -> None:
        if event == "c_call" and changes(called) and next(counter) == number:
            disk_full()

    sys.setprofile(watch)


@pytest.mark.parametrize("torn", [False, True], ids=["whole", "torn"])
def test_an_evaluation_that_dies_at_any_change_of_the_disk_ends_the_same(
    tree: dict[str, Any], tmp_path: Path, tally: Tally, torn: bool
) -> None:
    """`evaluate` writes into a finished run: the run stays sound, and the next evaluation ends as one alone."""
    finished = run(tree, tmp_path / "run")
    on = resolve_split(f"{finished.task_names()[0]}:dev", None, [finished])[0]
    found = evaluate([open_classifier(finished.path, "cpu")], on)
    whole = RunDir(shutil.copytree(finished.path, tmp_path / "whole"))
    keep_in_run(whole, found)
    what = "torn writes at" if torn else "kill at"
    for number in itertools.count():
        copy = RunDir(shutil.copytree(finished.path, tmp_path / "copy"))
        disk = Disk(copy.path) if torn else None
        died = dies(number, lambda copy=copy: keep_in_run(copy, found), disk)
        sound = copy.problem() is None
        keep_in_run(copy, found)
        equal = copy.problem() is None and json.dumps(copy.read_scores()) == json.dumps(whole.read_scores())
        tally.case(f"{what} file operations of an evaluation", sound and equal, f"operation {number}")
        shutil.rmtree(copy.path)
        if not died:
            break
    assert number > 8
