"""Small sweeps for tests: toy tasks of a few rows, so that planning takes milliseconds."""

from pathlib import Path

from encodery.runs.sweep_spec import RunSpec
from encodery.sweep.command_line import apply
from encodery.sweep.plan import Planner
from encodery.sweep.sweep_file import SweepFile, parse

BASE = """
model: {new: {kind: bert, size: tiny}}
tasks: {name: toy/sentiment, train_rows: 8, dev_rows: 4, test_rows: 4}
"""


def sweep_file(text: str, folder: Path, *words: str, seeds: int | None = None) -> SweepFile:
    (folder / "base.yaml").write_text(BASE)
    return apply(parse(f"base: base.yaml\n{text}", "sweep.yaml", folder, "sweep"), words, seeds)


def planned(text: str, folder: Path, *words: str, seeds: int | None = None) -> list[RunSpec]:
    return Planner(sweep_file(text, folder, *words, seeds=seeds), folder / "out").specs()
