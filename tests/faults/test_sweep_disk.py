"""A sweep that met a full disk: the same command resumes it, as its message says."""

from pathlib import Path
from typing import Any

import pytest

from encodery.cli import main
from encodery.sweep import outcome, state
from encodery.sweep.state import RunStatus
from tests.sweep.runs import command, sweep

NEEDS_ROOM = 'test -e "$ENCODERY_RUN_DIR/../room" || {{ echo "{0}: make room" >&2; exit 1; }}'


@pytest.mark.parametrize("words", ["No space left on device", "Disk quota exceeded"])
def test_R25_the_same_command_goes_on_once_there_is_room(tmp_path: Path, words: str) -> None:
    full, wrong, well = command(NEEDS_ROOM.format(words), "full"), command("exit 4", "wrong"), command("true", "well")
    before = sweep(tmp_path, [full, wrong, well], retries=0)
    assert [before[one.id].state for one in (full, wrong, well)] == ["failed", "failed", "done"]
    again = sweep(tmp_path, [full, wrong, well], retries=0)
    assert [again[one.id].state for one in (full, wrong, well)] == ["failed", "failed", "done"]
    (tmp_path / "room").touch()
    after = sweep(tmp_path, [full, wrong, well], retries=0)
    assert [after[one.id].state for one in (full, wrong, well)] == ["done", "failed", "done"]
    attempts = {one.name.partition("-")[2]: one.attempt for one in state.status(tmp_path)}
    assert attempts == {"full": 3, "wrong": 1, "well": 1}  # other failures are not repeated


def test_R25_the_verb_does_so_too(tmp_path: Path, capsys: Any) -> None:
    lines = tmp_path / "cmds.txt"
    lines.write_text(NEEDS_ROOM.format("No space left on device") + "\n")
    words = ["sweep", "run", "--commands", str(lines), "-o", str(tmp_path / "out"), "--devices", "cpu:1"]
    assert main([*words, "--retries", "0"]) == 1
    (tmp_path / "out" / "room").touch()
    assert main(words) == 0
    assert "1 run failed because the disk was full: it will" in capsys.readouterr().err


def test_R25_only_failures_count() -> None:
    said = "a\nOSError: [Errno 28] No space left on device\nexit code 1"
    assert outcome.lacked_room(RunStatus("x", "x", "failed", error=said))
    assert outcome.lacked_room(RunStatus("x", "x", "failed", error="exit code 1\nonly 3.2 MB are free in /x"))
    assert not outcome.lacked_room(RunStatus("x", "x", "done", error=said))
    assert not outcome.lacked_room(RunStatus("x", "x", "failed", error="exit code 1"))
    assert not outcome.lacked_room(RunStatus("x", "x", "failed"))
