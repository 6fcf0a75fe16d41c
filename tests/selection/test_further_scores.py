"""Runs of a curve on further data, in several processes: equal to one after the other, and no error is lost."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from encodery.config import load
from encodery.core.progress import Progress
from encodery.errors import RunFailed, UserError
from encodery.runs.directory import RunDir
from encodery.selection.further_scores import FurtherScores
from encodery.sweep.slots import Slot, find_slots
from encodery.sweep.sweep_file import Resources

TWO = Resources(devices="cpu:2", threads=1)


@pytest.fixture
def runs(trained: Any, tmp_path: Path) -> list[Path]:
    return [Path(shutil.copytree(trained("pair"), tmp_path / name)) for name in "abc"]


def scores_of(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = RunDir.open(path).evaluations()["toy/hans:dev"]["scores"]
    return found


@pytest.mark.slow(8)
def test_processes_score_as_one_does(runs: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    further = FurtherScores(["toy/hans"], load.load(runs[0]).config)
    further.of_all(runs[:1], [], Progress(quiet=True))
    before = dict(os.environ)
    further.of_all(runs, find_slots(TWO), Progress())
    assert dict(os.environ) == before
    assert [scores_of(path) for path in runs] == [scores_of(runs[0])] * 3
    said = capsys.readouterr().err.splitlines()
    handed = [line for line in said if "toy/hans:dev  [" in line]
    assert [line.split()[0] for line in handed] == ["b", "c"]  # what is scored is not scored again
    assert all(RunDir.open(path).is_done for path in runs)


class Dies(FurtherScores):
    def __call__(self, path: Path) -> list[str]:
        os._exit(7)


class Refuses(FurtherScores):
    def __call__(self, path: Path) -> list[str]:
        raise UserError(f"{path.name} is refused")


@pytest.mark.slow(6)
@pytest.mark.parametrize(("kind", "error", "text"), [(Dies, RunFailed, "exit code 7"), (Refuses, UserError, "refused")])
def test_a_process_that_ends_or_refuses_is_an_error(
    kind: type[FurtherScores], error: type[Exception], text: str, runs: list[Path]
) -> None:
    slots: list[Slot] = find_slots(TWO)
    with pytest.raises(error, match=text):
        kind(["toy/hans"], load.load(runs[0]).config).of_all(runs, slots, Progress(quiet=True))
    assert not RunDir.open(runs[0]).evaluations()
