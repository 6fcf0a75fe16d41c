"""The local scheduler, with runs that are trivial commands."""

import os
import re
import signal
import threading
import time
import types
from collections import Counter
from pathlib import Path

import pytest

from encodery.cli import main
from encodery.core.progress import Progress
from encodery.errors import RunFailed
from encodery.runs.sweep_spec import RunSpec
from encodery.sweep import scheduler, slots, state
from encodery.sweep.execute import execute, retry, stop
from encodery.sweep.fixed_plan import FixedPlan
from encodery.sweep.launch import Launcher
from encodery.sweep.scheduler import Scheduler
from encodery.sweep.slots import Slot
from encodery.sweep.sweep_file import Limits, Resources
from tests.sweep.runs import Plan, command, ended_states, kill, start_sweep, states, sweep, until
from tests.toolbox.timing import least


def alive(marker: str) -> list[int]:
    """Living processes whose command line holds a marker."""
    found = []
    for name in os.listdir("/proc"):
        try:
            line = Path("/proc", name, "cmdline").read_bytes() if name.isdigit() else b""
            letter = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()[0] if line else "Z"
        except OSError:
            continue
        if marker.encode() in line and letter != "Z":
            found.append(int(name))
    return found


def test_runs_end_done_or_failed_with_their_last_lines(tmp_path: Path) -> None:
    good, bad = command("echo fine", "good"), command("echo first; echo the end >&2; exit 7", "bad")
    ended = sweep(tmp_path, [good, bad], retries=0)
    assert ended[good.id].state == "done"
    assert ended[bad.id].state == "failed"
    assert (tmp_path / good.name / "log.txt").read_text() == "fine\n"
    assert "the end\nexit code 7" in str(ended[bad.id].error)


def test_W24_a_run_has_no_terminal_to_wait_for(tmp_path: Path) -> None:
    spec = command("cat; echo went on", "asks")
    assert [o.state for o in sweep(tmp_path, [spec]).values()] == ["done"]
    assert (tmp_path / spec.name / "log.txt").read_text() == "went on\n"


@pytest.mark.slow
def test_W10_four_slots_are_filled_and_never_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "_ASK", (("cuda", lambda: 4),))  # devices that are not here are refused
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    line = 'echo "start $CUDA_VISIBLE_DEVICES $(date +%s.%N)"; sleep 1; echo "end x $(date +%s.%N)"'
    specs = [command(line, f"r{i}") for i in range(24)]

    def seconds(attempt: int) -> float:
        folder = tmp_path / str(attempt)
        begin = time.monotonic()
        ended = sweep(folder, specs, devices="0,1,2,3")
        took = time.monotonic() - begin
        assert all(outcome.state == "done" for outcome in ended.values())
        assert took >= 6
        logs = [(folder / spec.name / "log.txt").read_text().splitlines() for spec in specs]
        spans = [(first.split()[1], float(first.split()[2]), float(last.split()[2])) for first, last in logs]
        assert {device for device, _, _ in spans} == {"0", "1", "2", "3"}
        for _, at, _ in spans:
            living = Counter(device for device, begun, over in spans if begun <= at < over)
            assert sum(living.values()) <= 4
            assert max(living.values()) <= 1
        return took

    assert least(seconds, 9) < 9


@pytest.mark.slow
def test_W11_waiting_costs_nothing(tmp_path: Path) -> None:
    def seconds(attempt: int) -> float:
        begin = time.process_time()
        sweep(tmp_path / str(attempt), [command("sleep 5", "a"), command("sleep 5", "b")])
        return time.process_time() - begin

    allowed = 0.3 / 6 + 0.1  # 0.3 s in 30 s, and a tenth for starting and ending
    assert least(seconds, allowed) < allowed


@pytest.mark.slow
def test_W12_R13_a_killed_scheduler_is_followed_by_one_that_adopts_and_goes_on(tmp_path: Path) -> None:
    specs = [command(f"echo {i} >> $ENCODERY_RUN_DIR/once.txt; sleep {0.1 if i < 2 else 3}", f"r{i}") for i in range(6)]
    first = start_sweep(tmp_path, specs)
    until(lambda: states(tmp_path).get("r3") == "running" and len((tmp_path / specs[3].name / "log.txt").name))
    until(lambda: (tmp_path / specs[3].name / "once.txt").exists())
    done = {s.name: (tmp_path / s.name / "status.json").stat().st_mtime_ns for s in specs[:2]}
    kill(first)
    assert states(tmp_path)["r2"] == states(tmp_path)["r3"] == "running"  # orphans live on
    os.kill(next(s.pid for s in state.status(tmp_path) if s.name.endswith("r2") and s.pid), signal.SIGKILL)
    assert set(ended_states(start_sweep(tmp_path, specs)).values()) == {"done"}
    assert done == {name: (tmp_path / name / "status.json").stat().st_mtime_ns for name in done}
    counts = [len((tmp_path / spec.name / "once.txt").read_text().splitlines()) for spec in specs]
    assert counts == [1, 1, 2, 1, 1, 1]  # r2 was killed and redone, r3 adopted


def test_W13_R13_a_killed_run_is_tried_once_more_and_the_others_go_on(tmp_path: Path) -> None:
    specs = [command("echo mine; kill -9 $$", "killed"), command("echo ok", "other")]
    ended = sweep(tmp_path, specs)
    assert [ended[s.id].state for s in specs] == ["failed", "done"]
    status = state.read(tmp_path / specs[0].name)
    assert status is not None
    assert (status.attempt, status.failures) == (2, 1)
    assert (tmp_path / specs[0].name / "log.1.txt").read_text().startswith("mine\n")


def test_R13_a_killed_leader_counts_as_a_crash(tmp_path: Path) -> None:
    spec = command('kill -9 "$PPID"; sleep 30', "leader")  # the shell that scheduler started
    ended = sweep(tmp_path, [spec], retries=0)
    assert "SIGKILL" in str(ended[spec.id].error)
    assert not alive(f"encodery-run {spec.command}")


@pytest.mark.slow
def test_R13_a_command_that_outlived_its_shell_is_not_begun_again(tmp_path: Path) -> None:
    """Ray kills the children of a worker whose node is lost, and not their children."""
    spec = command('kill -9 "$PPID"; sleep 0.2; echo once >> "$ENCODERY_RUN_DIR/work"', "outlives")
    Launcher(tmp_path).start(spec, None, Slot(0, "cpu", (), 1))  # by a scheduler that is no more
    until(lambda: state.exit_path(tmp_path / spec.name, 1).exists())
    assert sweep(tmp_path, [spec])[spec.id].state == "done"
    assert (tmp_path / spec.name / "work").read_text() == "once\n"


@pytest.mark.slow
def test_W14_a_timeout_takes_the_grandchildren_too(tmp_path: Path) -> None:
    mark = f"{1000 + os.getpid()}.5"
    line = (
        f"trap '' TERM; sleep {mark} & setsid sleep {mark} & nohup sh -c 'trap \"\" TERM; sleep {mark}' & sleep {mark}"
    )
    spec = command(line, "family")
    next_one = command("echo free", "next")
    ended = sweep(tmp_path, [spec, next_one], devices="cpu:1", timeout="0.3s", grace="0.2s")
    assert ended[spec.id].state == "timeout"
    assert ended[next_one.id].state == "done"
    assert alive(mark) == []


@pytest.mark.slow
def test_R13_the_slot_is_given_away_only_when_the_run_is_gone(tmp_path: Path) -> None:
    slow = command("trap 'sleep 0.3; date +%s.%N; exit 0' TERM; while :; do sleep 0.05; done", "slow")
    later = command("date +%s.%N", "later")
    sweep(tmp_path, [slow, later], devices="cpu:1", timeout="0.3s", grace="5s")
    gone, began = (float((tmp_path / s.name / "log.txt").read_text().split()[-1]) for s in (slow, later))
    assert began > gone


def test_processes_that_a_finished_run_left_are_ended(tmp_path: Path) -> None:
    mark = f"{2000 + os.getpid()}.5"
    ended = sweep(tmp_path, [command(f"sleep {mark} & echo done", "left")])
    assert [o.state for o in ended.values()] == ["done"]
    assert alive(mark) == []


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 2])
def test_W15_interrupted_sweeps_leave_no_process_and_sound_states(tmp_path: Path, times: int) -> None:
    mark = f"{3000 + os.getpid()}.5"
    stubborn = "trap '' TERM; " if times == 2 else ""
    specs = [command(f"{stubborn}sleep {mark}", f"r{i}") for i in range(4)]
    process = start_sweep(tmp_path, specs, grace="30s" if times == 2 else "2s")
    until(lambda: len(alive(f"sleep {mark}")) >= 2 and states(tmp_path) == {"r0": "running", "r1": "running"})
    for _ in range(times):
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
    process.communicate(timeout=20)
    assert alive(mark) == []
    assert states(tmp_path) == {"r0": "stopped", "r1": "stopped"}
    assert (process.returncode == 0) == (times == 1)


@pytest.mark.slow
def test_stopped_runs_go_on_with_the_next_sweep(tmp_path: Path) -> None:
    spec = command('test -e "$ENCODERY_RUN_DIR/seen" || { touch "$ENCODERY_RUN_DIR/seen"; sleep 30; }', "r")
    ask = threading.Thread(target=lambda: (until(lambda: (tmp_path / spec.name / "seen").exists()), stop(tmp_path)))
    ask.start()
    assert [o.state for o in sweep(tmp_path, [spec]).values()] == ["stopped"]
    ask.join()
    assert [o.state for o in sweep(tmp_path, [spec]).values()] == ["done"]


@pytest.mark.slow(0.5)
def test_stop_ends_orphans_whose_scheduler_is_dead(tmp_path: Path) -> None:
    mark = f"{4000 + os.getpid()}.5"
    spec = command(f"sleep {mark}", "orphan")
    process = start_sweep(tmp_path, [spec])
    until(lambda: alive(f"sleep {mark}") and states(tmp_path) == {"orphan": "running"})
    kill(process)
    assert stop(tmp_path) == [spec.id]
    assert alive(mark) == []
    assert states(tmp_path) == {"orphan": "stopped"}


@pytest.mark.slow
def test_W17_two_sweeps_at_once_do_every_run_once(tmp_path: Path) -> None:
    specs = [command("echo x >> $ENCODERY_RUN_DIR/count", f"r{i}") for i in range(100)]
    both = [start_sweep(tmp_path, specs), start_sweep(tmp_path, specs)]
    for process in both:
        assert set(ended_states(process).values()) == {"done"}
    assert [len((tmp_path / s.name / "count").read_text().splitlines()) for s in specs] == [1] * 100


def test_W18_a_run_that_cannot_import_shows_its_last_lines(tmp_path: Path) -> None:
    spec = command("python3 -c 'import nowhere_at_all'", "import")
    sweep(tmp_path, [spec], retries=0)
    (status,) = state.status(tmp_path)
    assert "No module named 'nowhere_at_all'" in str(status.error)


def test_W18_a_full_disk_is_told_and_the_states_are_written_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = command("echo No space left on device >&2; exit 1", "full")
    write, failed = state.write, []

    def full(folder: Path, status: state.RunStatus) -> None:
        if status.state == "failed" and not failed:
            failed.append(status)
            raise RunFailed("status.json could not be written: No space left on device")
        write(folder, status)

    monkeypatch.setattr(state, "write", full)
    ended = sweep(tmp_path, [spec], retries=0)
    assert "No space left" in str(ended[spec.id].error)
    (status,) = state.status(tmp_path)
    assert failed == [status]
    assert status.state == "failed"


def test_each_end_tells_how_many_are_done_and_how_long_the_rest_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    specs = [command("true", "a"), command("false", "b"), command("true", "c", needs=(command("false", "b").id,))]
    Scheduler(tmp_path, FixedPlan(specs), [Slot(0, "cpu", (), 1)], Limits(retries=0), Progress()).run()
    ends = [line for line in capsys.readouterr().err.splitlines() if "[" in line]
    assert ends[0].endswith("[1 of 3 done, about 0 s left]")
    assert ends[1].endswith("[1 of 3 done]")


def test_a_bar_moves_at_a_terminal_while_runs_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[tuple[float, str]] = []

    class Seen(Progress):
        def open(self, *_: object, **__: object) -> None:
            self.bar = self.bar or types.SimpleNamespace(stop=lambda: shown.append((0, "stopped")))

        def show(self, done: float, now: str, *_: object, **__: object) -> None:
            shown.append((done, now))

        def say(self, line: str) -> None:
            """Not asked here."""

    monkeypatch.setattr(scheduler, "TICK", 0.1)
    specs = [command("sleep 0.3", "a"), command("sleep 0.3", "b")]
    Scheduler(tmp_path, FixedPlan(specs), [Slot(0, "cpu", (), 1)], Limits(), Seen()).run()
    assert {done for done, _ in shown} == {0, 1}
    assert any("1 running, 0 s so far" in now for _, now in shown)
    assert any(re.search(r"1 running, \d s so far, about \d s left", now) for _, now in shown)
    assert shown[-1] == (0, "stopped")


def test_retry_lets_failed_runs_run_again(tmp_path: Path) -> None:
    spec = command('test -e "$ENCODERY_RUN_DIR/../allowed"', "r")
    assert [o.state for o in sweep(tmp_path, [spec]).values()] == ["failed"]
    (tmp_path / "allowed").touch()
    assert [o.state for o in sweep(tmp_path, [spec]).values()] == ["failed"]  # run again does not repeat a failure
    assert retry(tmp_path) == [spec.id]
    assert [o.state for o in sweep(tmp_path, [spec]).values()] == ["done"]


def test_a_failure_of_an_older_plan_is_not_one_of_this(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = tmp_path / "cmds.txt"
    words = ["sweep", "run", "--commands", str(lines), "-o", str(tmp_path / "out"), "--devices", "cpu:2", "--quiet"]
    lines.write_text("exit 4\ntrue\n")
    assert main([*words, "--retries", "0"]) == 1
    lines.write_text("true\necho new\n")
    assert main(words) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"2 done ({tmp_path / 'out'})"


@pytest.mark.slow
def test_needs_are_waited_for(tmp_path: Path) -> None:
    first = command("sleep 0.2; touch $ENCODERY_RUN_DIR/../made", "first")
    second = command("test -e $ENCODERY_RUN_DIR/../made", "second", needs=(first.id,))
    assert {o.state for o in sweep(tmp_path, [second, first]).values()} == {"done"}


def test_early_stopping_prunes(tmp_path: Path) -> None:
    line = "echo '{\"step\": 1}' > $ENCODERY_RUN_DIR/metrics.jsonl; sleep 30"
    spec, other = command(line, "hopeless"), command("true", "other")
    plan = Plan([spec, other], stop=lambda one, metrics: one.id == spec.id and metrics.exists())
    ended = {o.id: o.state for o in execute(tmp_path, plan, Resources(devices="cpu:2"), Limits(grace="2s"))}
    assert ended == {spec.id: "pruned", other.id: "done"}


def test_out_of_memory_is_a_state_of_its_own(tmp_path: Path) -> None:
    spec = command("echo 'torch.OutOfMemoryError: CUDA out of memory' >&2; exit 1", "big")
    assert [o.state for o in sweep(tmp_path, [spec], retries=0).values()] == ["oom"]


def test_S4_a_name_that_leads_out_of_the_sweep_is_refused(tmp_path: Path) -> None:
    spec = RunSpec("abcdef01", "../abcdef01-out", command="touch $ENCODERY_RUN_DIR/x")
    ended = sweep(tmp_path / "sweep", [spec])
    assert ended[spec.id].state == "failed"
    assert list(tmp_path.iterdir()) == [tmp_path / "sweep"]


@pytest.mark.slow(0.5)
def test_W22_a_run_sees_its_own_cores_and_threads_only(tmp_path: Path) -> None:
    line = "echo $OMP_NUM_THREADS $MKL_NUM_THREADS; python3 -c 'import os; print(len(os.sched_getaffinity(0)))'"
    specs = [command(line, f"r{i}") for i in range(2)]
    sweep(tmp_path, specs, devices=f"cpu:{os.cpu_count()}")
    assert [(tmp_path / s.name / "log.txt").read_text().split() for s in specs] == [["1", "1", "1"]] * 2


def test_a_slot_gives_its_cores_back(tmp_path: Path) -> None:
    before = os.sched_getaffinity(0)
    with Slot(0, "cpu", (), 1, (min(before),)).pinned():
        assert os.sched_getaffinity(0) == {min(before)}
    assert os.sched_getaffinity(0) == before
