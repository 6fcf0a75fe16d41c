"""The pages for people, as tests read them."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_NAMED = re.compile(r"# ([\w.-]+\.(?:py|yaml))\n")


class Block(NamedTuple):
    """A fenced block: its language, its text, and the file name if its first line is `# name.py`."""

    language: str
    text: str
    name: str | None


def blocks(page: Path, language: str | None = None) -> list[Block]:
    """The fenced blocks of a page, all or those of one language."""
    found = (Block(kind, text, _name(text)) for kind, text in _BLOCK.findall(page.read_text(encoding="utf-8")))
    return [block for block in found if language in (None, block.language)]


def _name(text: str) -> str | None:
    match = _NAMED.match(text)
    return match[1] if match else None


def write_named(page: Path, folder: Path) -> list[Path]:
    """Write the blocks that have a file name into a folder."""
    paths = [(folder / block.name, block.text) for block in blocks(page) if block.name]
    for path, text in paths:
        path.write_text(text, encoding="utf-8")
    return [path for path, _ in paths]
