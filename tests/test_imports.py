"""Imports go one way only, and what computes nothing loads nothing heavy."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import encodery

ROOT = Path(encodery.__file__).parent

# From the cellar to the roof: a file may import from its own floor and from those below.
FLOORS = [
    {
        "errors", "options", "schema", "process", "files", "paths", "scrub", "yaml_reader", "lock", "metrics_file",
        "find", "heap", "signals", "recipes", "environment", "every", "paragen", "layers", "check", "config",
        "identity", "without_torch", "metric_table", "rundir", "digests", "finished", "cache", "shapes", "reference",
        "synonyms", "sweep.spec", "auto", "follower", "remote", "correlation", "importance",
        "own_code", "outside",
    },
    {"tasks"},
    {"world", "heartbeat", "board"},
    {"data", "mix", "dynamics", "embeddings"},
    {"models"},
    {"objectives"},
    {"methods"},
    {"weighting"},
    {"optim", "tensorfile", "checkpoint", "flops", "loop", "progress"},
    {"predict", "probe", "corrupted", "chosen", "recorder", "judge", "said"},
    {
        "build", "subject", "cards", "teach", "pretrain", "look", "on", "on_text", "head", "ensemble", "classifier",
        "session", "evaluate", "attack", "raw", "export", "export_onnx", "publish", "prepare", "importers",
        "calibrate", "embed", "heads",
    },
    {"run", "many", "folds", "api", "launch", "on_slurm"},
    {"sweep", "select", "selection", "elsewhere"},
    {"curve", "curve_plan", "curve_parts", "gradts"},
    {"cli"},
]  # fmt: skip
# A page of an upper room that is plain data: tables read the plan of a sweep, and must not see what runs it.
PLAIN = {"sweep.spec"}
# Beside the stairs: these see the two lowest floors alone, and are seen from the upper ones.
SIDE, SIDE_SEES, SIDE_SEEN_FROM = {"score", "submit", "report", "track"}, 1, 10
DOORS = {"__init__", "__main__"}  # they import lazily, for people
# Files that must be quick: no torch and nothing of its weight.
LIGHT = [*sorted(FLOORS[0] - PLAIN - {"reference"}), "tasks", *sorted(SIDE), "on", "sweep"]
HEAVY = {"torch", "transformers", "sklearn", "scipy", "datasets", "accelerate", "tokenizers", "ray", "submitit"}
HEAVY |= {"onnx", "onnxruntime", "tensorboard", "wandb", "mlflow", "trackio"}


@cache
def modules() -> dict[str, Path]:
    """All modules of the package by dotted name below it."""
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in ROOT.rglob("*.py")
        if path.parent != ROOT or path.stem not in DOORS
    }


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    """All of a file's syntax."""
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """Line and first part of everything of ours that a file imports, inside functions too, but not for types alone."""
    typing = {
        id(inner)
        for node in nodes_of(path)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    for node in nodes_of(path):
        if id(node) in typing:
            continue
        if isinstance(node, ast.ImportFrom) and node.module == "encodery":
            yield from ((node.lineno, alias.name) for alias in node.names if not alias.name.startswith("__"))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("encodery."):
            name = str(node.module).removeprefix("encodery.")
            yield node.lineno, name if name in PLAIN else name.split(".")[0]
        elif isinstance(node, ast.Import):
            ours = (alias.name.split(".") for alias in node.names if alias.name.startswith("encodery."))
            yield from ((node.lineno, parts[1]) for parts in ours)


def floor(name: str) -> int | None:
    return next((height for height, names in enumerate(FLOORS) if name in names), None)


def test_every_file_has_its_floor() -> None:
    known = set().union(*FLOORS, SIDE)
    found = {name.split(".")[0] for name in modules()}
    assert found <= known, f"say in FLOORS where these stand: {sorted(found - known)}"


@pytest.mark.parametrize("name", sorted(modules()))
def test_imports_go_one_way(name: str) -> None:
    path, room = modules()[name], name.split(".")[0]
    own = SIDE_SEES if room in SIDE else floor(room)
    assert own is not None
    for line, other in imported(path):
        there = floor(other)
        if other in SIDE:
            fine = room == other or (room not in SIDE and own >= SIDE_SEEN_FROM)
        else:
            fine = there is not None and there <= own
        assert fine, f"{path.relative_to(ROOT.parent)}:{line} imports {other}, which stands above {room}"


def test_relative_imports_are_not_used() -> None:
    """They would slip past the test above."""
    for path in ROOT.rglob("*.py"):
        for node in nodes_of(path):
            assert not (isinstance(node, ast.ImportFrom) and node.level), f"{path}:{node.lineno}"


CODE = """
import importlib, sys

class Guard:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {heavy!r}:
            raise AssertionError(name)

sys.meta_path.insert(0, Guard())
for name in {names!r}:
    try:
        importlib.import_module(f"encodery.{{name}}")
    except AssertionError as error:
        print(f"encodery.{{name}} imports {{error}}")
"""


def test_what_computes_nothing_imports_nothing_heavy() -> None:
    names = sorted(name for name in modules() if name.split(".")[0] in LIGHT or name in PLAIN)
    assert "tasks.glue" in names
    code = CODE.format(heavy=HEAVY, names=names)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT.parent, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr
