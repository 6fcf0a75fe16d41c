"""Tests with real engines: they have the marker `engine` by themselves, and `make engines` runs nothing else."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NEEDED = "ENCODERY_ENGINES"  # set to 1, an engine that cannot be had is a failure instead of a skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.engine)


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
