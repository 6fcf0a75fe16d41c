"""Tests with real engines: they have the marker `engine` by themselves, and `make engines` runs nothing else."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from xdist.scheduler.loadscope import LoadScopeScheduling

if TYPE_CHECKING:
    from tests.engines.trainings import Undisturbed

ROOT = Path(__file__).parents[2]
NEEDED = "ENCODERY_ENGINES"  # set to 1, an engine that cannot be had is a failure instead of a skip


# What one process does of several (`-n 2 --dist loadscope --no-loadscope-reorder`), longest first.
GROUPS = ("slurm-cgroup", "slurm-pgid", "slurm-once", "ray", "trackers", "hub", "torchrun")


class ByEngine(LoadScopeScheduling):
    """One process has all tests of an engine. xdist's own groups change names of tests, which pytest 9.2 ignores."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByEngine:
    return ByEngine(config, log)


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ours = [item for item in items if Path(__file__).parent in item.path.parents]
    for item in ours:
        item.add_marker(pytest.mark.engine)
    order = {group: number for number, group in enumerate(GROUPS)}
    items.sort(key=lambda item: order.get(group_of(item.nodeid), len(GROUPS)) if item in ours else -1)


def group_of(name: str) -> str:
    """The engine that a test works with, by its name: `test_slurm.py::test_x[pgid]` belongs to slurm-pgid."""
    file, _, test = name.partition("::")
    group = Path(file).stem.removeprefix("test_")
    return f"slurm-{test.rpartition('[')[2].rstrip(']')}" if group == "slurm" else group


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
