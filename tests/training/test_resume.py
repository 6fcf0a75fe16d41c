"""The parts together: a small loop, killed again and again, ends as an undisturbed one does."""

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from encodery.core.signals import StopRequest
from encodery.runs.directory import RunDir
from encodery.training import checkpoint
from tests.toolbox.faults import dies_at, in_child, start_child

STEPS, EVERY = 30, 4


def train(path: Path, pause: float = 0.0) -> int:
    """Thirty steps of AdamW on noise that is a function of the step; returns the exit code."""
    run = RunDir.create(path)
    with run.lock(), StopRequest() as stop:
        if run.is_done:
            return 0
        run.clean()
        run.write_config("seed: 1\n")
        run.update_info(state="running")
        weight = torch.nn.Parameter(torch.ones(6))
        optimizer = torch.optim.AdamW([weight], lr=0.1)
        for step in range(restore(run, weight, optimizer) + 1, STEPS + 1):
            loss = (weight * torch.randn(6, generator=torch.Generator().manual_seed(step))).sum().square()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.record(step, loss=loss.item())
            time.sleep(pause)
            if step % EVERY == 0 or stop.requested:
                keep(run, step, weight, optimizer)
            if stop.requested:
                return 3
        run.write_scores({"weight": weight.tolist()})
        run.mark_done()
    return 0


def restore(run: RunDir, weight: torch.nn.Parameter, optimizer: torch.optim.Optimizer) -> int:
    found, skipped = checkpoint.newest_intact(run.checkpoints)
    assert skipped == []
    step = found.step if found else 0
    run.rewind_metrics(step)
    if found:
        weight.data.copy_(found.tensors("model")["weight"])
        optimizer.load_state_dict({"state": {0: found.tensors("optimizer")}, "param_groups": found.state["groups"]})
    return step


def keep(run: RunDir, step: int, weight: torch.nn.Parameter, optimizer: torch.optim.Optimizer) -> None:
    run.sync()
    state: dict[str, Any] = optimizer.state_dict()
    groups = {"model": {"weight": weight}, "optimizer": state["state"][0]}
    checkpoint.save(run.checkpoints, step, groups, {"groups": state["param_groups"]})
    checkpoint.prune(run.checkpoints, {step, max(0, step - EVERY)})


def outcome(path: Path) -> tuple[dict[str, Any], list[tuple[int, float]]]:
    run = RunDir.open(path)
    assert run.is_done
    return run.read_scores(), [(record["step"], record["loss"]) for record in run.metrics()]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], list[tuple[int, float]]]:
    path = tmp_path_factory.mktemp("undisturbed") / "run"
    assert train(path) == 0
    return outcome(path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_R1_killed_again_and_again_ends_with_the_same_bits(
    tmp_path: Path, undisturbed: tuple[dict[str, Any], list[tuple[int, float]]], seed: int
) -> None:
    draws, deaths = random.Random(seed), 0
    while dies_at(draws.randrange(150), lambda: train(tmp_path / "run")):
        deaths += 1
    assert deaths >= 3
    assert outcome(tmp_path / "run") == undisturbed


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_R7_stopped_run_saves_its_step_and_goes_on_with_the_same_bits(
    tmp_path: Path, undisturbed: tuple[dict[str, Any], list[tuple[int, float]]], number: int
) -> None:
    child = start_child(lambda: os._exit(train(tmp_path / "run", pause=0.02)))
    while len(RunDir(tmp_path / "run").metrics()) < 6:
        time.sleep(0.005)
    os.kill(child, number)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    found, _ = checkpoint.newest_intact(tmp_path / "run" / "checkpoints")
    assert found is not None
    assert found.step == RunDir(tmp_path / "run").metrics()[-1]["step"]  # no step was lost
    assert in_child(lambda: train(tmp_path / "run")) == 0
    assert outcome(tmp_path / "run") == undisturbed
