"""How long files and functions may be; what is longer says why (CONTRIBUTING, rule 2)."""

import ast
from pathlib import Path

import encodery

ROOT = Path(encodery.__file__).parent
LINES_OF_A_FILE, LINES_OF_A_FUNCTION = 600, 40
REASONS = {
    "cli/evaluate.py arguments": "a list: one option after the other",
    "cli/train.py arguments": "a list: one option after the other",
    "serve/app.py make_app": "a list: one route after the other, and they share what they close over",
}


def long_functions(root: Path) -> set[str]:
    return {
        f"{path.relative_to(root)} {node.name}"
        for path in root.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or node.lineno) - node.lineno >= LINES_OF_A_FUNCTION
    }


def long_files(root: Path) -> set[str]:
    counts = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in root.rglob("*.py")}
    return {str(path.relative_to(root)) for path, count in counts.items() if count > LINES_OF_A_FILE}


def test_a_long_function_has_a_reason() -> None:
    assert long_functions(ROOT) == set(REASONS)


def test_no_file_is_longer_than_a_concept() -> None:
    assert long_files(ROOT) == set()


def test_a_long_function_and_a_long_file_are_seen(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def f():\n" + "    x = 1\n" * LINES_OF_A_FUNCTION)
    (tmp_path / "b.py").write_text("x = 1\n" * LINES_OF_A_FILE)
    assert (long_functions(tmp_path), long_files(tmp_path)) == ({"a.py f"}, set())
    (tmp_path / "a.py").write_text("def f():\n" + "    x = 1\n" * (LINES_OF_A_FUNCTION - 1))
    (tmp_path / "b.py").write_text("x = 1\n" * (LINES_OF_A_FILE + 1))
    assert (long_functions(tmp_path), long_files(tmp_path)) == (set(), {"b.py"})
