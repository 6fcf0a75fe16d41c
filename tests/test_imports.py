"""Imports go one way, between packages and between modules, and what computes nothing loads nothing heavy."""

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import encodery

ROOT = Path(encodery.__file__).parent

# From the lowest to the highest: a package may import from itself and from those above it in this list.
LAYERS = [
    ("errors",),
    ("core",),
    ("recipes",),
    ("config",),
    ("runs",),
    ("tasks",),
    ("report", "track", "scoring"),  # beside each other: none of them sees another
    ("distributed",),
    ("data",),
    ("models",),
    ("objectives",),
    ("methods",),
    ("weighting",),
    ("inference",),
    ("training",),
    ("analysis", "exchange", "importers"),
    ("serve",),
    ("sweep",),
    ("selectors",),
    ("selection",),
    ("gradts",),
    ("api", "components"),
    ("cli",),
]
ENTRY = {"__init__", "__main__"}  # they import lazily, for people
# Packages that must answer at once: no torch and nothing of its weight.
LIGHT = ("errors", "core", "recipes", "config", "runs", "tasks", "report", "track", "scoring", "sweep")
WORKS = {
    "encodery.config.reference",
    "encodery.sweep.shard_jobs",
}  # of light packages, what reads every kind or computes
HEAVY = {"torch", "transformers", "sklearn", "scipy", "datasets", "accelerate", "tokenizers", "ray", "submitit"}
HEAVY |= {"onnx", "onnxruntime", "tensorboard", "wandb", "mlflow", "trackio", "fastapi", "uvicorn"}

Graph = Mapping[str, Mapping[str, int]]  # module → modules that it imports, with a line each


def modules(root: Path) -> dict[str, Path]:
    """All modules below a package's folder by dotted name."""
    names = {path: [root.name, *path.relative_to(root).with_suffix("").parts] for path in root.rglob("*.py")}
    return {".".join(parts).removesuffix(".__init__"): path for path, parts in names.items()}


def imports(path: Path, known: Mapping[str, Path]) -> Iterator[tuple[str, int]]:
    """Every module of ours that a file imports, inside functions too, but not for types alone."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    checks = (node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))
    for_types = {id(inner) for node in checks for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}:{node.lineno}: relative imports would slip past these tests"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from ((name if name in known else str(node.module), node.lineno) for name in names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)


def graph(root: Path) -> dict[str, dict[str, int]]:
    known = modules(root)
    return {
        name: {other: line for other, line in imports(path, known) if other in known and other != name}
        for name, path in known.items()
    }


def layer(module: str) -> int:
    """The place of a module's package; the package itself, as people import it, is above all."""
    package = module.split(".")[1] if "." in module else "__init__"
    if package in ENTRY:
        return len(LAYERS)
    places = [place for place, packages in enumerate(LAYERS) if package in packages]
    assert places, f"say in LAYERS where {package} belongs"
    return places[0]


def upward(edges: Graph) -> list[str]:
    """Imports of a higher package, or of one beside."""
    return [
        f"{name} (line {line}) imports {other}"
        for name, others in edges.items()
        for other, line in others.items()
        if name.split(".")[1:2] != other.split(".")[1:2] and layer(other) >= layer(name)
    ]


def cycles(edges: Graph) -> list[list[str]]:
    """Modules that import each other: what is left when modules that import nothing that is left are taken away."""
    left = {name: set(others) for name, others in edges.items()}
    while free := {name for name, others in left.items() if not others}:
        left = {name: others - free for name, others in left.items() if name not in free}
    importers: dict[str, set[str]] = {name: set() for name in left}
    for name, others in left.items():
        for other in others:
            importers[other].add(name)
    while idle := {name for name, users in importers.items() if not users}:  # they only lead into a cycle
        importers = {name: users - idle for name, users in importers.items() if name not in idle}
    return [sorted(importers)] if importers else []


@pytest.fixture(scope="module")
def edges() -> Graph:
    return graph(ROOT)


def test_a_package_imports_from_lower_packages_only(edges: Graph) -> None:
    assert not upward(edges)


def test_no_two_modules_import_each_other(edges: Graph) -> None:
    assert not cycles(edges)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A small package with the names of ours."""
    for name, text in {
        "__init__": "",
        "errors": "",
        "core/__init__": "",
        "core/files": "from encodery.errors import UserError",
        "tasks/__init__": "",
        "tasks/base": "from encodery.core import files",
    }.items():
        path = tmp_path / "encodery" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "encodery"


def test_a_small_package_has_no_faults(copy: Path) -> None:
    assert not upward(graph(copy))
    assert not cycles(graph(copy))


@pytest.mark.parametrize("text", ["from encodery.tasks import base", "def f():\n    from encodery.tasks.base import x"])
def test_a_planted_upward_import_is_found(copy: Path, text: str) -> None:
    (copy / "core/files.py").write_text(text)
    assert [line.split(" imports ")[1] for line in upward(graph(copy))] == ["encodery.tasks.base"]


def test_a_planted_cycle_within_a_package_is_found(copy: Path) -> None:
    (copy / "core/lock.py").write_text("from encodery.core import files")
    (copy / "core/files.py").write_text("def f():\n    from encodery.core.lock import g")
    (copy / "core/signals.py").write_text("from encodery.core import lock")  # leads into the cycle, is not in it
    assert cycles(graph(copy)) == [["encodery.core.files", "encodery.core.lock"]]


CODE = """
import importlib, sys

class Guard:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {heavy!r}:
            raise AssertionError(name)

sys.meta_path.insert(0, Guard())
for name in {names!r}:
    try:
        importlib.import_module(name)
    except AssertionError as error:
        print(f"{{name}} imports {{error}}")
"""


def test_what_computes_nothing_imports_nothing_heavy() -> None:
    names = sorted(name for name in modules(ROOT) if "." in name and name.split(".")[1] in LIGHT and name not in WORKS)
    assert "encodery.tasks.glue" in names
    code = CODE.format(heavy=HEAVY, names=names)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT.parent, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_the_root_holds_the_way_in_and_nothing_else() -> None:
    assert {path.stem for path in ROOT.glob("*.py")} <= {"__init__", "__main__", "api", "errors", "components"}
