"""docs/facts.md and the tests name the same statements."""

import re

from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "facts.md"
_ROW = re.compile(r"^\| ([A-Z]\d+) \| (.+) \| (.+) \| (.*) \|$", re.MULTILINE)
_TEST = re.compile(r"^\s*def test_([A-Z]\d+(?:_[A-Z]\d+)*)_", re.MULTILINE)


def listed() -> dict[str, set[str]]:
    """Number of a statement -> the files that the page names for it; empty where it says `not yet`."""
    rows = _ROW.findall(PAGE.read_text(encoding="utf-8"))
    assert len({row[0] for row in rows}) == len(rows), "a number stands twice"
    return {number: set(re.findall(r"`((?:tests|bench)/[^`]+)`", files)) for number, _, _, files in rows}


def proven() -> dict[str, set[str]]:
    """Number of a statement -> the test files that carry it in the name of a test."""
    found: dict[str, set[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for numbers in _TEST.findall(path.read_text(encoding="utf-8")):
            for number in numbers.split("_"):
                found.setdefault(number, set()).add(path.relative_to(ROOT).as_posix())
    return found


def test_every_numbered_test_is_on_the_page() -> None:
    known = listed()
    lost = {number: files for number, files in proven().items() if not known.get(number)}
    assert not lost, "run `make docs`: docs/facts.md does not know these"


def test_every_statement_that_is_called_tested_has_a_test() -> None:
    found = proven()
    for number, files in listed().items():
        for file in files:
            assert (ROOT / file).is_file(), f"{number}: there is no {file}"
            assert file.startswith("bench/") or file in found.get(number, ()), f"{number}: no such test in {file}"
