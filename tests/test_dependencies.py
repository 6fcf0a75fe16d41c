"""What pyproject.toml declares is what the code imports: nothing less, and nothing more."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

import pytest

import encodery

ROOT = Path(encodery.__file__).parent
# What is imported under another name than it is installed.
INSTALLED_AS = {"sklearn": "scikit-learn", "yaml": "pyyaml", "umap": "umap-learn", "mlflow": "mlflow-skinny"}
INSTALLED_AS |= {"pydantic_core": "pydantic"}  # which pins its version exactly

FOR_OTHERS = {"alembic", "sqlalchemy"}  # what MLflow's sqlite store imports, which its small package does not bring


def imported(folder: Path) -> set[str]:
    """The distributions that the files of a folder import, inside functions too."""
    modules = set()
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                modules |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                modules.add(node.module)
    tops = {name.partition(".")[0] for name in modules} - sys.stdlib_module_names - {"encodery"}
    return {INSTALLED_AS.get(name, name).replace("_", "-") for name in tops}


def names(requirements: Iterable[str]) -> set[str]:
    return {re.split(r"[<>=~!;\[ ]", line)[0].lower().replace("_", "-") for line in requirements}


def declared() -> tuple[set[str], set[str], set[str]]:
    """Distributions that everybody gets, those of extras, and those for development."""
    project = tomllib.loads((ROOT.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {extra: names(lines) for extra, lines in project["optional-dependencies"].items()}
    return names(project["dependencies"]), set().union(*(v for k, v in extras.items() if k != "dev")), extras["dev"]


def test_everything_imported_is_declared_and_everything_declared_is_imported() -> None:
    base, extras, _ = declared()
    assert not base & extras
    assert imported(ROOT) | FOR_OTHERS == base | extras


def test_the_floor_of_torch_is_what_the_tests_use() -> None:
    """Attention on a GPU calls what older versions lack, and nobody has tried them."""
    project = tomllib.loads((ROOT.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    floor = next(line for line in project["dependencies"] if line.startswith("torch"))
    assert floor == "torch>=" + ".".join(version("torch").split(".")[:2])


@pytest.mark.parametrize("line", ["import undeclared", "def f():\n    from undeclared.part import x"])
def test_an_undeclared_import_is_seen(tmp_path: Path, line: str) -> None:
    (tmp_path / "page.py").write_text(line)
    assert imported(tmp_path) == {"undeclared"}


def test_an_extra_is_named_where_its_package_is_missing() -> None:
    """Whoever lacks a package of an extra is told to install the extra; so each is imported behind such a sentence."""
    project = tomllib.loads((ROOT.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    text = "\n".join(path.read_text(encoding="utf-8") for path in ROOT.rglob("*.py"))
    missing = [e for e in project["optional-dependencies"] if e != "dev" and f"install('{e}')" not in text]
    assert not missing


def test_versions_tested_together_cover_what_everybody_gets() -> None:
    lines = (ROOT.parent / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert declared()[0] <= names(line for line in lines if not line.startswith("#"))


def test_the_page_of_dependencies_names_each() -> None:
    page = (ROOT.parent / "docs/design.md").read_text(encoding="utf-8").partition("## Dependencies")[2]
    base, extras, _ = declared()
    assert not {name for name in base | extras if not re.search(rf"^\|[^|]*\b{name}\b", page, re.MULTILINE)}
