"""What all tests share: one thread, a cache of their own, no network."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import Phase, settings

settings.register_profile("here", max_examples=50, deadline=None, phases=set(Phase) - {Phase.explain})
settings.load_profile("here")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Token tables of tests never meet those of a person; one thread, so that bits can be compared."""
    import torch

    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ENCODERY_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield


@pytest.fixture
def real_data() -> Path:
    """The folder with real data and encoders, or a skip that says why."""
    folder = os.environ.get("ENCODERY_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("needs real data: set ENCODERY_DATA")
    return Path(folder)
