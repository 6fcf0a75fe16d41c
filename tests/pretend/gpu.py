"""The fixture `pretend_gpu`: a machine with two pretend GPUs, for jobs of this process and for whole programs."""

import json
import os
import select
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.toolbox.processes import free_port

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
DRIVER = """#!/bin/sh
case "$1" in
-L) for i in 0 1; do echo "GPU $i: Pretend GPU (UUID: GPU-$i$i)"; done;;
*) echo '0, GPU-00, 81000'; echo '1, GPU-11, 81000';;
esac
"""


def mark(items: list[pytest.Item]) -> None:
    """Every test that names the fixture has the marker `accelerator`."""
    for item in items:
        if "pretend_gpu" in getattr(item, "fixturenames", ()):
            item.add_marker("accelerator")


class PretendGpu:
    """How to start a process that has pretend GPUs, and one that does jobs."""

    def __init__(self, folder: Path, guard: Path) -> None:
        self.folder, self.guard = folder, guard
        driver = folder / "nvidia-smi"
        driver.write_text(DRIVER)
        driver.chmod(0o755)
        self.worker: subprocess.Popen[str] | None = None
        self.pair: list[subprocess.Popen[str]] = []

    @property
    def environment(self) -> dict[str, str]:
        """Variables for a program and all that it starts."""
        path = [str(HERE / "site"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        hidden = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
        return {
            **hidden,
            "PATH": f"{self.folder}:{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(path),
            "ENCODERY_PRETEND_GUARD": str(self.guard),
            "OMP_NUM_THREADS": "1",
        }

    def call(self, job: Callable[..., Any], *args: Any) -> Any:
        """What a function of a module, given JSON, returns in the process with the devices."""
        if self.worker is None or self.worker.poll() is not None:
            self.worker = self.start()
        return self.answers([self.worker], job, args)[0]

    def call_together(self, job: Callable[..., Any], *args: Any) -> list[Any]:
        """The same in two processes that train together, with one device each and messages over gloo: by rank."""
        if not self.pair or any(worker.poll() is not None for worker in self.pair):
            common = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
            common |= {"GLOO_SOCKET_IFNAME": "lo", "ENCODERY_PRETEND_NCCL": "1"}
            self.pair = [self.start(**common, RANK=str(rank), LOCAL_RANK=str(rank)) for rank in range(2)]
        return self.answers(self.pair, job, args)

    def start(self, **more: str) -> "subprocess.Popen[str]":
        """A process that does jobs."""
        with (self.folder / "worker.txt").open("a") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.pretend.worker"], cwd=ROOT, env={**self.environment, **more}, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
            )  # fmt: skip

    def answers(self, workers: Sequence["subprocess.Popen[str]"], job: Callable[..., Any], args: Any) -> list[Any]:
        """What these processes, who begin at the same time, return."""
        for worker in workers:
            assert worker.stdin is not None
            print(json.dumps({"module": job.__module__, "name": job.__name__, "args": args}), file=worker.stdin)
            worker.stdin.flush()
        missing, found = {one.stdout: one for one in workers if one.stdout}, dict[int, Any]()
        while missing:
            for stream in select.select(list(missing), [], [])[0]:
                worker, answer = missing.pop(stream), json.loads(stream.readline() or "{}")
                if "value" not in answer and len(workers) > 1:
                    self.end(workers, 0)  # the other may wait for this one
                if not answer:
                    log = (self.folder / "worker.txt").read_text()
                    pytest.fail(f"a process with pretend GPUs died:\n{log[-3000:]}")
                if "error" in answer:
                    pytest.fail(answer["error"])
                found[worker.pid] = answer["value"]
        return [found[worker.pid] for worker in workers]

    @staticmethod
    def end(workers: Iterable["subprocess.Popen[str]"], seconds: float = 60) -> None:
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.close()
        for worker in workers:
            try:
                worker.wait(seconds)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()


def build(folder: Path) -> Path:
    """The library with the devices, compiled against the torch that is installed."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no pretend GPU: there is no g++ to compile it with")
    import torch

    if torch.version.cuda is not None:
        pytest.skip("no pretend GPU: this torch is built for real ones")
    home, library = Path(torch.__file__).parent, folder / "guard.so"
    words = ["-std=c++20", "-shared", "-fPIC", "-O0", f"-I{home}/include", f"-L{home}/lib", f"-Wl,-rpath,{home}/lib"]
    command = [compiler, *words, str(HERE / "guard.cpp"), "-o", str(library), "-lc10", "-ltorch_cpu"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.fail(f"the pretend GPU does not compile:\n{done.stderr[-3000:]}")
    return library


@pytest.fixture(scope="session")
def pretend_gpu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PretendGpu]:
    """Two pretend GPUs; compiled once in a session."""
    folder = tmp_path_factory.mktemp("pretend-gpu")
    made = PretendGpu(folder, build(folder))
    yield made
    made.end(made.pair, 0)
    made.end([made.worker] if made.worker else [])
