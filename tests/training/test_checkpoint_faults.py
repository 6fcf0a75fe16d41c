"""Checkpoints under kills and full disks: the last good one is always there, and saving goes on."""

import errno
import itertools
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from encodery.errors import RunFailed
from encodery.training import checkpoint
from tests.toolbox.faults import at_call, dies_at, disk_full, fail_with, start_child


def save(folder: Path, step: int, size: int = 100) -> Path:
    """A checkpoint whose every number is its step."""
    return checkpoint.save(folder, step, {"model": {"w": torch.full((size,), float(step))}}, {"step": step})


def newest(folder: Path) -> int:
    """The step of the newest checkpoint; none may have been skipped, and its content must be its own."""
    found, skipped = checkpoint.newest_intact(folder)
    assert skipped == []
    assert found is not None
    assert set(found.tensors("model")["w"].tolist()) == {float(found.state["step"])} == {float(found.step)}
    return found.step


def hidden(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith(".")]


@pytest.mark.slow
def test_R2_killed_at_every_call_of_a_save(tmp_path: Path) -> None:
    seen = []
    for number in itertools.count():
        folder = tmp_path / str(number)
        save(folder, 1)
        died = dies_at(number, lambda folder=folder: save(folder, 2))
        seen.append(newest(folder))
        save(folder, 2)
        assert newest(folder) == 2
        assert hidden(folder) == []
        if not died:
            break
    assert set(seen) == {1, 2}
    assert len(seen) > 15


@pytest.mark.slow
def test_R2_killed_at_every_call_while_a_damaged_one_is_replaced(tmp_path: Path) -> None:
    for number in itertools.count():
        folder = tmp_path / str(number)
        save(folder, 1)
        (save(folder, 2) / "state.json").write_text("{}")
        died = dies_at(number, lambda folder=folder: save(folder, 2))
        found, _ = checkpoint.newest_intact(folder)
        assert found is not None
        save(folder, 2)
        assert newest(folder) == 2
        assert hidden(folder) == []
        if not died:
            break


@pytest.mark.slow
def test_R2_killed_at_every_call_of_a_prune(tmp_path: Path) -> None:
    for number in itertools.count():
        folder = tmp_path / str(number)
        for step in (1, 2, 3):
            save(folder, step)
        died = dies_at(number, lambda folder=folder: checkpoint.prune(folder, {3}))
        assert newest(folder) == 3
        checkpoint.prune(folder, {3})
        assert os.listdir(folder) == ["step-00000003"]
        if not died:
            break


def save_for_ever(folder: Path) -> None:
    for step in itertools.count(1):
        save(folder, step, size=200_000)
        checkpoint.prune(folder, {step, step - 1})
        (folder.parent / "said").write_text(str(step))


@pytest.mark.slow
def test_R2_killed_at_random_instants(tmp_path: Path) -> None:
    random.seed(0)
    for number in range(20):
        folder = tmp_path / str(number) / "checkpoints"
        folder.mkdir(parents=True)
        child = start_child(lambda folder=folder: save_for_ever(folder))
        time.sleep(0.02 + random.random() * 0.06)
        os.kill(child, signal.SIGKILL)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        said = folder.parent / "said"
        step = int(said.read_text() or 0) if said.exists() else 0
        if step or (checkpoint.newest_intact(folder)[0] is not None):
            step = max(step, newest(folder))  # fails if anything was skipped
            assert newest(folder) == step
        save(folder, step + 1)
        assert newest(folder) == step + 1
        assert hidden(folder) == []


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
def test_R5_any_failing_call_is_a_sentence_and_leaves_the_last_good_one(tmp_path: Path, error: int) -> None:
    for number in itertools.count(1):  # the call before makes a folder that is there
        folder = tmp_path / str(number)
        save(folder, 1)
        try:
            with at_call(number, fail_with(error)):
                save(folder, 2)
            break
        except RunFailed as failure:
            message = str(failure)
        assert "step-00000002 could not be saved" in message
        assert os.strerror(error) in message
        assert "MB free" in message
        assert "The last good checkpoint is intact: " in message
        assert hidden(folder) == []
        assert newest(folder) in (1, 2)
        save(folder, 2)
        assert newest(folder) == 2
    assert number > 8


def test_R5_first_checkpoint_that_fails_says_that_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match=r"No space left.*There was no checkpoint before it"), at_call(2, disk_full):
        save(tmp_path / "ckpts", 1)


def test_R7_interrupted_save_leaves_nothing_behind(tmp_path: Path) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    save(tmp_path, 1)
    with pytest.raises(KeyboardInterrupt), at_call(3, interrupt):
        save(tmp_path, 2)
    assert (newest(tmp_path), hidden(tmp_path)) == (1, [])


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)], capture_output=True, text=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"no small disk can be mounted here: {mounted.stderr.strip()}")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_R5_full_disk(small_disk: Path) -> None:
    folder = small_disk / "checkpoints"
    save(folder, 1, size=200_000)
    with pytest.raises(RunFailed, match=r"No space left on device \([01]\.\d MB free.*intact: .*step-00000001"):
        save(folder, 2, size=400_000)
    assert (newest(folder), hidden(folder)) == (1, [])
    subprocess.run(["mount", "-o", "remount,size=8m", str(small_disk)], check=True)
    save(folder, 2, size=400_000)
    assert newest(folder) == 2
