"""Whole runs on a pretend GPU: every tensor where it belongs, in all precisions and layouts, resumed, two at a time."""

import itertools
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.pretend import jobs
from tests.pretend.gpu import PretendGpu

pytestmark = pytest.mark.slow

# One method of each way to make a gradient meets every objective; the others, which share their code, meet one each.
MECHANISMS = ["plain", "fgm", "freelb", "smart", "rdrop", "sam", "yopo"]
OTHERS = {
    "alum": "forms", "awp": "mlm", "fgsm": "electra", "pgd": "amos", "r3f": "forms", "r4f": "forms", "sift": "electra",
    "vat": "amos", "freeat": "forms", "importance": "classification",
}  # fmt: skip
OBJECTIVES = ["forms", "mlm", "electra", "amos"]
PRECISIONS = ["fp32", "bf16", "fp16"]
LAYOUTS = ["packed", "rows", "padded"]


def cover() -> list[dict[str, str]]:
    """Every pair of values of two of the four, in 38 runs."""
    squares = [(m, o, i + j, 2 * i + j) for i, m in enumerate(MECHANISMS) for j, o in enumerate(OBJECTIVES)]
    squares += [(m, o, i, i // 3) for i, (m, o) in enumerate(OTHERS.items())]
    names = ("method", "objective", "precision", "layout")
    return [dict(zip(names, (m, o, PRECISIONS[p % 3], LAYOUTS[q % 3]), strict=True)) for m, o, p, q in squares]


def test_the_runs_cover_every_pair() -> None:
    values = {"method": MECHANISMS, "objective": OBJECTIVES, "precision": PRECISIONS, "layout": LAYOUTS}
    cases = cover()
    assert len(cases) <= 40
    for one, two in itertools.combinations(values, 2):
        seen = {(case[one], case[two]) for case in cases}
        assert set(itertools.product(values[one], values[two])) <= seen, (one, two)
    kinds = {path.stem for path in Path(jobs.__file__).parents[2].glob("encodery/methods/[a-z]*.py")} - {"base"}
    assert {case["method"] for case in cases} == kinds


@pytest.mark.parametrize("case", cover(), ids=lambda case: "-".join(case.values()))
def test_a_run_ends_with_done(tmp_path: Path, pretend_gpu: PretendGpu, case: dict[str, str]) -> None:
    found = pretend_gpu.call(jobs.train, jobs.settings(str(tmp_path), case), str(tmp_path / "run"))
    assert found["done"]
    assert len(found["losses"]) >= 2
    finite = [loss is not None and math.isfinite(loss) for loss in found["losses"]]
    assert all(finite) or case["precision"] == "fp16"  # which may skip steps until its scale fits


def test_one_run_of_make_test_ends_with_done(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """What `make test` has of this: the fixture is not named above, so this test is not marked `accelerator`."""
    case = {"method": "freelb", "objective": "electra", "precision": "bf16", "layout": "packed"}
    gpu = request.getfixturevalue("pretend_gpu")
    test_a_run_ends_with_done(tmp_path, gpu, case)


RESUMED = [
    {"method": "freelb", "objective": "forms", "precision": "bf16", "layout": "packed"},
    {"method": "plain", "objective": "electra", "precision": "fp16", "layout": "rows"},
    {"method": "smart", "objective": "amos", "precision": "fp32", "layout": "packed"},
]


@pytest.mark.parametrize("case", RESUMED, ids=lambda case: "-".join(case.values()))
def test_a_killed_run_resumes_to_the_same_numbers(
    tmp_path: Path, pretend_gpu: PretendGpu, case: dict[str, str]
) -> None:
    tree = jobs.settings(str(tmp_path), case, save="2 steps", log=1)
    straight = pretend_gpu.call(jobs.train, tree, str(tmp_path / "straight"))
    again = pretend_gpu.call(jobs.stop_and_resume, tree, str(tmp_path / "killed"), 3)
    assert (again["losses"], again["norms"]) == (straight["losses"], straight["norms"])
    assert len(straight["losses"]) == 4


@pytest.mark.parametrize("objective", ["forms", "mlm"])
def test_the_numbers_are_those_of_a_cpu(tmp_path: Path, pretend_gpu: PretendGpu, objective: str) -> None:
    case = {"method": "plain", "objective": objective, "precision": "fp32", "layout": "packed"}
    runs: dict[str, Any] = {}
    for device in ("cpu", "cuda"):
        tree = jobs.settings(str(tmp_path), case, device, log=1)
        tree["model"] |= {"dropout": 0.0, "attention_dropout": 0.0}  # a device has its own way to draw masks
        runs[device] = pretend_gpu.call(jobs.train, tree, str(tmp_path / device))
    assert runs["cuda"]["losses"] == pytest.approx(runs["cpu"]["losses"], rel=1e-5)
    assert runs["cuda"]["norms"] == pytest.approx(runs["cpu"]["norms"], rel=1e-4)


def test_a_run_and_doctor_name_the_back_ends_of_attention(tmp_path: Path, pretend_gpu: PretendGpu) -> None:
    case = {"method": "plain", "objective": "classification", "precision": "bf16", "layout": "packed"}
    found = pretend_gpu.call(jobs.train, jobs.settings(str(tmp_path), case), str(tmp_path / "bert"))
    assert found["run"]["attention"] == {"training": "nested", "evaluation": "varlen"}
    biased = pretend_gpu.call(
        jobs.train, jobs.settings(str(tmp_path), case | {"objective": "amos"}), str(tmp_path / "amos")
    )
    reason = "no kernel supports a position bias"
    assert biased["run"]["attention"] == {"training": "groups", "evaluation": "groups", "why": reason}
    line = f"attention: {reason}, so sequences are padded in groups of similar length"
    assert line in (tmp_path / "amos" / "log.txt").read_text()
    words = [sys.executable, "-m", "encodery", "doctor"]
    done = subprocess.run(words, env=pretend_gpu.environment, capture_output=True, text=True, check=False)
    said = next(one for one in done.stdout.splitlines() if one.startswith("attention"))
    assert said.split(None, 1)[1] == (
        "varlen (half precision), nested (with dropout), varlen (with a window), nested (fp32)"
    )


def test_a_sweep_gives_each_run_a_device_of_its_own(tmp_path: Path, pretend_gpu: PretendGpu) -> None:
    case = {"method": "plain", "objective": "classification", "precision": "bf16", "layout": "packed"}
    base, out, seen = tmp_path / "base.yaml", tmp_path / "sweep", tmp_path / "seen"
    base.write_text(json.dumps(jobs.settings(str(tmp_path), case)))
    words = ["sweep", "run", str(base), "--seeds", "3", "--devices", "0,1", "-o", str(out), "--quiet"]
    environment = {**pretend_gpu.environment, "ENCODERY_PRETEND_LOG": str(seen)}
    done = subprocess.run(
        [sys.executable, "-m", "encodery", *words], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    about = [json.loads(path.read_text()) for path in out.rglob("status.json")]
    assert [run["state"] for run in about] == ["done"] * 3
    assert {run["device"] for run in about} == {"cuda:0", "cuda:1"}
    told = dict(line.split(" ", 1) for line in seen.read_text().splitlines())
    for run in about:  # what the process itself saw: one device, the one it was given
        assert told[str(run["pid"])] == f"{run['device'].removeprefix('cuda:')} 1"
