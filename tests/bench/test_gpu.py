"""`make bench-gpu`, rehearsed on the pretend GPU: its sections give figures, and one survives another's failure."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.pretend.gpu import ROOT, PretendGpu

ONE_TEST = "tests/distributed/test_overlap.py::test_there_is_none_with_one_process_or_on_a_cpu"
SHORT = ["--size", "tiny", "--steps", "1", "--rounds", "1", "--workers", "0", "--tests", ONE_TEST]


def bench(gpu: PretendGpu, folder: Path, length: int, *sections: str, **more: str) -> tuple[int, str, dict[str, Any]]:
    """Exit code, what was printed, and the file to send back."""
    out = folder / "gpu.json"
    words = [sys.executable, "gpu.py", *SHORT, "--length", str(length), "--sections", *sections, "--out", str(out)]
    done = subprocess.run(
        words, cwd=ROOT / "bench", env={**gpu.environment, **more}, capture_output=True, text=True, check=False,
        timeout=280,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr, json.loads(out.read_text())


@pytest.mark.slow
def test_a_section_survives_the_failure_of_another(tmp_path: Path, pretend_gpu: PretendGpu) -> None:
    code, said, found = bench(pretend_gpu, tmp_path, 2, "pretraining", "equality")  # no run takes 2 tokens
    assert code == 1
    assert "FAILED: pretraining" in said
    assert "max_length" in found["pretraining"]["FAILED"]
    assert found["machine"]["devices"] == ["Pretend GPU", "Pretend GPU"]
    assert found["equality"]["draws"]["uniform"] == "equal to the bit"
    assert set(found["equality"]["attention"]) == {
        f"{family} {kind}" for family in ("bert", "modernbert") for kind in ("float32", "bfloat16")
    }


@pytest.mark.slow
def test_pretraining_has_tokens_a_second_and_back_ends(tmp_path: Path, pretend_gpu: PretendGpu) -> None:
    code, said, found = bench(pretend_gpu, tmp_path, 64, "pretraining")
    assert code == 0, said
    for kind in ("mlm", "electra"):
        assert found["pretraining"][kind]["tokens/s"] > 0
        assert found["pretraining"][kind]["attention"] == {"training": "nested", "evaluation": "varlen"}


@pytest.mark.slow
def test_host_time_has_all_sides(tmp_path: Path, pretend_gpu: PretendGpu) -> None:
    code, said, found = bench(pretend_gpu, tmp_path, 64, "host")
    assert code == 0, said
    sides = {"plain": ("trainer", "bare"), "freelb": ("bare",), "mlm": ("trainer", "bare")}
    for kind, others in sides.items():
        figures = found["host"][f"{kind}, 2 x 8"]
        assert figures.keys() == {f"{side}, ms" for side in ("ours", *others)} | {f"ours / {side}" for side in others}


@pytest.mark.slow
def test_one_and_two_devices_have_the_same_losses(tmp_path: Path, pretend_gpu: PretendGpu) -> None:
    code, said, found = bench(pretend_gpu, tmp_path, 64, "processes", "tests", ENCODERY_PRETEND_NCCL="1")
    assert code == 0, said
    assert found["processes"]["1 device(s)"]["losses differ by"] == 0
    assert found["processes"]["2 device(s)"]["losses differ by"] < 0.01
    assert "1 passed" in found["tests"]["passed"]


@pytest.mark.slow
def test_processes_without_nccl_say_so_at_once(tmp_path: Path, pretend_gpu: PretendGpu) -> None:
    code, _, found = bench(pretend_gpu, tmp_path, 64, "processes")
    assert code == 1
    assert "exchange gradients through nccl, which this build of torch lacks" in found["processes"]["FAILED"]
    assert "restart" not in found["processes"]["FAILED"]


@pytest.mark.slow
def test_without_a_gpu_it_says_so() -> None:
    done = subprocess.run(
        [sys.executable, "gpu.py"], cwd=ROOT / "bench", capture_output=True, text=True, check=False, timeout=200
    )
    assert (done.returncode, done.stderr.strip()) == (2, "There is no GPU here: nothing was measured.")
