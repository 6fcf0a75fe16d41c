"""Runs that many tests only read from are trained once."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from encodery import cli
from tests import tiny


class Said(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def encodery(capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """Run a command line in this process."""

    def run(*words: object) -> Said:
        capsys.readouterr()
        code = cli.main([str(word) for word in words])
        captured = capsys.readouterr()
        return Said(code, captured.out, captured.err)

    return run


@pytest.fixture(scope="session", autouse=True)
def quiet_place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cache of our own, and no data folder or hub by accident."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ENCODERY_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.delenv("ENCODERY_DATA", raising=False)
        patch.delenv("GLUE_DIR", raising=False)
        yield


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """trained("single"), trained("pair"), trained("multilabel"), trained("regression"): finished runs, for reading."""
    import encodery as en

    found: dict[str, Path] = {}

    def get(form: str, seed: int = 1) -> Path:
        name = f"{form}-{seed}"
        if name not in found:
            folder = tmp_path_factory.mktemp(name)
            task = getattr(tiny, form)(folder)
            found[name] = en.train(tiny.config(folder, task), folder / "run", seed=seed).path
        return found[name]

    return get
