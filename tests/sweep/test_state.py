"""Status files and claims."""

import json
import os
import signal
import subprocess
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from encodery.core import files, process
from encodery.core.lock import STALE, ourselves
from encodery.errors import UserError
from encodery.runs.directory import RunDir
from encodery.sweep import state
from encodery.sweep import state as sweep_state
from encodery.sweep.execute import retry
from encodery.sweep.state import RunStatus
from tests.sweep.runs import command, states, sweep
from tests.toolbox.faults import dies_at, in_child

NAME = "0123abcd-lr-1"


def test_a_status_comes_back_as_it_was_written(tmp_path: Path) -> None:
    status = RunStatus("0123abcd", NAME, "failed", attempt=2, pid=5, error="ünïcode\n", changed={"train.x": 1})
    state.write(tmp_path, status)
    assert state.read(tmp_path / NAME) == status
    assert state.status(tmp_path) == [status]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"id": 1}', '{"id": "a", "name": "b", "state": "gone"}', "\0\xff"]
)
def test_W19_a_damaged_status_is_unknown_and_the_run_is_done_again(tmp_path: Path, text: str) -> None:
    spec = command("echo x >> $ENCODERY_RUN_DIR/count", "r")
    sweep(tmp_path, [spec])
    os.unlink(tmp_path / spec.name / ".exit-1")
    (tmp_path / spec.name / "status.json").write_text(text, encoding="latin-1")
    assert states(tmp_path) == {"r": "queued"}
    assert [o.state for o in sweep(tmp_path, [spec]).values()] == ["done"]
    assert states(tmp_path) == {"r": "done"}


def test_W19_a_damaged_status_of_a_finished_run_is_recovered_without_doing_it_again(tmp_path: Path) -> None:
    spec = command("echo x >> $ENCODERY_RUN_DIR/count", "r")
    sweep(tmp_path, [spec])
    (tmp_path / spec.name / "status.json").write_text('{"id": "')
    assert [o.state for o in sweep(tmp_path, [spec]).values()] == ["done"]
    assert (tmp_path / spec.name / "count").read_text() == "x\n"


@given(st.binary(max_size=200))
def test_W19_no_bytes_break_the_reader(data: bytes) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        run = Path(name) / NAME
        run.mkdir()
        (run / "status.json").write_bytes(data)
        assert [one.id for one in state.status(Path(name))] == ["0123abcd"]


@pytest.mark.slow
def test_W19_a_scheduler_that_dies_while_writing_leaves_the_old_or_the_new_status(tmp_path: Path) -> None:
    old = RunStatus("0123abcd", NAME, "running", host="elsewhere", boot="other")
    new = replace(old, state="done")
    state.write(tmp_path, old)
    for number in range(100):
        if not dies_at(number, lambda: state.write(tmp_path, new)):
            break
        assert state.read(tmp_path / NAME) in (old, new)
    assert state.read(tmp_path / NAME) == new


def test_a_running_run_whose_process_is_gone_is_queued_and_one_that_is_finished_is_done(tmp_path: Path) -> None:
    status = RunStatus(
        "0123abcd", NAME, "running", attempt=1, pid=os.getpid(), mark="another start", boot=process.boot_id()
    )
    state.write(tmp_path, status)
    assert states(tmp_path) == {"lr-1": "queued"}
    files.write_json(tmp_path / NAME / "DONE", {})
    assert states(tmp_path) == {"lr-1": "done"}


def test_a_damaged_status_of_a_living_run_is_found_by_the_runs_lock(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path / NAME)
    (run.path / "status.json").write_text("{")
    with run.lock():
        (found,) = state.status(tmp_path)
    assert (found.state, found.pid, found.alive) == ("running", os.getpid(), True)


def test_S4_names_are_checked(tmp_path: Path) -> None:
    for name in ("../x", "a/b", "a b", "", "-x", "x\n"):
        with pytest.raises(UserError):
            state.write(tmp_path, RunStatus("0123abcd", name, "queued"))
    assert list(tmp_path.iterdir()) == []


def test_ids_of_both_lengths() -> None:
    assert state.id_of("0123abcd-0123abcd") == "0123abcd"
    assert state.id_of("0123abcd0123abcd-x") == "0123abcd0123abcd"
    assert state.id_of("0123abcd") == "0123abcd"


def test_logs_are_kept(tmp_path: Path) -> None:
    for text in ("one", "two"):
        (tmp_path / "log.txt").write_text(text)
        state.put_log_aside(tmp_path)
    assert [(tmp_path / f"log.{n}.txt").read_text() for n in (1, 2)] == ["one", "two"]
    RunDir.create(tmp_path)  # is not taken for somebody else's folder


def test_the_tail_of_a_log_is_short_and_without_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", "abcdefgh12345678")
    (tmp_path / "log.txt").write_text("\n".join([*("x" * 500 for _ in range(30)), "the key is abcdefgh12345678"]))
    tail = state.log_tail(tmp_path)
    assert len(tail) <= state.TAIL_BYTES
    assert tail.endswith("the key is ***")


def test_runs_are_named_by_people(tmp_path: Path) -> None:
    every = [RunStatus("0123abcd", NAME, "failed"), RunStatus("01ffffff", "01ffffff-x", "done")]
    assert state.select(every, ["0123"]) == every[:1]
    assert state.select(every, [every[1].name, "0123abcd"]) == every[::-1]
    for word in ("01", "zz"):
        with pytest.raises(UserError, match="names"):
            state.select(every, [word])
    for one in every:
        state.write(tmp_path, one)
    with pytest.raises(UserError, match="is done"):
        retry(tmp_path, ["01ff"])


# Claims


def test_W17_a_claim_is_taken_once_and_given_back(tmp_path: Path) -> None:
    first = sweep_state.claim(tmp_path / NAME)
    assert first is not None
    assert sweep_state.claim(tmp_path / NAME) is None
    assert in_child(lambda: os._exit(sweep_state.claim(tmp_path / NAME) is not None)) == 0
    first.release()
    assert not sweep_state.is_claimed(tmp_path / NAME)
    assert sweep_state.claim(tmp_path / NAME) is not None


@pytest.mark.slow
def test_W17_a_dead_schedulers_claim_is_taken_over_by_one_only(tmp_path: Path) -> None:
    def claim_and_die() -> None:
        assert sweep_state.claim(tmp_path / NAME)
        os.kill(os.getpid(), signal.SIGKILL)

    assert in_child(claim_and_die) == -signal.SIGKILL
    code = "import sys; from pathlib import Path; from encodery.sweep.state import claim; import time\n"
    code += "c = claim(Path(sys.argv[1])); print(bool(c), flush=True); sys.stdin.read()"
    words = [os.sys.executable, "-c", code, str(tmp_path / NAME)]  # type: ignore[attr-defined]
    pipe = subprocess.PIPE
    rivals = [subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True) for _ in range(3)]
    answers = [rival.stdout.readline().strip() for rival in rivals if rival.stdout]
    for rival in rivals:
        rival.communicate("")
    assert sorted(answers) == ["False", "False", "True"]


def test_a_claim_of_another_machine_holds_while_it_is_touched(tmp_path: Path) -> None:
    run = tmp_path / NAME
    run.mkdir()
    path = run / ".claim-1"
    path.write_text(json.dumps(asdict(ourselves()) | {"host": "elsewhere", "boot": "other"}))
    assert sweep_state.is_claimed(run)
    sweep_state.Claim(path).touch()
    assert sweep_state.claim(run) is None
    old = time.time() - STALE - 1
    os.utime(path, (old, old))
    assert sweep_state.claim(run) is not None


def test_a_claim_without_content_is_stale_after_a_moment(tmp_path: Path) -> None:
    run = tmp_path / NAME
    run.mkdir()
    path = run / ".claim-1"
    path.touch()
    assert sweep_state.claim(run) is None
    old = time.time() - sweep_state.YOUNG - 1
    os.utime(path, (old, old))
    assert sweep_state.claim(run) is not None
