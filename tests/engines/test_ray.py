"""A real Ray on two hosts: a sweep that loses a node, shards, and a token that is not ours."""

import shutil
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from encodery.cli import main
from encodery.runs.directory import RunDir
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
    begun, ended = tmp_path / "begun", tmp_path / "ended"
    # Both hosts get a run, however slow they are, and none ends on the second one.
    wait = f'until [ $(hostname) = ha ] && grep -q hb "{begun}"; do sleep 0.2; done'
    lines = [f'echo {i} $(hostname) >> "{begun}"; {wait}; echo {i} >> "{ended}"' for i in range(6)]
    (tmp_path / "cmds.txt").write_text("".join(f"{line}\n" for line in lines))
    words = encodery("sweep", "run", "--commands", "cmds.txt", "--executor=ray", "--devices=cpu:2", "-o", "sweep")
    done = []
    thread = threading.Thread(target=lambda: done.append(ray.run("ha", *words, folder=tmp_path, check=False)))
    thread.start()
    until(lambda: begun.exists() and "hb" in begun.read_text(), 120, "a run on the second host")
    ray.leave()
    thread.join()
    assert done[0].returncode == 0, done[0].stdout + done[0].stderr
    assert set(states(tmp_path / "sweep").values()) == {"done"}
    assert Counter(ended.read_text().split()) == Counter(str(i) for i in range(6))  # each once
    places = [line.split() for line in begun.read_text().splitlines()]
    (number,) = [number for number, host in places if host == "hb"]
    assert [host for one, host in places if one == number] == ["hb", "ha"]  # what was in hand is done elsewhere
    assert len(places) == 7  # and nothing else twice


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


def test_D5_vectors_made_by_nodes_have_the_same_bytes(ray: Ray, tmp_path: Path, trained: Any) -> None:
    if "hb" not in ray.nodes:
        ray.join()
    run = trained("single")
    words = ["embed", str(run), "--on", f"{RunDir(run).info()['task']}:train", "--device=cpu"]
    ray.run("ha", *encodery(*words, "-o", "there", "--executor=ray"), folder=tmp_path)
    subprocess.run(encodery(*words, "-o", "here"), cwd=tmp_path, check=True)
    assert content(tmp_path / "there") == content(tmp_path / "here")


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
