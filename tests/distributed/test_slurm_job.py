"""Training as a Slurm job, through submitit's stand-in: it runs, stops when Slurm asks, is queued again and goes on."""

import importlib.util
import os
import signal
import threading
from pathlib import Path

import pytest
import yaml

from encodery.distributed.launch import NODES, meeting
from encodery.distributed.slurm_job import Job, parameters, submit
from encodery.errors import Stopped, UserError
from encodery.runs.directory import RunDir
from encodery.training import checkpoint
from tests.distributed.test_comm import STILL
from tests.sweep.runs import until
from tests.toolbox.runs import settings, weights_of
from tests.toolbox.world_jobs import NOTHING, run_until

pytestmark = pytest.mark.skipif(importlib.util.find_spec("submitit") is None, reason="submitit is not installed")


LONG = 900  # seconds; on an idle machine a tenth of it is enough


@pytest.mark.slow(30)
@pytest.mark.timeout(LONG)
def test_R1_R12_a_job_is_killed_preempted_and_goes_on_to_the_end_of_an_undisturbed_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one launch, because each costs seconds: the launcher is tested here too."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    train = {"max_steps": 120, "save": "1 steps", "evaluate": "never"}
    tree = settings(tmp_path, rows=40, model=STILL, train=train)
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(tree))
    run = RunDir(tmp_path / "run")
    job = Job(["train", str(tmp_path / "c.yaml"), "-o", str(run.path), "--processes=2", "--quiet"], 1)
    ended: list[int] = []
    thread = threading.Thread(target=lambda: ended.append(job()))
    thread.start()
    first = until(run.holder, LONG)
    until(lambda: checkpoint.steps(run.checkpoints), LONG)
    os.kill(first.pid, signal.SIGKILL)  # rank 0: the launcher begins again by itself
    until(lambda: (again := run.holder()) is not None and again.pid != first.pid, LONG)
    seen = max(checkpoint.steps(run.checkpoints))
    until(lambda: max(checkpoint.steps(run.checkpoints), default=0) > seen, LONG)
    again = job.checkpoint()  # Slurm's time is up: save and stop
    thread.join()
    assert ended == [Stopped.exit_code]
    assert again.function.words == job.words
    assert run_until(tree, str(run.path), 0, 0, NOTHING) == 0  # with one process now
    tree["train"]["save"] = "end"
    assert run_until(tree, str(tmp_path / "alone"), 0, 0, NOTHING) == 0
    ours, theirs = weights_of(run), weights_of(RunDir(tmp_path / "alone"))
    assert max(float((ours[name] - theirs[name]).abs().max()) for name in ours) < 1e-4  # 120 steps, not 20


@pytest.mark.slow(30)
def test_a_job_goes_through_submitit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    assert submit(["tasks"], tmp_path, 1, 1, on_cpu=True, cluster="local").result() == 0
    with pytest.raises(Exception, match="exit code 2"):
        submit(["nonsense"], tmp_path, 1, 1, on_cpu=True, cluster="local").result()


def test_what_a_training_job_asks_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = parameters(2, 8, on_cpu=False)
    assert (asked["nodes"], asked["tasks_per_node"], asked["gpus_per_node"], asked["cpus_per_task"]) == (2, 1, 8, 8)
    assert parameters(1, 4, on_cpu=True)["gpus_per_node"] == 0
    monkeypatch.setenv("PATH", str(tmp_path))  # also on a login node, which has one
    with pytest.raises(UserError, match="no sbatch here"):
        submit(["train"], tmp_path, 1, 1, on_cpu=True)
    assert meeting()["max_nodes"] == 1
    monkeypatch.setenv(NODES, "2 first:20001")
    met = meeting()
    assert (met["min_nodes"], met["max_nodes"], met["rdzv_endpoint"]) == (2, 2, "first:20001")


def test_a_job_that_slurm_does_not_take_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    lines = [
        "sbatch: error: invalid partition specified: x",
        "sbatch: error: Batch job submission failed: Invalid name",
    ]
    for name in ("sbatch", "srun", "sinfo"):
        (folder / name).write_text("#!/bin/sh\n" + "".join(f"echo '{line}' >&2\n" for line in lines) + "exit 1\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    with pytest.raises(UserError, match="rejected the job: sbatch: error: Batch job submission failed"):
        submit(["train"], tmp_path / "jobs", 1, 1, on_cpu=True)
