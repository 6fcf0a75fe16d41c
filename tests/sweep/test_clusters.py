"""The same runs on Ray and on submitit's stand-in for Slurm: the same states in the same files."""

import importlib.util
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from encodery.core.progress import Progress
from encodery.runs.sweep_spec import RunSpec
from encodery.sweep import state
from encodery.sweep.cluster_driver import job_text, scheduler_of
from encodery.sweep.execute import execute, stop
from encodery.sweep.slurm_cluster import Job, execute_slurm, parameters
from encodery.sweep.sweep_file import Limits, Resources
from tests.sweep.runs import Plan, command, states, training, until
from tests.toolbox.runs import settings

TWO = Resources(devices="cpu:2")
QUIET = Progress(quiet=True)


def mixed(folder: Path) -> list[RunSpec]:
    """A training run, one that raises, one that is killed, and ordinary ones."""
    folder.mkdir()
    return [
        training(settings(folder, train={"max_steps": 2, "batch_size": 8, "max_length": 16}), "trains"),
        command("python3 -c 'raise ValueError(7)'", "raises"),
        command("kill -9 $$", "killed"),
        command("echo fine", "fine"),
    ]


WANTED = {"trains": "done", "raises": "failed", "killed": "failed", "fine": "done"}


def check(folder: Path, specs: list[RunSpec]) -> None:
    assert states(folder) == WANTED
    found = {one.name[9:]: one for one in state.status(folder)}
    assert (found["raises"].attempt, found["killed"].attempt, found["fine"].attempt) == (2, 2, 1)
    assert "ValueError: 7" in str(found["raises"].error)
    assert (folder / specs[0].name / "DONE").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("only_ray")
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")
def test_R13_runs_on_ray_end_in_named_states(tmp_path: Path) -> None:
    specs, folder = mixed(tmp_path / "data"), tmp_path / "sweep"
    limits = Limits(grace="2s")
    ended = execute(folder, Plan(specs), TWO, limits, "ray", QUIET)
    assert len(ended) == len(specs)
    check(folder, specs)
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"
    again = execute(folder, Plan(specs), TWO, limits, "local", QUIET)  # nothing is left to do, wherever one looks
    assert {o.id: o.state for o in again} == {o.id: o.state for o in ended}


@pytest.mark.slow
@pytest.mark.usefixtures("only_ray")
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")
def test_R13_a_ray_worker_that_is_killed_is_followed_by_another(tmp_path: Path) -> None:
    line = 'test -e "$ENCODERY_RUN_DIR/seen" || { touch "$ENCODERY_RUN_DIR/seen"; sleep 600; }'
    spec = command(line, "r")

    def kill_worker() -> None:
        until(lambda: (tmp_path / spec.name / "seen").exists(), 120)
        run = until(lambda: (one := state.read(tmp_path / spec.name)) and one.pid, 120)
        claim = next((tmp_path / spec.name).glob(".claim-*"))
        os.kill(int(claim.read_text().partition('"pid": ')[2].partition(",")[0]), signal.SIGKILL)
        os.kill(run, signal.SIGKILL)  # or the next worker would adopt it

    thread = threading.Thread(target=kill_worker)
    thread.start()
    (ended,) = execute(tmp_path, Plan([spec]), TWO, Limits(grace="2s"), "ray", QUIET)
    thread.join()
    assert ended.state == "done"


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("submitit") is None, reason="submitit is not installed")
def test_R13_runs_through_submitit_end_in_named_states(tmp_path: Path) -> None:
    specs, folder = mixed(tmp_path / "data"), tmp_path / "sweep"
    limits = Limits(grace="2s")
    execute_slurm(folder, Plan(specs), TWO, limits, QUIET, cluster="local")
    check(folder, specs)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("submitit") is None, reason="submitit is not installed")
def test_a_sweep_on_a_cluster_stops_on_request(tmp_path: Path) -> None:
    specs = [command("sleep 600", f"r{i}") for i in range(2)]

    def ask() -> None:
        until(lambda: states(tmp_path) == {"r0": "running", "r1": "running"}, 120)
        stop(tmp_path)

    thread = threading.Thread(target=ask)
    thread.start()
    ended = execute_slurm(tmp_path, Plan(specs), TWO, Limits(grace="2s"), QUIET, cluster="local")
    thread.join()
    assert {outcome.state for outcome in ended} == {"stopped"}


@pytest.mark.skipif(importlib.util.find_spec("submitit") is None, reason="submitit is not installed")
def test_a_job_that_slurm_takes_away_stops_its_run_and_is_queued_again(tmp_path: Path) -> None:
    spec = command("sleep 600", "r")
    job = Job(job_text(tmp_path, spec, TWO, Limits(grace="2s")))
    thread = threading.Thread(target=job)
    thread.start()
    until(lambda: states(tmp_path) == {"r": "running"})
    submission = job.checkpoint()
    thread.join()
    assert states(tmp_path) == {"r": "stopped"}
    assert submission.function.text == job.text


def test_jobs_carry_their_run_as_json(tmp_path: Path) -> None:
    spec = RunSpec("0123abcd", "0123abcd-x", config={"a": [1, None]}, axes={"seed": 1}, needs=("ffffffff",))
    scheduler, run = scheduler_of(job_text(tmp_path, spec, Resources(threads=3), Limits(timeout="1h")))
    assert run == spec.id
    assert scheduler.source.ready({}, (), 1) == [spec]
    assert (scheduler.limits.timeout, scheduler.slots[0].threads) == ("1h", 3)


def test_what_a_slurm_job_asks_for() -> None:
    asked = parameters(Resources(per_run=2), Limits(timeout="1h", grace="1m"))
    assert (asked["gpus_per_node"], asked["timeout_min"]) == (2, 2 * 61 + 5)
    asked = parameters(Resources(devices="cpu:3", threads=4), Limits())
    assert (asked["gpus_per_node"], asked["cpus_per_task"], asked["slurm_array_parallelism"]) == (0, 4, 3)


@pytest.mark.parametrize(("given", "cpus"), [({}, 1), ({"per_run": 2}, 2), ({"per_run": 0.5}, 1), ({"threads": 3}, 3)])
def test_a_job_has_as_many_threads_as_it_asks_for_cpus(tmp_path: Path, given: dict[str, Any], cpus: int) -> None:
    """Also where the cluster lets it see all cores of its machine."""
    resources = Resources(devices="cpu:3", **given)
    assert parameters(resources, Limits())["cpus_per_task"] == cpus
    scheduler, _ = scheduler_of(job_text(tmp_path, RunSpec("0123abcd", "0123abcd-x"), resources, Limits()))
    assert [slot.threads for slot in scheduler.slots] == [cpus]
    assert scheduler.slots[0].environment()["OMP_NUM_THREADS"] == str(cpus)
