"""torchrun on two hosts without a cluster: one of them is cut off in the middle, and comes back."""

import sys
from pathlib import Path

import pytest

from encodery.runs.directory import RunDir
from tests.engines import two_hosts
from tests.engines.conftest import skip_without
from tests.engines.trainings import STEPS, Undisturbed, config, results, slow_until
from tests.engines.two_hosts import NAMES, Server, TwoHosts, until

pytestmark = pytest.mark.timeout(1200)


def start(hosts: TwoHosts, folder: Path, meeting: str, **variables: str) -> dict[str, Server]:
    """The command of docs/scale.md on both hosts."""
    about = ["--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d", "--rdzv-endpoint=ha:29500"]
    train = ["-m", "encodery", "train", str(folder / "train.yaml"), "-o", str(folder / "run"), "--quiet"]
    command = [sys.executable, "-m", "torch.distributed.run", *about, f"--rdzv-id={meeting}", *train]
    env = {**slow_until(folder / "fast"), **variables}
    return {host: hosts.start(host, *command, log=folder / f"{host}.log", folder=folder, env=env) for host in NAMES}


def ended(server: Server, seconds: float) -> int:
    """The exit code, once it is there."""
    until(lambda: server.process.poll() is not None, seconds, "the end of torchrun", server.log)
    return int(server.process.returncode)


def test_R14_a_host_that_is_cut_off_and_comes_back(tmp_path: Path, undisturbed: Undisturbed) -> None:
    skip_without("two hosts", two_hosts.missing())
    config(tmp_path, save="5 steps")
    run = RunDir(tmp_path / "run")
    with TwoHosts(tmp_path) as hosts:
        servers = start(hosts, tmp_path, "first", ENCODERY_BEAT="2")  # sooner than by default
        until(lambda: list(run.path.glob("checkpoints/*")), 200, "a checkpoint", servers["ha"].log)
        hosts.unplug("hb")
        assert ended(servers["ha"], 90) != 0
        assert "rank 1 has not answered for 24 s" in servers["ha"].log.read_text()
        hosts.plug("hb")
        assert ended(servers["hb"], 90) != 0
        assert not (run.path / "DONE").exists()
        (tmp_path / "fast").touch()
        servers = start(hosts, tmp_path, "second")
        for host in NAMES:
            assert ended(servers[host], 200) == 0, servers[host].log.read_text()
    assert (run.path / "DONE").exists()
    assert f" of {STEPS}" in (run.path / "log.txt").read_text().partition("resuming at step ")[2]
    assert sorted({int(one["step"]) for one in run.metrics() if "loss" in one})[-1] == STEPS
    assert results(run) == results(undisturbed(2))
