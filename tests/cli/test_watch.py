"""How runs stand, from their files: a table at a terminal, lines in a pipe."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from encodery.cli import watch as verb
from encodery.report.watch import Watch, counted, seconds_a_step, time_left
from encodery.runs.directory import RunDir
from tests.report import runs


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A sweep of four: one done, one failed, one at work (this process), one not begun."""
    runs.run(tmp_path / "a-done", 0.75)
    runs.run(tmp_path / "b-failed", None, state="failed", seed=2)
    at_work = RunDir(runs.run(tmp_path / "c-running", None, seed=3))
    at_work.update_info(steps=100)
    times = [1000.0, 1010.0, 1020.0, 5000.0, 5010.0]  # it was stopped for an hour
    for step, time in zip((10, 20, 30, 40, 50), times, strict=True):
        at_work.metrics_file.append(
            {"step": step, "time": time, "loss": 1 / step, "lr": 2e-5, "tokens": 500, "seconds": 0.5}
        )
    at_work.metrics_file.append({"step": 50, "time": 5011.0, "split": "dev", "eval.accuracy": 0.5})
    names = ["a-done", "b-failed", "c-running", "d-queued"]
    plan = [{"id": name, "name": name, "config": runs.tree()} for name in names]
    (tmp_path / "plan.json").write_text(json.dumps({"runs": plan}))
    return tmp_path


def test_one_look_sees_everything(folder):
    with RunDir(folder / "c-running").lock():
        seen = Watch([folder]).look()
    assert [one.state for one in seen] == ["running", "failed", "queued", "done"]
    busy = seen[0]
    assert (busy.step, busy.steps, busy.loss, busy.rate, busy.speed) == (50, 100, 0.02, 2e-5, 1000)
    assert busy.score == "dev accuracy 0.5000"
    assert busy.left == pytest.approx(50 * 1.0)  # a second a step: the hour in between does not count
    assert seen[1].why == "it was failed"
    assert seen[3].score == "dev accuracy 0.7500"
    assert counted(seen) == "1 running, 1 failed, 1 queued, 1 done"
    assert time_left(seen) == pytest.approx(50 + 100)  # the rest, and a whole run that waits


def test_a_line_that_is_being_written_does_not_count(folder):
    path = folder / "c-running" / "metrics.jsonl"
    with open(path, "ab") as stream:
        stream.write(b'{"step": 60, "lo')
    assert next(one for one in Watch([folder]).look() if one.name == "c-running").step == 50
    path.write_bytes(b"nonsense\n")
    assert next(one for one in Watch([folder]).look() if one.name == "c-running").state == "damaged"


def test_the_pace_of_one_record_is_that_of_its_steps():
    assert seconds_a_step([]) is None
    assert seconds_a_step([{"step": 10, "time": 5.0, "seconds": 0.25}]) == 0.25


def test_in_a_pipe_only_changes_are_told(folder, encodery, monkeypatch):
    looks = []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 2:
            RunDir(folder / "c-running").metrics_file.append(
                {"step": 60, "time": 5020.0, "loss": 0.01, "tokens": 1, "seconds": 1}
            )
        if len(looks) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", sleep)
    said = encodery("watch", folder)
    assert said.code == 0
    assert looks == [10.0] * 3
    lines = said.out.splitlines()
    assert len(lines) == 5 + 2  # four runs and their count, nothing, one run and the count
    assert lines[5].split() == ["unfinished", "c-running", "60/100", "dev", "accuracy", "0.5000", "loss", "0.0100"]


def test_the_table_fits_and_says_what_failed(folder):
    from rich.console import Console

    console = Console(width=140, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    one = Watch([folder]).look()
    seen = [*one, *(replace(one[-1], name=f"r{i:02d}") for i in range(30))]
    console.print(verb.table(seen, 140, height=12))
    text = console.export_text()
    assert "b-failed: it was failed" in text
    assert "… and 28 more" in text
    assert len(text.splitlines()) <= 12


def test_once_and_refusals(folder, encodery):
    said = encodery("watch", folder, "--once")
    assert "1 failed, 1 unfinished, 1 queued, 1 done" in said.out
    assert encodery("watch", folder / "nowhere").code == 2
    assert encodery("watch", folder, "--every", "0").code == 2


def test_one_look_as_a_table_or_data(folder, encodery):
    with RunDir(folder / "c-running").lock():
        told = json.loads(encodery("watch", folder, "--format", "json").out)
        assert "| c-running | running |" in encodery("watch", folder, "--format", "md").out
    assert [(one["run"], one["state"]) for one in told][:2] == [("c-running", "running"), ("b-failed", "failed")]
    assert (told[0]["step"], told[0]["steps"], told[0]["loss"], told[0]["left"]) == (50, 100, 0.02, pytest.approx(50))
    assert told[1]["why"] == "it was failed"
    lines = encodery("watch", folder, "--format", "csv").out.splitlines()
    assert lines[0].startswith("run,state,left,score")
    assert len(lines) == 5
