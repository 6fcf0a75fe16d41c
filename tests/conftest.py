"""What all tests share: one thread, a cache of their own, no network; real data where they are."""

import gc
import importlib
import os
import shutil
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import Phase, settings

from tests.pretend import gpu
from tests.pretend.gpu import pretend_gpu  # noqa: F401
from tests.toolbox import fault_counts
from tests.toolbox.browser import browser  # noqa: F401
from tests.toolbox.component_files import ROOMS
from tests.toolbox.fault_counts import tally  # noqa: F401

settings.register_profile("here", max_examples=50, deadline=None, phases=set(Phase) - {Phase.explain})
settings.load_profile("here")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
CLUSTERS = ("SLURM_", "SBATCH_", "RAY_ADDRESS")  # what a login node, or a job, has in its environment
# A run syncs some thirty files, which a disk takes longer for than a tiny model for its steps: folders of tests lie in
# memory where there is enough of it.
MEMORY = Path("/dev/shm")
if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 4e9:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
# Imported modules and the thousands of tests that are found stay until the end. The collector of garbage need not go
# through them while they are made, nor later: pytest_collection_finish.
gc.disable()


def pytest_addoption(parser: pytest.Parser) -> None:
    fault_counts.add_option(parser)


def pytest_configure(config: pytest.Config) -> None:
    fault_counts.configure(config)


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Of several workers none is left with a long file at the end: what takes longest comes first."""
    fault_counts.mark(items)
    gpu.mark(items)
    yield  # -m chooses
    if hasattr(config, "workerinput"):
        long: dict[Path, float] = defaultdict(float)
        for item in items:
            long[item.path] += seconds(item)
        items.sort(key=lambda item: -long[item.path])  # stable: the order inside a file stays


def seconds(item: pytest.Item) -> float:
    """How long a test takes, roughly: `slow(20)` is one of 20 seconds."""
    marker = item.get_closest_marker("slow")
    return (marker.args[0] if marker.args else 3.0) if marker else 0.15


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Token tables of tests never meet those of a person; one thread, so that bits can be compared."""
    import torch

    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ENCODERY_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("HF_HUB_OFFLINE", "1")
        for name in [one for one in os.environ if one.startswith(CLUSTERS)]:
            patch.delenv(name)
        yield


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder with real data sets and encoders, or a skip."""
    folder = os.environ.get("ENCODERY_DATA")
    if not folder or not Path(folder, "glue").is_dir():
        pytest.skip("ENCODERY_DATA does not name a folder with real data")
    return Path(folder)


@pytest.fixture(scope="module")
def small_components(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Small components in front of the real ones."""
    before = dict(sys.modules)
    for room, files in ROOMS.items():
        folder = tmp_path_factory.mktemp(room)
        for name, text in files.items():
            (folder / f"{name}.py").write_text(text)
            sys.modules.pop(f"encodery.{room}.{name}", None)
        importlib.import_module(f"encodery.{room}").__path__.insert(0, str(folder))
    yield
    for room, files in ROOMS.items():
        package = sys.modules[f"encodery.{room}"]
        package.__path__.pop(0)
        for name in files:
            sys.modules.pop(f"encodery.{room}.{name}", None)
            vars(package).pop(name, None)
            if real := before.get(f"encodery.{room}.{name}"):
                sys.modules[real.__name__] = real
                setattr(package, name, real)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """trained("single"), "pair", "multilabel" or "regression": a finished run, trained once and only read from."""
    import encodery as en
    from tests.toolbox import runs, tasks

    found: dict[str, Path] = {}

    def get(form: str, seed: int = 1) -> Path:
        name = f"{form}-{seed}"
        if name not in found:
            folder = tmp_path_factory.mktemp(name)
            task = getattr(tasks, f"{form}_task")(folder)
            found[name] = en.train(runs.config_for(folder, task), folder / "run", seed=seed).path
        return found[name]

    return get
