"""What the tests of verbs share."""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from encodery import cli


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
