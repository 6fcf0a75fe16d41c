"""Runs of which a part is gone: what is left says whose it is, and what is lost is named."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from encodery.cli import main
from encodery.errors import Stopped, UserError
from encodery.runs.directory import RunDir
from encodery.training import checkpoint
from tests.toolbox.faults import in_child
from tests.toolbox.runs import resolve, run, settings, weights_of

SAVED = {"epochs": 2, "save": "4 steps", "keep_checkpoints": False}


def begun(tree: dict[str, Any], out: Path, steps: int = 5) -> RunDir:
    """A run whose process was killed after some steps."""
    import os

    from encodery.core.progress import Progress
    from encodery.training.loop import StepReport
    from encodery.training.run import train_run

    def die(report: StepReport) -> None:
        if report.step == steps:
            os._exit(9)

    assert in_child(lambda: train_run(resolve(tree), out, progress=Progress(quiet=True), watch=die)) == 9
    assert checkpoint.steps(out / "checkpoints") == {4}
    return RunDir(out)


def equal(a: RunDir, b: RunDir) -> bool:
    one, other = weights_of(a), weights_of(b)
    return all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture
def tree(tmp_path: Path) -> dict[str, Any]:
    return settings(tmp_path, rows=64, dev=16, train=SAVED, seed=1)


@pytest.mark.parametrize("gone", [["run.json"], ["run.json", "config.yaml"]])
def test_R23_without_run_json_another_seed_is_refused(tree: dict[str, Any], tmp_path: Path, gone: list[str]) -> None:
    half = begun(tree, tmp_path / "run")
    for name in gone:
        (half.path / name).unlink()
    other = {**tree, "seed": 2}
    with pytest.raises(UserError, match="made with other settings") as told:
        run(other, half.path)
    assert ("seed.data: 1 there, 2 now" if len(gone) == 1 else "was saved by another run") in str(told.value)
    assert checkpoint.steps(half.checkpoints) == {4}
    again = run(tree, half.path)
    assert equal(again, run(tree, tmp_path / "whole"))
    assert "run.json was missing" in again.info()["notices"][0]["text"]
    assert "resuming at step 4" in again.log_file.read_text()


def test_R23_checkpoints_of_another_run_are_refused(tree: dict[str, Any], tmp_path: Path) -> None:
    mine, foreign = begun(tree, tmp_path / "run"), begun({**tree, "seed": 2}, tmp_path / "other")
    shutil.rmtree(mine.checkpoints)
    shutil.copytree(foreign.checkpoints, mine.checkpoints)
    with pytest.raises(UserError, match="step-00000004 was saved by another run"):
        run(tree, mine.path)
    run(tree, mine.path, allow_change=True)


def test_R23_what_was_allowed_once_is_allowed_when_it_is_resumed(tree: dict[str, Any], tmp_path: Path) -> None:
    """--allow-change, killed before its first own checkpoint: the old checkpoint still counts, without the flag."""
    half = begun(tree, tmp_path / "run")
    changed = {**tree, "optim": {"lr": 1e-3}}

    def stop(_: Any) -> None:
        raise Stopped("as if by a signal")

    with pytest.raises(Stopped):
        run(changed, half.path, allow_change=True, watch=stop)
    assert checkpoint.steps(half.checkpoints) == {4}
    with pytest.raises(UserError, match=r"optim\.lr"):
        run(tree, half.path)
    assert run(changed, half.path).is_done


def test_R23_checkpoints_of_earlier_versions_are_resumed(tree: dict[str, Any], tmp_path: Path) -> None:
    half = begun(tree, tmp_path / "run")
    folder = half.checkpoints / "step-00000004"
    found = checkpoint.load(folder)
    tensors = {group: found.tensors(group) for group in found.groups}
    shutil.rmtree(folder)
    checkpoint.save(half.checkpoints, 4, tensors, {k: v for k, v in found.state.items() if k != checkpoint.RUN})
    again = run(tree, half.path)
    assert "resuming at step 4" in again.log_file.read_text()


@pytest.mark.parametrize("harm", ["gone", "cut", "torn"])
def test_R23_lost_records_are_named(tree: dict[str, Any], tmp_path: Path, capsys: Any, harm: str) -> None:
    half = begun(tree, tmp_path / "run")
    path, data = half.metrics_file.path, half.metrics_file.path.read_bytes()
    lines = data.splitlines(keepends=True)
    left = {"gone": b"", "cut": b"".join(lines[:2]), "torn": b"".join(lines[:2]) + lines[2][:9]}[harm]
    path.write_bytes(left) if left else path.unlink()
    again = run(tree, half.path)
    (notice,) = again.info()["notices"]
    kept = 2 if left else 0
    assert f"{path} has {kept} of the 5 records up to step 4" in notice["text"]
    assert "weights and scores do not depend on them" in again.log_file.read_text()
    assert equal(again, run(tree, tmp_path / "whole"))


def test_R23_an_undisturbed_resume_says_nothing_of_records(tree: dict[str, Any], tmp_path: Path) -> None:
    half = begun(tree, tmp_path / "run")
    again = run(tree, half.path)
    assert "notices" not in again.info()
    assert "records" not in again.log_file.read_text()


def test_R24_checkpoints_that_were_left_behind_DONE_are_removed(tree: dict[str, Any], tmp_path: Path) -> None:
    whole = run({**tree, "train": {**tree["train"], "keep_checkpoints": True}}, tmp_path / "kept")
    kept = checkpoint.steps(whole.checkpoints)
    assert run(tree, whole.path).is_done  # the flag of the run that made them counts, not that of who asks
    assert checkpoint.steps(whole.checkpoints) == kept
    done = run(tree, tmp_path / "run")
    assert not done.checkpoints.exists()
    shutil.copytree(whole.checkpoints, done.checkpoints)
    (next(done.checkpoints.iterdir()) / "state.json").unlink()  # half removed
    run(tree, done.path)
    assert not done.checkpoints.exists()
    assert done.problem() is None


def test_R23_the_command_ends_with_exit_code_2(tree: dict[str, Any], tmp_path: Path, capfd: Any) -> None:
    half = begun(tree, tmp_path / "run")
    (half.path / "run.json").unlink()
    (tmp_path / "config.json").write_text(json.dumps({**tree, "seed": 3}))
    assert main(["train", str(tmp_path / "config.json"), "-o", str(half.path)]) == 2
    assert "seed" in capfd.readouterr().err
