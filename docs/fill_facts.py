"""Fill the last column of docs/facts.md: the test files whose tests carry the number. `make docs` runs it."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "facts.md"
TEST = re.compile(r"^\s*def test_([A-Z]\d+(?:_[A-Z]\d+)*)_", re.MULTILINE)
ROW = re.compile(r"^(\| ([A-Z]\d+) \| .+ \| .+ \|) .* \|$", re.MULTILINE)
BENCH = re.compile(r"^\"\"\"(B\d+(?:[-–]B?\d+|, B\d+)*)", re.MULTILINE)


def main() -> None:
    """Rewrite the page."""
    found: dict[str, set[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for numbers in TEST.findall(path.read_text(encoding="utf-8")):
            for number in numbers.split("_"):
                found.setdefault(number, set()).add(path.relative_to(ROOT).as_posix())
    for path in sorted((ROOT / "bench").glob("*.py")):
        for numbers in BENCH.findall(path.read_text(encoding="utf-8")):
            for number in spelled(numbers):
                found.setdefault(number, set()).add(path.relative_to(ROOT).as_posix())
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(ROW.sub(lambda row: f"{row[1]} {listed(found.get(row[2], set()))} |", text), encoding="utf-8")


def spelled(numbers: str) -> list[str]:
    """`B1-B4, B13` -> B1, B2, B3, B4, B13."""
    found: list[str] = []
    for part in numbers.split(", "):
        first, *last = (int(word.removeprefix("B")) for word in re.split("[-–]", part))
        found += [f"B{number}" for number in range(first, (last or [first])[0] + 1)]
    return found


def listed(files: set[str]) -> str:
    """The cell."""
    return ", ".join(f"`{file}`" for file in sorted(files)) or "not yet"


if __name__ == "__main__":
    main()
