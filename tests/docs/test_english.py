"""Pages, help texts and messages speak the field's words: banned phrases are faults wherever a user reads them."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT

BANNED = re.compile(
    r"\b(go(es|ing)? on(?! (ray|slurm|a))|said|stands?(?!-)|lies?|hangs? on|kin|leaves? \S+ away|is no valid"
    r"|nobody|anew|anybody|everybody|all the same|or the like|in vain|in silence|at its place|thrown? away"
    r"|leaves? [^.:;`]{1,60} away|is none of|half a character|(made|makes it) again|too good|make room|of ours"
    r"|fine-tunings|trainings|begun with|has not(?=[.,:;)]))\b",
    re.IGNORECASE,
)
# A text that models are asked about, not a sentence of ours.
EXAMPLES = {"The small house by the river was sold last year, and nobody knows who lives there now."}


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """What a module can print: strings, help of options, and the first docstring of a verb; no other docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    hidden = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node) is not None:
            verb = isinstance(node, ast.Module) and path.parent.name == "cli"
            hidden |= set() if verb else {id(node.body[0].value)}  # type: ignore[attr-defined]
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in hidden:
            yield node.lineno, node.value


def faults(text: str) -> list[str]:
    return [match[0] for match in BANNED.finditer(text)] if " " in text and text not in EXAMPLES else []


@pytest.mark.parametrize(
    "page", [p for p in PAGES if p.name not in ("modules.md", "CONTRIBUTING.md")], ids=lambda p: p.name
)
def test_pages_use_no_banned_phrase(page: Path) -> None:
    text = re.sub(r"^```.*?^```$|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    assert not faults(text)


def test_messages_and_help_use_no_banned_phrase() -> None:
    modules = [path for path in (ROOT / "encodery").rglob("*.py") if path.parent.name != "toy_grammar"]
    found = [
        f"{path.relative_to(ROOT)}:{line}: {fault}"
        for path in modules
        for line, text in texts(path)
        for fault in faults(text)
    ]
    assert not found


def test_the_python_interface_uses_no_banned_phrase() -> None:
    """`help(en.train)`, and the classes that own components derive from."""
    package = ROOT / "encodery"
    modules = [package / "api.py", package / "components.py", package / "inference/classifier.py"]
    modules += [package / room / "base.py" for room in ("methods", "objectives", "selectors", "tasks", "weighting")]
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in modules}
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    wrong = [
        f"{path.relative_to(ROOT)}: {fault}"
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, kinds)
        for fault in faults(ast.get_docstring(node) or "")
    ]
    assert not wrong


def test_a_planted_phrase_is_found(tmp_path: Path) -> None:
    (tmp_path / "new.py").write_text('"""It goes on."""\nraise ValueError("run it again, it goes on")\n')
    assert [(line, faults(text)) for line, text in texts(tmp_path / "new.py")] == [(2, ["goes on"])]
    assert faults("leave -o away") == ["leave -o away"]
    assert faults("leave count and fraction away") == ["leave count and fraction away"]
    assert faults("rows that the pool has not, and three trainings") == ["has not", "trainings"]
    assert not faults("Ray goes on Slurm")
    assert not faults("a stand-in for tests")
