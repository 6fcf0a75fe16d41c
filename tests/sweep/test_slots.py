"""Devices become slots; nothing here needs a GPU, a driver that answers is played by a script."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from encodery.cli import main
from encodery.errors import UserError
from encodery.sweep import slots
from encodery.sweep.slots import Accelerators, Slot, accelerators, find_slots, free_memory, has_room
from encodery.sweep.sweep_file import Resources


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with three NVIDIA GPUs, of which the second is full."""
    script = tmp_path / "nvidia-smi"
    script.write_text(
        '#!/bin/sh\ncase "$1" in\n-L) for i in 0 1 2; do echo "GPU $i: X (UUID: GPU-$i$i)"; done;;\n'
        "*) echo '0, GPU-00, 9000'; echo '1, GPU-11, 100'; echo '2, GPU-22, 9000';;\nesac\n"
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return tmp_path


@pytest.fixture
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "cores_here", lambda: [0, 1, 2, 3])


def test_all_means_every_gpu(driver: Path) -> None:
    found = find_slots(Resources())
    assert [slot.environment()["CUDA_VISIBLE_DEVICES"] for slot in found] == ["0", "1", "2"]
    assert found[0].environment()["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert found[2].label == "cuda:2"


def test_an_inherited_choice_of_devices_is_respected(driver: Path) -> None:
    environment = {"CUDA_VISIBLE_DEVICES": "2,GPU-00"}
    assert [s.devices for s in find_slots(Resources(), environment)] == [("2",), ("GPU-00",)]
    assert [s.devices for s in find_slots(Resources(devices="1"), environment)] == [("GPU-00",)]
    assert "CUDA_DEVICE_ORDER" not in find_slots(Resources(), environment)[0].environment()
    with pytest.raises(UserError, match="no device 2"):
        find_slots(Resources(devices="2"), environment)


@pytest.mark.parametrize("hidden", ["", "-1"])
def test_hidden_gpus_leave_the_cpu(driver: Path, hidden: str) -> None:
    assert {s.kind for s in find_slots(Resources(), {"CUDA_VISIBLE_DEVICES": hidden})} == {"cpu"}


def test_uuids_are_taken_as_they_are(driver: Path) -> None:
    assert [s.devices for s in find_slots(Resources(devices="GPU-22,GPU-00"), {})] == [("GPU-22",), ("GPU-00",)]


def test_several_runs_on_a_device_and_several_devices_for_a_run(driver: Path) -> None:
    assert [s.devices for s in find_slots(Resources(runs_per_device=2), {})] == [("0",), ("1",), ("2",)] * 2
    assert [s.devices for s in find_slots(Resources(per_run=0.5), {})] == [("0",), ("1",), ("2",)] * 2
    assert [s.devices for s in find_slots(Resources(per_run=2), {})] == [("0", "1")]
    with pytest.raises(UserError, match="4 devices for a run, but there are 3"):
        find_slots(Resources(per_run=4), {})


def test_a_gpu_without_room_gets_no_run(driver: Path) -> None:
    free, wanted = free_memory(), Resources(min_free_memory="1GB").free_bytes
    assert [has_room(slot, wanted, free) for slot in find_slots(Resources(), {})] == [True, False, True]
    assert not has_room(Slot(0, "cuda", ("GPU-11",), 1), wanted, free)


@pytest.mark.parametrize(
    ("kind", "variable"),
    [("hip", "HIP_VISIBLE_DEVICES"), ("xpu", "ZE_AFFINITY_MASK"), ("cuda", "CUDA_VISIBLE_DEVICES")],
)
def test_each_maker_has_its_variable(monkeypatch: pytest.MonkeyPatch, kind: slots.Kind, variable: str) -> None:
    monkeypatch.setattr(slots, "_ASK", ((kind, lambda: 2),))
    assert accelerators({}) == Accelerators(kind, ("0", "1"))
    assert [slot.environment()[variable] for slot in find_slots(Resources(), {})] == ["0", "1"]
    assert accelerators({variable: "1"}) == Accelerators(kind, ("1",), inherited=True)


def test_cpu_slots_share_the_cores_out(four_cores: None) -> None:
    assert [(s.cores, s.threads) for s in find_slots(Resources(devices="cpu:2"))] == [((0, 1), 2), ((2, 3), 2)]
    assert [s.cores for s in find_slots(Resources(devices="cpu"))] == [(0,), (1,), (2,), (3,)]
    assert [s.cores for s in find_slots(Resources(devices="cpu", per_run=2))] == [(0, 1), (2, 3)]
    assert find_slots(Resources(devices="cpu:2"))[0].environment()["CUDA_VISIBLE_DEVICES"] == ""


def test_W22_two_slots_on_two_cores_have_one_thread_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "cores_here", lambda: [0, 1])
    found = find_slots(Resources(devices="cpu:2"))
    assert [slot.environment()["OMP_NUM_THREADS"] for slot in found] == ["1", "1"]


@given(cores=st.integers(1, 70), count=st.integers(1, 90), share=st.integers(1, 3))
def test_cpu_slots_are_never_without_a_core_or_a_thread(cores: int, count: int, share: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slots, "cores_here", lambda: list(range(cores)))
        found = find_slots(Resources(devices=f"cpu:{count}", runs_per_device=share))
    assert len(found) == count * share
    assert all(slot.cores and slot.threads >= 1 for slot in found)
    assert {core for slot in found for core in slot.cores} == set(range(cores))
    assert [slot.number for slot in found] == list(range(len(found)))


def test_threads_can_be_said(four_cores: None) -> None:
    assert {s.threads for s in find_slots(Resources(devices="cpu:4", threads=3))} == {3}


@pytest.mark.parametrize("wanted", ["foo", "cuda", "gpu", "0", "0,1,7", "GPU-00", "cuda:0"])
def test_W27_devices_that_are_not_here_are_refused(wanted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "_ASK", ())
    with pytest.raises(UserError, match=f"devices: {wanted}: no GPU is visible"):
        find_slots(Resources(devices=wanted), {})


@pytest.mark.parametrize("wanted", ["foo", "7", "0,1,7", "GPU-33", "cuda:5"])
def test_W27_a_device_that_is_none_of_these_is_named(driver: Path, wanted: str) -> None:
    last = wanted.split(",")[-1].removeprefix("cuda:")
    with pytest.raises(UserError, match=f"there is no device {last}; 3 are visible here"):
        find_slots(Resources(devices=wanted), {})


def test_W27_another_maker_and_a_device_twice_are_refused(driver: Path) -> None:
    with pytest.raises(UserError, match="there is no mps here; use cuda"):
        find_slots(Resources(devices="mps"), {})
    with pytest.raises(UserError, match="names 1 twice"):
        find_slots(Resources(devices="1,1"), {})


@pytest.mark.parametrize("wanted", ["cuda", "gpu", "all", "0,1,2", "cuda:0,cuda:1,cuda:2"])
def test_W27_cuda_means_all_of_them(driver: Path, wanted: str) -> None:
    assert [s.devices for s in find_slots(Resources(devices=wanted), {})] == [("0",), ("1",), ("2",)]


def test_W27_the_sweep_verb_refuses_before_it_makes_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(slots, "_ASK", ())
    out, words = tmp_path / "out", ["recipe:toy/nli", "-o", str(tmp_path / "out"), "--devices", "cuda"]
    assert main(["sweep", "run", *words]) == 2
    assert "no GPU is visible" in capsys.readouterr().err
    assert not out.exists()
    (tmp_path / "lines").write_text("true\n")
    assert main(["sweep", "run", "--commands", str(tmp_path / "lines"), "-o", str(out), "--devices", "0,1"]) == 2
    assert not out.exists()
