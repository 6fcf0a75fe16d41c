"""Write docs/modules.md: every module of the package with the first line of its docstring. `make docs` runs it."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "modules.md"
HEAD = """# Module map

One line for every file, from the code (`make docs`). The order of the packages is that of [design.md](design.md).
"""


def main() -> None:
    """Rewrite the page."""
    PAGE.write_text(page(ROOT / "encodery"), encoding="utf-8")


def page(package: Path) -> str:
    """The whole page: a section for each folder that holds modules."""
    text = HEAD
    for folder in sorted({path.parent for path in package.rglob("*.py")}):
        lines = [line(path) for path in sorted(folder.glob("*.py")) if path.name != "__init__.py" or summary(path)]
        if lines:
            text += f"\n## {folder.relative_to(package.parent).as_posix()}\n\n" + "".join(lines)
    return text


def line(path: Path) -> str:
    """`files.py`: what it is."""
    return f"- `{path.name}`: {summary(path)}\n"


def summary(path: Path) -> str:
    """The first line of a module's docstring."""
    return (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split("\n")[0]


if __name__ == "__main__":
    main()
