"""Training runs in warm workers and in fresh processes."""

import ctypes
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest

from encodery.core import process
from encodery.errors import AFTER_ALARM, RunFailed, Stopped, UserError
from encodery.runs.directory import RunDir
from encodery.runs.sweep_spec import RunSpec
from encodery.sweep import outcome, scheduler, state, warm_worker
from encodery.sweep.scheduler import Scheduler
from encodery.sweep.slots import Slot
from encodery.sweep.sweep_file import Limits
from tests.sweep.runs import Plan, ended_states, kill, start_sweep, training, until
from tests.toolbox.faults import in_child
from tests.toolbox.forked_python import ForkedPython
from tests.toolbox.runs import metrics_of, resolve, settings
from tests.toolbox.runs import run as run_here

CPU = Slot(0, "cpu", (), 1)


def tree(folder: Path, seed: int = 1, **train: Any) -> dict[str, Any]:
    """A complete config of a run of a few steps."""
    folder.mkdir(exist_ok=True)
    options = {"epochs": 1, "batch_size": 16, "max_length": 16, "log": 1, **train}
    still = {"dropout": 0.0, "attention_dropout": 0.0, "head_dropout": 0.0}
    return resolve(settings(folder, seed={"init": seed, "data": seed}, train=options, model=still)).config.to_dict()


def results(run: Path) -> tuple[bytes, list[dict[str, Any]], bytes]:
    """What must be equal: weights, losses, scores."""
    weights = (run / "model" / "model.safetensors").read_bytes()
    return weights, metrics_of(RunDir(run)), (run / "scores.json").read_bytes()


def schedule(folder: Path, specs: list[RunSpec], warm: bool = True) -> Scheduler:
    made = Scheduler(folder, Plan(specs), [CPU], Limits(grace="10s"), warm=warm)
    made.run()
    return made


def calm(spec: RunSpec, folder: Path) -> Path:
    """The same run here, where nothing happens to it."""
    assert spec.config is not None
    return run_here(spec.config, folder / "calm" / spec.name).path


@pytest.mark.slow(25)
def test_W22_W23_warm_runs_are_the_same_bits_as_fresh_processes(tmp_path: Path) -> None:
    specs = [training(tree(tmp_path / "data", seed), f"seed-{seed}") for seed in (1, 2)]
    wrong = training(tree(tmp_path / "data") | {"model": {"name": "/nowhere/at/all"}}, "wrong")
    warm = schedule(tmp_path / "warm", [specs[0], wrong, specs[1]])
    assert [warm.ended[one.id].state for one in (specs[0], wrong, specs[1])] == ["done", "failed", "done"]
    status = state.read(tmp_path / "warm" / wrong.name)
    assert status is not None
    assert (status.exit_code, status.attempt) == (2, 1)
    assert "/nowhere/at/all" in str(status.error)
    schedule(tmp_path / "cold", [specs[1]], False)
    second = tmp_path / "warm" / specs[1].name  # in a process that has trained before
    assert results(second) == results(tmp_path / "cold" / specs[1].name)
    assert json.loads((second / "run.json").read_text())["hardware"] == {"device": "cpu", "threads": 1, "processes": 1}
    pids = [state.read(tmp_path / "warm" / spec.name) for spec in specs]
    assert len({status.pid for status in pids if status}) == 1  # one process did both


@pytest.mark.slow(25)
def test_W13_R13_a_worker_that_dies_takes_only_its_run_and_memory_that_ran_out_halves_the_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One run is killed, the next says in the middle that memory ran out: it goes on with a smaller budget."""
    monkeypatch.setattr(warm_worker, "MOST_RUNS", 2)  # a third run would need another process anyway
    monkeypatch.setattr(subprocess, "Popen", ForkedPython)  # the start of a fresh one is in the test above
    monkeypatch.setattr(scheduler, "TICK", 0.02)  # with a second between two looks, a short run ends before it is hit
    size = {"epochs": 10, "token_budget": 64, "layout": "padded", "save": "10 steps"}
    killed = training(tree(tmp_path / "data", epochs=40, evaluate="end"), "killed")
    big = training(tree(tmp_path / "data", 2, **size), "big")
    folder = tmp_path / "sweep"
    ends = {killed.id: signal.SIGKILL, big.id: signal.SIGUSR1}

    def hit(spec: RunSpec, metrics: Path) -> bool:
        status = state.read(metrics.parent)
        if spec.id in ends and status and status.attempt == 1 and status.pid:
            if spec is big:
                with open(metrics.parent / "log.txt", "a") as log:
                    log.write("RuntimeError: DefaultCPUAllocator: can't allocate memory\n")
            os.kill(status.pid, ends.pop(spec.id))
        return False

    ended = Scheduler(folder, Plan([killed, big], hit), [CPU], Limits(grace="10s")).run()
    assert {one.state for one in ended} == {"done"}
    found = [state.read(folder / spec.name) for spec in (killed, big)]
    assert [(one.attempt, one.changed) for one in found if one] == [(2, {}), (2, {"train.token_budget": 32})]
    assert results(folder / killed.name) == results(calm(killed, tmp_path))
    pairs = zip(metrics_of(RunDir(folder / big.name)), metrics_of(RunDir(calm(big, tmp_path))), strict=True)
    assert all(a["loss"] == pytest.approx(b["loss"], abs=1e-5) for a, b in pairs if "loss" in a)


@pytest.mark.slow(25)
def test_W12_W15_W23_a_stopped_run_and_an_orphan_end_with_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One run alone: several are in test_local.py."""
    monkeypatch.setattr(subprocess, "Popen", ForkedPython)
    spec = training(tree(tmp_path / "data", epochs=24, evaluate="end"), "one")
    folder = tmp_path / "sweep"
    run = RunDir(folder / spec.name)

    def lines() -> int:
        return len(run.metrics()) if run.path.exists() else 0

    first = start_sweep(folder, [spec], grace="20s")
    until(lambda: lines() > 5, 120)
    first.send_signal(signal.SIGINT)
    assert ended_states(first) == {spec.id: "stopped"}
    steps = lines()
    second = start_sweep(folder, [spec], grace="20s")
    until(lambda: lines() > steps, 120)
    kill(second)  # its worker goes on with the run
    status = state.read(run.path)
    assert status is not None
    assert status.pid is not None
    assert process.alive(status.pid)
    assert ended_states(start_sweep(folder, [spec], grace="20s")) == {spec.id: "done"}
    assert results(run.path) == results(calm(spec, tmp_path))


@pytest.mark.parametrize("code", [1, 2])
def test_a_wrong_setting_is_never_tried_again(code: int) -> None:
    config, line = RunSpec("a" * 8, "a", config={}), RunSpec("b" * 8, "b", command="false")
    status = state.RunStatus("a" * 8, "a", "failed", attempt=1, exit_code=code)
    assert outcome.again(config, status, Limits()) == (code == 1)
    assert outcome.again(line, status, Limits())  # what 2 means of a stranger's command nobody knows


def test_less_memory_means_half_of_both_and_never_less_than_one() -> None:
    spec = RunSpec("a" * 8, "a" * 8, config={"train": {"token_budget": 50, "micro_batch": 2}})
    once = outcome.smaller(spec, {})
    assert once == {"train.token_budget": 25, "train.micro_batch": 1}
    assert outcome.smaller(spec, once) == {"train.token_budget": 16, "train.micro_batch": 1}


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UserError("wrong"), 2),
        (RunFailed("broken"), 1),
        (Stopped("later"), 3),
        (KeyboardInterrupt(), 130),
        (OSError(), 1),
    ],
)
def test_a_worker_answers_with_the_exit_code_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int
) -> None:
    def train(*_: object) -> None:
        raise error

    job = {
        "config": "c",
        "out": "o",
        "log": str(tmp_path / "log.txt"),
        "words": ["train"],
        "allow_change": False,
        "allow_code": False,
    }
    monkeypatch.setattr(warm_worker, "train", train)
    monkeypatch.setattr("gc.collect", lambda: 0)
    assert in_child(lambda: os._exit(warm_worker.work(job))) == code  # a process of its own: it takes stdout away


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="needs glibc")
def test_a_worker_gives_back_the_memory_of_a_run():
    blocks = [b"x" * 100_000 for _ in range(2_000)]  # 200 MB of blocks that live in the heap
    kept = blocks[::50]
    del blocks  # holes between those that stay
    before = psutil.Process().memory_info().rss
    warm_worker.give_back_memory()
    assert before - psutil.Process().memory_info().rss > 100_000_000
    assert len(kept) == 40


SAID = f"step 3: loss is not finite; {AFTER_ALARM}"


@pytest.mark.parametrize(
    ("log", "shown"),
    [
        (f"step 2\nTraceback:\n  raise RunFailed(\nencodery.errors.RunFailed: {SAID}\n{SAID}\n", SAID),
        ("encodery.errors.UserError: a: wrong.\nb: too.\na: wrong.\nb: too.\n", "a: wrong.\nb: too."),
        (f"step 2\n{SAID}\n", SAID),  # a process of its own prints no traceback
        (f"Traceback:\nValueError: {SAID}\n", f"Traceback:\nValueError: {SAID}\nexit code 1"),
    ],
)
def test_a_sentence_of_ours_is_shown_without_its_traceback(tmp_path: Path, log: str, shown: str) -> None:
    (tmp_path / "log.txt").write_text(log)
    (tmp_path / "run.json").write_text(json.dumps({"ended": {"state": "failed", "error": SAID}}))
    assert outcome.complaint(tmp_path, 1) == shown


def test_an_alarm_of_training_is_not_tried_again() -> None:
    status = state.RunStatus("0a", "0a-x", "failed", attempt=1, exit_code=1, error=SAID)
    assert not outcome.again(RunSpec("0a", "0a-x", config={}), status, Limits())
    assert outcome.again(RunSpec("0a", "0a-x", command="false"), status, Limits())
