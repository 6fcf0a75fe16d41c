"""Devices → slots: how many runs may run at once, and which devices, cores and threads each of them sees. No torch."""

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from encodery.errors import UserError
from encodery.sweep.sweep_file import Resources

Kind = Literal["cuda", "hip", "xpu", "mps", "cpu"]
VISIBLE: dict[Kind, str] = {"cuda": "CUDA_VISIBLE_DEVICES", "hip": "HIP_VISIBLE_DEVICES", "xpu": "ZE_AFFINITY_MASK"}
ACCELERATORS = ("gpu", "cuda", "hip", "xpu", "mps")  # as words of `devices`: all of this kind
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS", "RAYON_NUM_THREADS")


@dataclass(frozen=True)
class Slot:
    """Room for one run at a time."""

    number: int
    kind: Kind
    devices: tuple[str, ...]  # what its run sees; CPU: nothing
    threads: int
    cores: tuple[int, ...] = ()  # the CPU cores that its run is bound to; empty: all
    bus_order: bool = False  # whether the numbers of devices are nvidia-smi's

    @property
    def label(self) -> str:
        """For people: `cuda:0`, `cpu:0-3`."""
        names = self.devices or tuple(map(str, self.cores))
        return f"{self.kind}:{','.join(names)}" if names else self.kind

    def environment(self) -> dict[str, str]:
        """The variables that make a process see this slot only."""
        variables = dict.fromkeys(THREADS, str(self.threads))
        if self.kind == "cpu":
            return variables | dict.fromkeys(VISIBLE.values(), "")
        if self.kind in VISIBLE:
            variables[VISIBLE[self.kind]] = ",".join(self.devices)
        return variables | ({"CUDA_DEVICE_ORDER": "PCI_BUS_ID"} if self.bus_order else {})

    @contextmanager
    def pinned(self) -> Iterator[None]:
        """Processes that are started inside are bound to the slot's cores: they inherit what this thread has now."""
        if not self.cores or not hasattr(os, "sched_setaffinity"):
            yield
            return
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, self.cores)
        try:
            yield
        finally:
            os.sched_setaffinity(0, before)


@dataclass(frozen=True)
class Accelerators:
    """The accelerators of this machine that this process may use."""

    kind: Kind
    devices: tuple[str, ...]
    inherited: bool = False  # the names come from the environment, not from the driver


def find_slots(resources: Resources, environment: Mapping[str, str] = os.environ) -> list[Slot]:
    """All slots, in the order in which they are filled."""
    wanted = resources.devices
    if wanted == "cpu" or wanted.startswith("cpu:"):
        return cpu_slots(resources, int(wanted.partition(":")[2] or 0))
    found = accelerators(environment)
    if wanted == "all":
        return gpu_slots(resources, found, found.devices) if found else cpu_slots(resources, 0)
    return gpu_slots(resources, *_asked(wanted, found))


def _asked(wanted: str, machine: Accelerators | None) -> tuple[Accelerators, list[str]]:
    """The devices that somebody named; an error where this machine does not have them."""
    words = wanted.split(",")
    kinds = [word.partition(":")[0] for word in words if word.partition(":")[0] in ACCELERATORS]
    if machine is None:
        raise UserError(
            f"devices: {wanted}: no GPU is visible to this process (CUDA_VISIBLE_DEVICES may hide it, or the driver "
            "is missing); use cpu, or cpu:2 for two runs at once"
        )
    if wrong := [kind for kind in kinds if kind not in ("gpu", machine.kind)]:
        raise UserError(f"devices: {wanted}: there is no {wrong[0]} here; use {machine.kind}, all or cpu")
    if len(words) == 1 and words[0] in ACCELERATORS:
        return machine, list(machine.devices)
    known = _uuids() if machine.kind == "cuda" else []
    named = [_named(word.rpartition(":")[2], machine, known) for word in words]
    if twice := sorted({one for one in named if named.count(one) > 1}):
        raise UserError(f"devices: {wanted} names {twice[0]} twice; runs_per_device lets several runs share a device")
    return machine, named


def _named(word: str, machine: Accelerators, uuids: Sequence[str]) -> str:
    """A device by its position among the visible ones, or by its UUID or the beginning of it."""
    if word.isdigit() and int(word) < len(machine.devices):
        return machine.devices[int(word)]
    by_name = not word.isdigit() and word in machine.devices
    if by_name or any(uuid.startswith(word) for uuid in uuids if word.startswith(("GPU-", "MIG-"))):
        return word
    there = ", ".join([*machine.devices, *uuids])
    raise UserError(f"devices: there is no device {word}; {len(machine.devices)} are visible here ({there})")


def gpu_slots(resources: Resources, machine: Accelerators, devices: Sequence[str]) -> list[Slot]:
    """Slots on accelerators; the CPU threads are shared out evenly."""
    groups = _groups([(device,) for device in devices], resources)
    threads = _threads(resources, len(cores_here()) // max(len(groups), 1))
    by_bus = machine.kind == "cuda" and bool(machine.devices) and not machine.inherited
    return [Slot(i, machine.kind, group, threads, bus_order=by_bus) for i, group in enumerate(groups)]


def cpu_slots(resources: Resources, count: int) -> list[Slot]:
    """Slots on the CPU: `count` parts of the cores, or every core a device."""
    cores = cores_here()
    count = count or len(cores)
    parts = [tuple(cores[i * len(cores) // count : (i + 1) * len(cores) // count]) for i in range(count)]
    parts = [part or (cores[i % len(cores)],) for i, part in enumerate(parts)]  # more parts than cores
    groups = _groups([tuple(map(str, part)) for part in parts], resources)
    pinned = [tuple(map(int, group)) for group in groups]
    sharing = [sum(other == group for other in pinned) for group in pinned]
    return [
        Slot(i, "cpu", (), _threads(resources, len(group) // share), group)
        for i, (group, share) in enumerate(zip(pinned, sharing, strict=True))
    ]


def _groups(devices: Sequence[tuple[str, ...]], resources: Resources) -> list[tuple[str, ...]]:
    """What each slot gets: several whole devices, one, or a share of one; sharers stand far apart."""
    per_run, share = resources.per_run, resources.runs_per_device
    if per_run > 1:
        size = int(per_run)
        if size > len(devices):
            raise UserError(f"resources.per_run: {size} devices for a run, but there are {len(devices)} here")
        joined = [sum(devices[i : i + size], ()) for i in range(0, len(devices) - size + 1, size)]
        return joined * share
    return list(devices) * (share * int(1 / per_run + 1e-9))


def _threads(resources: Resources, cores: int) -> int:
    return max(cores, 1) if resources.threads == "auto" else resources.threads


def cores_here() -> list[int]:
    """The CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


# What this machine has


def accelerators(environment: Mapping[str, str] = os.environ) -> Accelerators | None:
    """The accelerators that are visible to this process, as far as the system says without torch."""
    for kind, count in ((k, counted) for k, ask in _ASK for counted in [ask()] if counted):
        inherited = environment.get(VISIBLE.get(kind, ""))
        if inherited is None and kind == "hip":
            inherited = environment.get(VISIBLE["cuda"])  # HIP obeys both
        if inherited is None:
            return Accelerators(kind, tuple(map(str, range(count))))
        names = tuple(name.strip() for name in inherited.split(",") if name.strip() not in ("", "-1"))
        return Accelerators(kind, names, inherited=True) if names else None
    return None


def _nvidia() -> int:
    listed = _nvidia_smi("-L")
    if listed:
        return sum(line.startswith("GPU ") for line in listed)
    return len([path for path in Path("/dev").glob("nvidia[0-9]*") if path.name[6:].isdigit()])


def _uuids() -> list[str]:
    """The UUIDs of NVIDIA's GPUs and of their parts; empty where the driver does not say."""
    return [match[1] for line in _nvidia_smi("-L") if (match := re.search(r"UUID: ([^)]+)", line))]


def _amd() -> int:
    nodes = Path("/sys/class/kfd/kfd/topology/nodes").glob("*/gpu_id")
    return sum(_text(path) not in ("", "0") for path in nodes)


def _intel() -> int:
    """Only torch knows which Intel GPUs it can use; it is asked where there is one at all."""
    vendors = map(_text, Path("/sys/class/drm").glob("renderD*/device/vendor"))
    if "0x8086" not in vendors:
        return 0
    code = "import torch; print(torch.xpu.device_count())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return int(done.stdout.strip() or 0) if done.returncode == 0 else 0


def _apple() -> int:
    return int(sys.platform == "darwin" and platform.machine() == "arm64")


_ASK: tuple[tuple[Kind, Callable[[], int]], ...] = (("cuda", _nvidia), ("hip", _amd), ("xpu", _intel), ("mps", _apple))


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _nvidia_smi(*words: str) -> list[str]:
    """The lines it prints; none where there is no such driver."""
    if shutil.which("nvidia-smi") is None:
        return []
    try:
        done = subprocess.run(["nvidia-smi", *words], capture_output=True, text=True, timeout=20, check=False)
    except subprocess.TimeoutExpired:
        return []
    return done.stdout.splitlines() if done.returncode == 0 else []


def free_memory() -> dict[str, float]:
    """Free bytes of each NVIDIA GPU, by number and by UUID; empty where the driver does not say."""
    lines = _nvidia_smi("--query-gpu=index,uuid,memory.free", "--format=csv,noheader,nounits")
    by_device: dict[str, float] = {}
    for line in lines:
        index, uuid, free = (word.strip() for word in line.split(","))
        if free.isdigit():
            by_device[index] = by_device[uuid] = float(free) * 2**20
    return by_device


def has_room(slot: Slot, wanted: float, free: Mapping[str, float]) -> bool:
    """Whether every GPU of the slot has so many bytes free, as far as anybody says."""
    return slot.kind != "cuda" or all(free.get(device, wanted) >= wanted for device in slot.devices)
