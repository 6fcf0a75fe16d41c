"""The counts of the fault suite: each test says of every case whether it held, and the sums are written as JSON."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[1] / "faults"
KEY = "fault"


class Tally:
    """How many cases of what was tried held, and how those failed that did not."""

    def __init__(self) -> None:
        self.held: dict[str, int] = {}
        self.tried: dict[str, int] = {}
        self.failures: list[str] = []

    def case(self, what: str, held: bool, why: object = "") -> None:
        """One case of a test of the table; `why` is shown if it did not hold."""
        self.tried[what] = self.tried.get(what, 0) + 1
        self.held[what] = self.held.get(what, 0) + bool(held)
        if not held:
            self.failures.append(f"{what}: {why}")


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Iterator[Tally]:
    """Counts the cases of a test, which fails in the end if one of them did not hold or none was tried."""
    found = Tally()
    yield found
    for what in found.tried:
        request.node.user_properties.append((KEY, [what, found.held[what], found.tried[what]]))
    assert found.tried, "no case was counted"
    assert not found.failures, f"{len(found.failures)} cases: " + "\n".join(found.failures[:20])


class Sums:
    """Adds up the counts of all tests, wherever they ran, and writes them when the last one is through."""

    def __init__(self, path: Path) -> None:
        self.path, self.tests, self.counts = path, [0, 0], {}  # type: ignore[var-annotated]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            self.tests = [self.tests[0] + report.passed, self.tests[1] + 1]
        for key, value in report.user_properties if report.when == "teardown" else ():
            if key == KEY:
                what, held, tried = value
                before = self.counts.get(what, [0, 0])
                self.counts[what] = [before[0] + held, before[1] + tried]

    def pytest_sessionfinish(self) -> None:
        rows: dict[str, Any] = {what: {"held": n, "of": m} for what, (n, m) in sorted(self.counts.items())}
        rows["tests of the suite that passed"] = {"held": self.tests[0], "of": self.tests[1]}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(rows, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def add_option(parser: pytest.Parser) -> None:
    parser.addoption("--fault-counts", type=Path, metavar="FILE", help="write how many cases of each fault test held")


def configure(config: pytest.Config) -> None:
    """Only the process that hears of all tests writes."""
    path = config.getoption("--fault-counts")
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Sums(path))


def mark(items: list[pytest.Item]) -> None:
    """Every test below tests/faults has the marker `fault`."""
    for item in items:
        if FOLDER in item.path.parents:
            item.add_marker("fault")
