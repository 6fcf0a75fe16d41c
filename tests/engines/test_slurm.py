"""A real Slurm on two hosts: time limits, preemption, sweeps as arrays, shards, cancelled jobs."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from encodery.runs.directory import RunDir
from tests.engines import slurm_server
from tests.engines.conftest import ROOT, skip_without
from tests.engines.slurm_server import Slurm
from tests.engines.trainings import STEPS, Undisturbed, config, results, slow_until
from tests.engines.two_hosts import until

EXAMPLE = ROOT / "examples" / "slurm"
pytestmark = pytest.mark.timeout(3000)  # only a bound: waiting ends by itself, later on a busy machine

# With one way of tracking processes only: what is tested does not depend on it.
once = pytest.mark.parametrize("slurm", ["pgid"], ids=["once"], indirect=True)


@pytest.fixture(scope="module", params=["pgid", "cgroup"])
def slurm(request: pytest.FixtureRequest) -> Iterator[Slurm]:
    """A cluster, with each of Slurm's two ways of tracking a job's processes."""
    skip_without("Slurm", slurm_server.missing())
    if request.param == "cgroup":
        skip_without("cgroups", slurm_server.no_cgroups())
    with Slurm(request.param) as cluster:
        yield cluster


class Training:
    """A training that was submitted as a job."""

    def __init__(self, slurm: Slurm, folder: Path, nodes: int, **variables: str) -> None:
        self.slurm, self.fast = slurm, folder / "fast"
        folder.mkdir()
        self.run = RunDir(folder / "run")
        words = ["train", str(config(folder)), "-o", str(self.run.path), "--executor=slurm", f"--nodes={nodes}"]
        self.said = encodery(slurm, folder, *words, "--processes=1", env={**slow_until(self.fast), **variables})
        self.job = str(re.search(r"Slurm job (\d+)", self.said.stdout)[1])  # type: ignore[index]

    @property
    def log(self) -> str:
        return "\n".join(f"== {p.name}\n{p.read_text()}" for p in sorted(self.run.path.parent.glob(".slurm/*log*")))

    def step(self) -> int:
        records = self.run.metrics_file.last() if self.run.path.exists() else []
        return max((int(one["step"]) for one in records), default=0)

    def begun(self, after: int = 0) -> None:
        """Wait for its first step, or for the first one after it was queued again."""
        self.wait(lambda: self.step() > after, 200, f"a step after {after}")

    def wait(self, true: Callable[[], Any], seconds: float, what: str) -> Any:
        try:
            return until(true, seconds, what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.slurm.job(self.job)}\n{self.log}\n{self.slurm.logs()}") from None

    def nearly_over(self) -> None:
        """Let the job's time be up in one to two minutes; Slurm warns it two minutes before."""
        hours, minutes, _ = self.slurm.job(self.job)["RunTime"].rsplit("-", 1)[-1].split(":")
        self.update(f"TimeLimit={int(hours) * 60 + int(minutes) + 2}")

    def update(self, change: str) -> None:
        self.slurm.run("ha", "scontrol", "update", f"JobId={self.job}", change)

    def queued_again(self, times: int) -> None:
        """Wait until Slurm has it in the queue once more, then give it time enough."""
        self.wait(lambda: self.slurm.job(self.job).get("Restarts") == str(times), 150, "queued again")
        self.wait(lambda: self.slurm.job(self.job).get("JobState") in ("PENDING", "RUNNING"), 60, "pending again")
        self.update("TimeLimit=20")

    def done(self) -> None:
        self.wait((self.run.path / "DONE").exists, 200, "DONE")
        self.wait(lambda: self.job not in self.slurm.queue(), 60, "the end of the job")


def encodery(slurm: Slurm, folder: Path, *words: str, **options: Any) -> "subprocess.CompletedProcess[str]":
    """A command on the login node."""
    return slurm.run("ha", sys.executable, "-m", "encodery", *words, folder=folder, **options)


def interruptions(run: RunDir) -> list[int]:
    """The steps at which the run was stopped."""
    return [int(one) for one in re.findall(r"stopped at step (\d+) of", (run.path / "log.txt").read_text())]


def members(folder: Path) -> list[int]:
    """Processes that work on runs of a folder, wherever they were started."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"encodery" in words and any(str(folder).encode() in word for word in words):
            found.append(int(path.parent.name))
    return found


def test_R1_a_training_that_loses_its_machines_twice_ends_as_undisturbed(
    slurm: Slurm, tmp_path: Path, undisturbed: Undisturbed
) -> None:
    """First its time is up, then it is preempted; on one machine and on two."""
    jobs = {nodes: Training(slurm, tmp_path / str(nodes), nodes, SBATCH_PARTITION="low") for nodes in (1, 2)}
    assert "partition low allows 30 minutes: the job requests these, not 1440" in jobs[1].said.stderr
    for job in jobs.values():
        assert slurm.job(job.job)["TimeLimit"] == "00:30:00"
        job.begun()
        job.nearly_over()
    for job in jobs.values():
        job.queued_again(1)
    for job in jobs.values():
        (stopped,) = interruptions(job.run)
        job.begun(after=stopped)
    slurm.run("ha", "sbatch", "-N2", "--exclusive", "--wrap", "srun sleep 2", "-o", "/dev/null")
    for job in jobs.values():
        job.queued_again(2)
        job.fast.touch()
    for nodes, job in jobs.items():
        job.done()
        first, second = interruptions(job.run)
        assert 0 < first < second < STEPS
        assert results(job.run) == results(undisturbed(nodes))


def test_a_cancelled_training_saves_and_no_process_outlives_its_job(slurm: Slurm, tmp_path: Path) -> None:
    """Slurm kills what it knows: under proctrack/pgid that is not the agent, nor its workers."""
    cancelled, killed = (Training(slurm, tmp_path / name, 1) for name in ("cancelled", "killed"))
    for job in (cancelled, killed):
        job.begun()
        assert members(job.run.path)
    slurm.run("ha", "scancel", cancelled.job)
    slurm.run("ha", "scancel", "--signal=KILL", killed.job)
    for job in (cancelled, killed):
        job.wait(lambda job=job: job.job not in slurm.queue(), 60, "the end of the job")  # type: ignore[misc]
        until(lambda job=job: not members(job.run.path), 10, "no process is left")  # type: ignore[misc]
    assert len(interruptions(cancelled.run)) == 1  # with a checkpoint
    assert slurm.job(cancelled.job)["JobState"] == "CANCELLED"


def sweep_states(folder: Path) -> dict[str, str]:
    """State of each run by the readable part of its name."""
    return {path.parent.name[9:]: json.loads(path.read_text())["state"] for path in folder.glob("*/status.json")}


def test_R13_a_sweep_as_an_array_with_a_failing_and_a_hanging_run(slurm: Slurm, tmp_path: Path) -> None:
    lines = ["echo $(hostname) $OMP_NUM_THREADS > $ENCODERY_RUN_DIR/host", "echo no; exit 7", "sleep 600", "kill -9 $$"]
    (tmp_path / "cmds.txt").write_text("".join(f"{line}\n" for line in lines))
    words = ["sweep", "run", "--commands", "cmds.txt", "--executor=slurm", "--devices=cpu:4", "--timeout=20s"]
    done = encodery(slurm, tmp_path, *words, "--retries=0", "-o", "sweep", check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert sorted(sweep_states(tmp_path / "sweep").values()) == ["done", "failed", "failed", "timeout"]
    jobs = json.loads((tmp_path / "sweep" / ".sweep" / "slurm" / "jobs.json").read_text())
    assert len({job.partition("_")[0] for job in jobs.values()}) == 1  # one array
    (told,) = (tmp_path / "sweep").glob("*/host")
    assert told.read_text() in ("ha 1\n", "hb 1\n")  # a job that asks for one CPU has one thread


@once
def test_a_sweep_says_why_it_waits_and_stops_on_request(slurm: Slurm, tmp_path: Path) -> None:
    (tmp_path / "cmds.txt").write_text("".join(f"sleep 60{i}\n" for i in range(2)))
    words = ["sweep", "run", "--commands", "cmds.txt", "--executor=slurm", "--devices=cpu:1", "-o", "sweep"]
    driver = slurm.hosts.start(
        "ha", sys.executable, "-m", "encodery", *words, log=tmp_path / "log", folder=tmp_path, env=slurm.variables()
    )
    folder = tmp_path / "sweep"
    until(lambda: sorted(slurm.queue().values()) == ["PENDING", "RUNNING"], 60, "one of two runs", tmp_path / "log")
    until(lambda: "running" in sweep_states(folder).values(), 60, "the run has begun")
    shown = encodery(slurm, tmp_path, "sweep", "status", "sweep").stdout
    assert re.search(r"queued .* Slurm job \d+_1 waits: JobArrayTaskLimit", shown), shown
    seen = encodery(slurm, tmp_path, "watch", "sweep", "--once").stdout
    assert "waits: JobArrayTaskLimit" in seen
    encodery(slurm, tmp_path, "sweep", "stop", "sweep")
    until(lambda: driver.process.poll() is not None, 120, "the sweep's command ends", tmp_path / "log")
    assert driver.process.returncode == 3
    assert not slurm.queue()
    assert set(sweep_states(folder).values()) == {"stopped"}


@once
def test_the_example_as_people_type_it(slurm: Slurm, tmp_path: Path) -> None:
    folder = tmp_path / "slurm"
    shutil.copytree(EXAMPLE, folder)
    train, sweep = commands_of(folder / "README.md")
    slurm.run("ha", "sh", "-c", train, folder=folder, env=with_encodery())
    slurm.run("ha", "sh", "-c", sweep, folder=folder, env=with_encodery())
    until((folder / "runs" / "nli" / "DONE").exists, 200, "the training is done")
    assert len(list((folder / "runs" / "rates").glob("*/DONE"))) == 2


@once
def test_P21_D5_shards_made_by_jobs_have_the_same_bytes(slurm: Slurm, tmp_path: Path, trained: Any) -> None:
    corpus = str(EXAMPLE / "corpus.yaml")
    encodery(slurm, tmp_path, "prepare", corpus, "-o", "there", "--executor=slurm")
    subprocess.run([sys.executable, "-m", "encodery", "prepare", corpus, "-o", "here"], cwd=tmp_path, check=True)
    assert content(tmp_path / "there") == content(tmp_path / "here")
    run = trained("single")
    words = ["embed", str(run), "--on", f"{RunDir(run).info()['task']}:train", "--device=cpu"]
    encodery(slurm, tmp_path, *words, "-o", "vectors-there", "--executor=slurm")
    subprocess.run([sys.executable, "-m", "encodery", *words, "-o", "vectors-here"], cwd=tmp_path, check=True)
    assert content(tmp_path / "vectors-there") == content(tmp_path / "vectors-here")


def commands_of(page: Path) -> list[str]:
    """The two commands of an example."""
    block = page.read_text().partition("```bash\n")[2].partition("```")[0]
    return block.strip().splitlines()


def with_encodery() -> dict[str, str]:
    """`encodery` on the path, as in an activated environment."""
    return {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}:/usr/sbin:/sbin"}


def content(folder: Path) -> dict[str, bytes]:
    found = {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
    assert len(found) > 2
    return found
