"""The fixture `pretend_gpu`: a machine with two pretend GPUs, for jobs of this process and for whole programs."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

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
            with (self.folder / "worker.txt").open("a") as log:
                self.worker = subprocess.Popen(
                    [sys.executable, "-m", "tests.pretend.worker"], cwd=ROOT, env=self.environment, text=True,
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                )  # fmt: skip
        assert self.worker.stdin is not None
        assert self.worker.stdout is not None
        print(json.dumps({"module": job.__module__, "name": job.__name__, "args": args}), file=self.worker.stdin)
        self.worker.stdin.flush()
        answer = self.worker.stdout.readline()
        if not answer:
            pytest.fail("the process with pretend GPUs died:\n" + (self.folder / "worker.txt").read_text()[-3000:])
        found = json.loads(answer)
        if "error" in found:
            pytest.fail(found["error"])
        return found["value"]

    def end(self) -> None:
        if self.worker is not None:
            assert self.worker.stdin is not None
            self.worker.stdin.close()
            self.worker.wait(60)


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
    made.end()
