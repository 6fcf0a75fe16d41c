"""What Slurm is asked: with stand-ins for its programs; tests/engines asks a real one."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from encodery.core import slurm
from encodery.core.process import WITH_PARENT, alive
from encodery.errors import UserError
from encodery.report.watch import Watch
from tests.report import runs

pytest.importorskip("submitit")
Programs = Callable[..., None]


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Programs:
    """Slurm's programs as they answer, and no others."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    for name in ("SBATCH_TIMELIMIT", "SBATCH_PARTITION"):
        monkeypatch.delenv(name, raising=False)
    slurm._queue.cache_clear()

    def make(**answers: str) -> None:
        for name, answer in answers.items():
            (folder / name).write_text(f"#!/bin/sh\ncat <<'END'\n{answer}\nEND\n")
            (folder / name).chmod(0o755)
        if (cat := Path("/bin/cat")).exists() and not (folder / "cat").exists():
            (folder / "cat").symlink_to(cat)

    yield make  # type: ignore[misc]
    slurm._queue.cache_clear()


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("90", 90), ("30:00", 30), ("30:01", 31), ("2:00:00", 120), ("1-00:00:00", 1440), ("2-12", 3600),
        ("1-01:30", 1530), ("infinite", None), ("UNLIMITED", None), ("", None),
    ],
)  # fmt: skip
def test_times_as_slurm_writes_them(text: str, minutes: int | None) -> None:
    assert slurm.minutes_of(text) == minutes


def test_a_job_asks_for_what_its_partition_allows(programs: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    programs(sinfo="long*|2-00:00:00\nshort|30:00\nshorter|10:00\nfree|infinite")
    said: list[str] = []
    assert slurm.allowed_minutes(1440, said.append) == 1440
    assert not said
    monkeypatch.setenv("SBATCH_PARTITION", "short")
    assert slurm.allowed_minutes(1440, said.append) == 30
    assert said == ["partition short allows 30 minutes: the job requests these, not 1440 (SBATCH_TIMELIMIT)"]
    monkeypatch.setenv("SBATCH_PARTITION", "short,shorter")
    assert slurm.allowed_minutes(1440, said.append) == 10
    monkeypatch.setenv("SBATCH_PARTITION", "free")
    assert slurm.allowed_minutes(1440, said.append) == 1440
    monkeypatch.setenv("SBATCH_TIMELIMIT", "1:00:00")
    assert slurm.allowed_minutes(1440, said.append) == 60


def test_without_slurm_there_is_a_sentence(programs: Programs) -> None:
    with pytest.raises(UserError, match="no sbatch here"):
        slurm.require()
    assert slurm.require("local").__name__ == "submitit"
    assert slurm.queue() is None
    assert slurm.allowed_minutes(1440, print) == 1440
    programs(sbatch="")
    assert slurm.require().__name__ == "submitit"


def test_why_runs_wait(programs: Programs, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    programs(squeue="7_0|RUNNING|None\n7_1|PENDING|Resources\n9|PENDING|PartitionTimeLimit")
    sweep = tmp_path / "sweep"
    slurm.of_sweep(sweep).mkdir(parents=True)
    runs.run(sweep / "a", 0.75)
    runs.run(sweep / "b", None, state="stopped", seed=2)  # it was queued again
    slurm.remember(slurm.of_sweep(sweep), {"a": "7_0"})
    slurm.remember(slurm.of_sweep(sweep), {"b": "7_1", "c": "8"})
    assert slurm.waiting(slurm.of_sweep(sweep)) == {"b": "Slurm job 7_1 waits: Resources"}
    seen = {one.name: (one.state, one.why) for one in Watch([sweep]).look()}
    assert seen == {"a": ("done", ""), "b": ("queued", "Slurm job 7_1 waits: Resources")}
    (sweep / ".slurm").mkdir()
    slurm.remember(sweep / ".slurm", {"alone": "9"})  # a training of its own: no folder yet
    seen = {one.name: (one.state, one.why) for one in Watch([sweep]).look()}
    assert seen["alone"] == ("queued", "Slurm job 9 waits: PartitionTimeLimit")


def test_a_job_that_slurm_has_forgotten_is_over(programs: Programs, tmp_path: Path) -> None:
    """As on clusters without accounting, where submitit would wait for ever."""

    class SlurmJob(SimpleNamespace):
        job_id = "5"
        paths = SimpleNamespace(result_pickle=tmp_path / "none", stderr=tmp_path / "5.err")

        def done(self) -> bool:
            return False

    long_ago = time.monotonic() - slurm.PATIENCE - 1
    assert not slurm.ended(SlurmJob(), long_ago)  # no answer: it may live
    programs(squeue="5|RUNNING|None")
    slurm._queue.cache_clear()
    assert not slurm.ended(SlurmJob(), long_ago)
    programs(squeue="")
    slurm._queue.cache_clear()
    assert not slurm.ended(SlurmJob(), time.monotonic())
    assert slurm.ended(SlurmJob(), long_ago)
    assert "Slurm job 5 is gone" in slurm.trouble(SlurmJob())


class Work(slurm.Requeued):
    """A job that notes what is asked of it."""

    def __init__(self) -> None:
        self.stops = 0

    def stop(self) -> None:
        self.stops += 1

    def again(self) -> "Work":
        return Work()


@pytest.fixture
def own_handlers() -> Any:
    numbers = (signal.SIGTERM, signal.SIGUSR2)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_signals_of_slurm(programs: Programs, own_handlers: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert threading.current_thread() is threading.main_thread()
    requeued: list[int] = []
    signal.signal(signal.SIGUSR2, lambda number, frame: requeued.append(number))  # in submitit's place
    programs(scontrol="JobId=1 PreemptEligibleTime=2026-01-01T00:00:00 PreemptTime=None")
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    cancelled, preempted, timed = Work(), Work(), Work()
    cancelled.listen()
    os.kill(os.getpid(), signal.SIGTERM)
    assert (cancelled.stops, cancelled.taken, requeued) == (1, False, [])
    signal.signal(signal.SIGUSR2, lambda number, frame: requeued.append(number))
    programs(scontrol="JobId=1 PreemptTime=2026-01-01T00:00:00")
    preempted.listen()
    os.kill(os.getpid(), signal.SIGTERM)
    assert (preempted.stops, preempted.taken, requeued) == (1, True, [signal.SIGUSR2])
    signal.signal(signal.SIGUSR2, lambda number, frame: requeued.append(number))
    timed.listen()
    os.kill(os.getpid(), signal.SIGUSR2)
    os.kill(os.getpid(), signal.SIGTERM)  # Slurm ends the job that is queued again
    assert (timed.stops, timed.taken, len(requeued)) == (1, True, 2)


def test_a_machine_with_nothing_left_to_do_ends_when_slurm_asks() -> None:
    """Else Slurm would wait for its KillWait before the job begins again; and it is no failure."""
    said = "sleep, time.sleep = time.sleep, lambda seconds: (os.write(1, b'up'), sleep(seconds))"
    code = f"import os, time; from encodery.core import slurm; {said}; slurm.Requeued().await_end(60)"
    machine = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert machine.stdout is not None
    assert machine.stdout.read(2) == b"up"
    machine.terminate()
    machine.wait(30)
    assert machine.returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone can")
def test_a_process_ends_with_its_parent() -> None:
    child = "import time; from encodery.core.process import end_with_parent as end; end(); print('up', flush=True)"
    words = f"[sys.executable, '-c', {child + '; time.sleep(60)'!r}]"
    parent = f"import subprocess, sys; p = subprocess.Popen({words}); print(p.pid, flush=True); p.wait()"
    env = {**os.environ, WITH_PARENT: "1"}
    started = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True, env=env)
    assert started.stdout is not None
    pid = int(started.stdout.readline())
    assert started.stdout.readline() == "up\n"
    started.kill()
    started.wait()
    end = time.monotonic() + 10
    while alive(pid) and time.monotonic() < end:
        time.sleep(0.05)
    assert not alive(pid)
