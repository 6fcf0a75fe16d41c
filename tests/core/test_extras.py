"""One sentence says how an extra is installed."""

import tomllib
from pathlib import Path

import pytest

import encodery
from encodery.core.extras import install

PACKAGE = Path(encodery.__file__).parent


def test_both_ways_of_installing_are_named() -> None:
    assert install("serve") == "pip install 'encodery[serve]', or '.[serve]' in a checkout"


def test_nobody_else_writes_it() -> None:
    others = [path for path in PACKAGE.rglob("*.py") if "pip install 'encodery[" in path.read_text(encoding="utf-8")]
    assert [path.name for path in others] == ["extras.py"]


def test_every_extra_that_a_message_names_exists() -> None:
    project = PACKAGE.parent / "pyproject.toml"
    if not project.is_file():
        pytest.skip("not in a checkout")
    extras = tomllib.loads(project.read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    texts = [path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")]
    named = {part.split(quote)[0] for text in texts for quote in "\"'" for part in text.split(f"install({quote}")[1:]}
    assert len(named) >= 10
    assert named <= extras.keys()
