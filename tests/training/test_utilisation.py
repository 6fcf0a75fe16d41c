"""MFU and peak memory: numbers by hand, the table of devices, and where they are shown."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import encodery as en
from encodery.cli import main
from encodery.core.progress import Progress
from encodery.models import flops
from encodery.runs.directory import RunDir
from encodery.training.loop import TrainState
from encodery.training.run import train_run
from encodery.training.utilisation import PEAKS, Meter, peak_of
from tests.pretend import jobs
from tests.pretend.gpu import PretendGpu
from tests.toolbox.models import small_config
from tests.toolbox.runs import resolve, settings


def raw(folder: RunDir) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder.path / "metrics.jsonl").read_text().splitlines()]


CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.mark.parametrize(
    ("name", "precision", "tf32", "wanted"),
    [
        ("NVIDIA A100-SXM4-80GB", "bf16", False, 312e12),
        ("NVIDIA A100-SXM4-80GB", "fp32", True, 156e12),
        ("NVIDIA A100-SXM4-80GB", "fp32", False, 19.5e12),
        ("NVIDIA H100 PCIe", "bf16", False, 756e12),
        ("NVIDIA H100 80GB HBM3", "bf16", False, 989e12),
        ("NVIDIA L40S", "bf16", False, 362e12),
        ("NVIDIA L4", "fp16", False, 121e12),
        ("NVIDIA A10G", "bf16", False, 70e12),
        ("Tesla T4", "fp16", False, 65e12),
        ("A device of next year", "bf16", False, None),
    ],
)
def test_the_table_of_devices(
    monkeypatch: pytest.MonkeyPatch, name: str, precision: str, tf32: bool, wanted: float | None
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: name)
    assert peak_of(GPU, precision, tf32) == wanted
    assert peak_of(CPU, precision, tf32) is None


def test_no_name_hides_a_longer_one() -> None:
    names = list(PEAKS)
    for i, short in enumerate(names):
        assert not [name for name in names[i + 1 :] if short in name], short


def test_mfu_is_the_share_of_the_peak_rate_since_the_last_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda _: 12_300_000_000)
    state = TrainState(9, flops=1e12, elapsed=5.0)
    meter = Meter.of(state, GPU, 100e12)
    state.flops, state.elapsed = 1e12 + 60e12, 7.0
    assert meter.measure(state) == {"memory": 12_300_000_000, "mfu": 0.3}
    assert meter.words() == "30% MFU  12.3 GB"
    assert meter.measure(state) == {"memory": 12_300_000_000}  # nothing was done since
    assert Meter.of(state, CPU, None).measure(state) == {}


def test_a_step_with_labels_costs_three_passes_of_the_body() -> None:
    config, lengths = small_config("bert"), np.array([5, 3])
    linear = 8 * 16 * 16 + 4 * 16 * 32
    by_hand = 3 * (8 * 2 * linear + 4 * 16 * 2 * (25 + 9))
    assert flops.labelled(config, lengths) == by_hand
    assert flops.labelled(SimpleNamespace(hidden_size=4, model_type="own"), lengths) == 0


@pytest.mark.slow
def test_a_run_logs_mfu_where_a_rate_is_given_and_its_arithmetic_is_known(tmp_path: Path) -> None:
    few = {"max_steps": 30, "evaluate": "never", "log": 10}  # times in the log are rounded: one step is too short
    said: list[str] = []
    progress = Progress(peak=1e9)
    progress.say = said.append  # type: ignore[method-assign]
    plain = train_run(resolve(settings(tmp_path, train=few)), tmp_path / "plain", progress=progress)
    lines = [line for line in raw(plain) if "loss" in line]
    assert all(line["mfu"] > 0 for line in lines)
    first, last = lines[0], lines[-1]
    between = (last["flops"] - lines[1]["flops"]) / (last["elapsed"] - lines[1]["elapsed"]) / 1e9
    assert last["mfu"] == pytest.approx(between, rel=0.05)
    assert first["flops"] > 0
    assert any("MFU" in line for line in said)
    en.report(tmp_path / "plain", out=tmp_path / "page.html")
    assert "Model FLOPs utilisation" in (tmp_path / "page.html").read_text()
    freelb = resolve(settings(tmp_path, train=few, method={"kind": "freelb"}))
    other = train_run(freelb, tmp_path / "freelb", progress=Progress(True, peak=1e9))
    assert not [line for line in raw(other) if "mfu" in line or "flops" in line]


@pytest.mark.slow
def test_the_rate_of_another_device_is_an_option_of_train(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "run.yaml"
    config.write_text(json.dumps(settings(tmp_path, train={"max_steps": 2, "evaluate": "never", "log": 1})))
    words = ["train", str(config), "--quiet", "-o"]
    assert main([*words, str(tmp_path / "none"), "--peak-tflops", "0"]) == 2
    assert "--peak-tflops: must be above 0" in capsys.readouterr().err
    assert main([*words, str(tmp_path / "one"), "--peak-tflops", "0.001"]) == 0
    lines = [json.loads(line) for line in (tmp_path / "one" / "metrics.jsonl").read_text().splitlines()]
    assert [line["mfu"] > 0 for line in lines if "loss" in line] == [True, True]


@pytest.mark.slow
def test_a_gpu_logs_peak_memory_and_the_page_shows_it(tmp_path: Path, pretend_gpu: PretendGpu) -> None:
    case = {"method": "plain", "objective": "mlm", "precision": "bf16", "layout": "packed"}
    tree: dict[str, Any] = jobs.settings(str(tmp_path), case, log=1)
    pretend_gpu.call(jobs.train, tree, str(tmp_path / "run"))
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert {line["memory"] for line in lines if "loss" in line} == {3 * 2**20}
    assert not [line for line in lines if "mfu" in line]  # a pretend device is in no table
    en.report(tmp_path / "run", out=tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "Peak memory" in page
    assert "Model FLOPs utilisation" not in page
