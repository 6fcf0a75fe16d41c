"""R8: one writer per folder; the second is told who is first; the dead do not count."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from encodery.core import lock, process
from encodery.core.lock import Holder, RunLock
from encodery.errors import RunFailed, UserError
from tests.toolbox.faults import at_call, disk_full, in_child, start_child

HOLD = """
import sys, time; from pathlib import Path; from encodery.core.lock import RunLock
RunLock(Path(sys.argv[1])).acquire(); print("held", flush=True); time.sleep(60)
"""
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "PATIENCE", 0.2)


def start_holder(folder: Path) -> subprocess.Popen[str]:
    """Another command that holds the folder until it is killed."""
    child = subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert child.stdout is not None
    assert child.stdout.readline() == "held\n"
    return child


def plant(folder: Path, holder: Holder) -> None:
    (folder / lock.NAME).write_text(json.dumps(asdict(holder)))


def elsewhere() -> Holder:
    return replace(lock.ourselves(), host="another-machine", boot="another-boot")


@pytest.mark.slow
def test_R8_second_command_is_refused_and_told_who_is_first(tmp_path: Path) -> None:
    first = start_holder(tmp_path)
    try:
        with pytest.raises(UserError) as refused, RunLock(tmp_path):
            pass
        found = lock.holder(tmp_path)
    finally:
        first.kill()
        first.wait()
    message = str(refused.value)
    started = time.strftime("%Y-%m-%d %H:%M", time.localtime(time.time() - 2))
    assert f"process {first.pid} on {socket.gethostname()}, started {started[:10]}" in message
    assert found is not None
    assert found.pid == first.pid


@pytest.mark.slow
def test_R8_lock_of_a_killed_process_is_taken_over(tmp_path: Path) -> None:
    first = start_holder(tmp_path)
    first.kill()  # not yet waited for: a zombie is dead too
    with RunLock(tmp_path):
        assert lock.holder(tmp_path) == lock.ourselves()
    first.wait()
    assert lock.holder(tmp_path) is None
    assert os.listdir(tmp_path) == []


@pytest.mark.slow
def test_R8_record_with_a_reused_pid_is_taken_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "_flock", lambda *_: None)  # nothing but the record decides
    plant(tmp_path, replace(lock.ourselves(), pid=os.getppid(), mark="1"))
    with RunLock(tmp_path):
        assert lock.holder(tmp_path) == lock.ourselves()


@pytest.mark.slow
def test_R8_without_flock_the_living_process_is_respected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = start_holder(tmp_path)
    monkeypatch.setattr(lock, "_flock", lambda *_: None)
    with pytest.raises(UserError, match=f"process {first.pid} "), RunLock(tmp_path):
        pass
    first.kill()
    first.wait()
    with RunLock(tmp_path), pytest.raises(UserError, match=f"process {os.getpid()} "), RunLock(tmp_path):
        pass


@pytest.mark.slow
def test_R8_after_a_reboot_the_record_is_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "_flock", lambda *_: None)
    plant(tmp_path, replace(lock.ourselves(), boot="the boot before"))
    with RunLock(tmp_path):
        pass


def test_R8_other_machine_is_respected_while_its_heart_beats(tmp_path: Path) -> None:
    plant(tmp_path, elsewhere())
    with pytest.raises(UserError, match=r"another-machine.*try again in 120 s"), RunLock(tmp_path):
        pass
    assert lock.holder(tmp_path) == elsewhere()
    long_ago = time.time() - lock.STALE - 1
    os.utime(tmp_path / lock.NAME, (long_ago, long_ago))
    assert lock.holder(tmp_path) is None
    with RunLock(tmp_path):
        pass


def test_R8_heart_beats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "BEAT", 0.01)
    with RunLock(tmp_path):
        os.utime(tmp_path / lock.NAME, (0, 0))
        time.sleep(0.1)
        assert (tmp_path / lock.NAME).stat().st_mtime > 1e9


def test_R8_other_container_of_this_machine_counts_as_here() -> None:
    assert replace(lock.ourselves(), host="a-container").here is (process.boot_id() != "")


def test_R8_worker_processes_do_not_keep_the_lock(tmp_path: Path) -> None:
    def hold_fork_die() -> None:
        RunLock(tmp_path).acquire()
        (tmp_path / "worker").write_text(str(start_child(lambda: time.sleep(60))))
        os.kill(os.getpid(), signal.SIGKILL)

    assert in_child(hold_fork_die) == -signal.SIGKILL
    try:
        with RunLock(tmp_path):
            pass
    finally:
        os.kill(int((tmp_path / "worker").read_text()), signal.SIGKILL)


@pytest.mark.slow
def test_R8_one_of_many_wins(tmp_path: Path) -> None:
    def race(number: int) -> None:
        while not (tmp_path / "go").exists():
            time.sleep(0.001)
        with RunLock(tmp_path):
            (tmp_path / f"won-{number}").touch()
            time.sleep(0.6)

    plant(tmp_path, replace(lock.ourselves(), mark="1"))  # of a dead one, which all want to take over
    children = [start_child(lambda number=number: race(number)) for number in range(8)]
    (tmp_path / "go").touch()
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    assert sorted(codes) == [0] + [1] * 7
    assert len(list(tmp_path.glob("won-*"))) == 1


@pytest.mark.slow
def test_R8_two_never_hold_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "PATIENCE", 20.0)

    def count() -> None:
        for _ in range(10):
            with RunLock(tmp_path):
                os.close(os.open(tmp_path / "inside", os.O_CREAT | os.O_EXCL))
                (tmp_path / "inside").unlink()

    children = [start_child(count) for _ in range(3)]
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0, 0, 0]


@pytest.mark.slow
def test_R8_lock_file_removed_by_its_former_holder_is_not_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flock, calls = lock._flock, []

    def late(handle: int, *kind: int) -> bool | None:
        calls.append(handle)
        if len(calls) == 1:
            (tmp_path / lock.NAME).unlink()
        return flock(handle, *kind)

    monkeypatch.setattr(lock, "_flock", late)
    with RunLock(tmp_path), pytest.raises(UserError), RunLock(tmp_path):
        pass


@pytest.mark.slow
def test_R8_same_process_is_refused_too_and_may_lock_again(tmp_path: Path) -> None:
    with RunLock(tmp_path), pytest.raises(UserError, match=f"process {os.getpid()} "), RunLock(tmp_path):
        pass
    with RunLock(tmp_path):
        pass


@pytest.mark.parametrize("record", ["", "{", "[]", '{"pid": 1}'])
def test_R8_unreadable_record_of_nobody_is_taken_over(tmp_path: Path, record: str) -> None:
    (tmp_path / lock.NAME).write_text(record)
    with RunLock(tmp_path):
        pass


def test_R5_full_disk_at_the_lock_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="No space left"), at_call(0, disk_full), RunLock(tmp_path):
        pass
    with RunLock(tmp_path):
        pass


def test_process_marks() -> None:
    assert process.alive(os.getpid(), process.start_mark(os.getpid()))
    assert not process.alive(os.getpid(), "another start")
    assert abs(process.start_time(os.getpid()) - time.time()) < 24 * 3600
    child = subprocess.Popen(["true"])
    time.sleep(0.1)
    assert not process.alive(child.pid)  # a zombie
    child.wait()
    assert not process.alive(child.pid)
