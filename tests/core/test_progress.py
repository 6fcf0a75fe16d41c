"""Bars at a terminal, plain lines in a pipe, nothing when quiet."""

import io
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from encodery.core.progress import Counting, Portion, Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def train(progress: Progress) -> None:
    progress.start("glue/rte", 4, 2)
    for step in (3, 4):
        report: Any = SimpleNamespace(step=step, tokens=1000, seconds=0.5, rate=1e-3)
        progress.step(report, 0.25)
    progress.say("saved")
    progress.stop()


def test_training_in_a_pipe_says_its_first_and_its_last_step(capsys: pytest.CaptureFixture[str]) -> None:
    train(Progress(every=1000))
    lines = capsys.readouterr().err.splitlines()
    assert lines[-2] == "step 4/4  loss 0.2500  rate 1.00e-03  2,000 tokens/s  0 s left"
    assert lines[-1] == "saved"
    train(Progress(quiet=True))
    assert capsys.readouterr().err == ""


def test_a_long_training_is_told_once_how_to_be_faster(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    for total, times in ((2000, 1), (200, 0)):
        progress = Progress(every=1000)
        progress.tip = "tip: another way is faster"
        progress.start("glue/rte", total, 0)
        for step in range(1, 40):
            now += 1.0
            report: Any = SimpleNamespace(step=step, tokens=1000, seconds=1.0, rate=1e-3)
            progress.step(report, 0.25)
        assert capsys.readouterr().err.count("tip: another way is faster") == times


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys, "stderr", Terminal())
    train(Progress())
    with Portion("corpus") as portion:
        portion(0.25, 8_000_000)
    with Counting("glue/rte:dev", 10) as tick:
        tick(4)
        assert tick.bar is not None
    assert tick.bar is None
    text = sys.stderr.getvalue()
    for part in ("glue/rte", "4/4", "2,000 tokens/s", "saved", "corpus", "25%", "8.0 M characters", "glue/rte:dev"):
        assert part in text, part


def test_a_share_in_a_pipe_counts_only_what_was_done_now(capsys: pytest.CaptureFixture[str]) -> None:
    with Portion("corpus", every=0) as portion:
        portion(0.5, 0)  # was there before
        portion(1.0, 2_000_000)
    assert capsys.readouterr().err.splitlines()[-1].startswith("corpus  100%  2.0 M characters")
