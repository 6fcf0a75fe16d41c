"""Tests with real engines: they have the marker `engine` by themselves, and `make engines` runs nothing else."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.engines.trainings import Undisturbed

ROOT = Path(__file__).parents[2]
NEEDED = "ENCODERY_ENGINES"  # set to 1, an engine that cannot be had is a failure instead of a skip


# What one process does of several (`-n 2 --dist loadgroup`), longest first; xdist gives the third to the first process.
GROUPS = ("slurm[pgid]", "slurm[cgroup]", "trackers", "ray", "hub", "torchrun")


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ours = {item: group_of(item) for item in items if Path(__file__).parent in item.path.parents}
    for item, group in ours.items():
        item.add_marker(pytest.mark.engine)
        item.add_marker(pytest.mark.xdist_group(group))
    order = {group: number for number, group in enumerate(GROUPS)}
    items.sort(key=lambda item: order.get(ours[item], len(GROUPS)) if item in ours else -1)


def group_of(item: pytest.Item) -> str:
    """The engine that a test works with: tests of one group share it."""
    params = getattr(getattr(item, "callspec", None), "params", {})
    name = item.path.stem.removeprefix("test_")
    return f"slurm[{params['slurm']}]" if "slurm" in params else name


def skip_without(engine: str, reason: str | None) -> None:
    """Skip where an engine cannot be had, in capitals; fail where somebody has said that it can."""
    if reason is None:
        return
    if os.environ.get(NEEDED) == "1":
        pytest.fail(f"{engine}: {reason}")
    pytest.skip(f"NO {engine.upper()}: {reason}")


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that tests start find this encodery, and use one thread."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    for name in ("SBATCH_TIMELIMIT", "SBATCH_PARTITION", "SLURM_CONF"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> "Undisturbed":
    """What a training gives that no engine interrupts."""
    from tests.engines.trainings import Undisturbed

    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "undisturbed"  # for all processes
    folder.mkdir(exist_ok=True)
    return Undisturbed(folder)
