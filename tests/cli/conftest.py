"""What the tests of verbs share."""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from encodery import cli


class PredictionCache(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def encodery(capsys: pytest.CaptureFixture[str]) -> Callable[..., PredictionCache]:
    """Run a command line in this process."""

    def run(*words: object) -> PredictionCache:
        capsys.readouterr()
        code = cli.main([str(word) for word in words])
        captured = capsys.readouterr()
        return PredictionCache(code, captured.out, captured.err)

    return run
