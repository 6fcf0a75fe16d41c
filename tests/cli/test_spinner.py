"""A command that takes a while shows within half a second that it works, and takes the sign away before it prints."""

import io
import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import pytest

from encodery.cli import spinner
from encodery.cli.spinner import CLEAR, Spinner

ROOT = Path(spinner.__file__).parents[2]


@pytest.mark.slow
def test_it_moves_until_something_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(sys, "stdout", terminal)
    with Spinner("train"):
        while "starting" not in terminal.getvalue():
            time.sleep(0.01)
        print("step 1")
        length = len(terminal.getvalue())
        time.sleep(3 * spinner.DELAY)
        assert len(terminal.getvalue()) == length
    assert terminal.getvalue().endswith(f"{CLEAR}step 1\n")
    assert spinner.DELAY < 0.4  # with the start of Python half a second


@pytest.mark.slow
def test_what_is_quick_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(sys, "stderr", terminal)
    with Spinner("tasks"):
        pass
    time.sleep(2 * spinner.DELAY)
    assert terminal.getvalue() == ""


@pytest.mark.slow
def test_at_a_terminal_it_comes_before_torch(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "encodery", "predict", str(tmp_path / "no-such-run"), "--text", "a"]
    child = subprocess.Popen(
        words, stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, "PYTHONPATH": str(ROOT), "RANK": "0"}
    )
    os.close(theirs)
    try:
        first = os.read(ours, 200).decode()
    finally:
        child.kill()
        child.wait()
        os.close(ours)
    assert "encodery predict: starting" in first
