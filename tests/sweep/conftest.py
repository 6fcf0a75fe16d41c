"""What the tests of sweeps share."""

import fcntl
from collections.abc import Iterator

import pytest


@pytest.fixture
def only_ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One test at a time: a sweep joins a Ray cluster that runs on this machine, also that of another test."""
    shared = tmp_path_factory.getbasetemp().parent  # of all processes of this run of pytest
    with (shared / "ray.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
