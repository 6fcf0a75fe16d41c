"""A real Ray on two hosts: a sweep that loses a node, shards, and a token that is not ours."""

import shutil
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from encodery.cli import main
from tests.engines import ray_server
from tests.engines.conftest import ROOT, skip_without
from tests.engines.ray_server import Ray
from tests.engines.test_slurm import commands_of, content, with_encodery
from tests.engines.two_hosts import until
from tests.sweep.runs import states

EXAMPLE = ROOT / "examples" / "ray"
pytestmark = pytest.mark.timeout(1500)


@pytest.fixture(scope="module")
def ray() -> Iterator[Ray]:
    skip_without("Ray on two hosts", ray_server.missing())
    with Ray() as cluster:
        yield cluster


def encodery(*words: str) -> list[str]:
    return [sys.executable, "-m", "encodery", *words]


def test_R13_a_sweep_goes_on_when_a_node_is_lost(ray: Ray, tmp_path: Path) -> None:
    if "hb" not in ray.nodes:
        ray.join()
    lines = [f'echo {i} $(hostname) >> "{tmp_path}/begun"; sleep 3; echo {i} >> "{tmp_path}/ended"' for i in range(6)]
    (tmp_path / "cmds.txt").write_text("".join(f"{line}\n" for line in lines))
    words = encodery("sweep", "run", "--commands", "cmds.txt", "--executor=ray", "--devices=cpu:2", "-o", "sweep")
    done = []
    thread = threading.Thread(target=lambda: done.append(ray.run("ha", *words, folder=tmp_path, check=False)))
    thread.start()
    begun = tmp_path / "begun"
    until(lambda: begun.exists() and "hb" in begun.read_text(), 120, "a run on the second host")
    ray.leave()
    thread.join()
    assert done[0].returncode == 0, done[0].stdout + done[0].stderr
    assert set(states(tmp_path / "sweep").values()) == {"done"}
    assert Counter((tmp_path / "ended").read_text().split()) == Counter(str(i) for i in range(6))  # each once


def test_P21_the_example_as_people_type_it(ray: Ray, tmp_path: Path) -> None:
    if "hb" not in ray.nodes:
        ray.join()
    folder = tmp_path / "ray"
    shutil.copytree(EXAMPLE, folder)
    for command in commands_of(folder / "README.md"):
        ray.run("ha", "sh", "-c", command, folder=folder, env=with_encodery())
    assert len(list((folder / "runs" / "rates").glob("*/DONE"))) == 2
    assert main(["prepare", str(folder / "corpus.yaml"), "-o", str(tmp_path / "here")]) == 0
    assert content(folder / "blocks") == content(tmp_path / "here")


def test_a_wrong_token_is_a_sentence(tmp_path: Path) -> None:
    skip_without("Ray on two hosts", ray_server.missing())
    with Ray({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "ours" * 8}) as cluster:
        (tmp_path / "cmds.txt").write_text("true\n")
        words = encodery("sweep", "run", "--commands", "cmds.txt", "--executor=ray", "-o", "sweep")
        done = cluster.run("ha", *words, folder=tmp_path, check=False, env={"RAY_AUTH_TOKEN": "theirs" * 6})
        assert done.returncode == 2, done.stdout + done.stderr
        assert "for a token" in done.stderr
        assert "~/.ray/auth_token" in done.stderr
        assert "RAY_AUTH_MODE=disabled" in done.stderr
        assert "Traceback" not in done.stderr
