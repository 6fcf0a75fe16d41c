"""Names say what they hold: a few words that say nothing may live three lines at most (CONTRIBUTING, rule 7)."""

import ast
from collections.abc import Iterator
from pathlib import Path

import encodery

ROOT = Path(encodery.__file__).parent
SAYS_NOTHING = {"found", "one", "whole", "known", "place"}
MOST = 3  # lines from where a name is bound to its last use
# In sentences of the toy grammar a place is a place: "in the garden".
OF_THE_SUBJECT = {("toy_grammar/facts.py", "place"), ("toy_grammar/hans.py", "place")}

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Loop = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


def parameters(function: Function) -> list[ast.arg]:
    arguments = function.args
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]


def targets(loop: Loop, name: str) -> bool:
    """Whether a comprehension has a variable of that name of its own."""
    names = (node for part in loop.generators for node in ast.walk(part.target))
    return any(isinstance(node, ast.Name) and node.id == name for node in names)


def uses(node: ast.AST, name: str, inside: bool = False) -> Iterator[tuple[int, bool]]:
    """Lines of a function in which a name is used, and whether it is bound there; inner scopes of their own apart."""
    if inside and isinstance(node, Function):
        stores = (n for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
        if any(argument.arg == name for argument in parameters(node)) or any(n.id == name for n in stores):
            return
    if inside and isinstance(node, Loop) and targets(node, name):
        yield from uses(node.generators[0].iter, name, inside=True)
        return
    if isinstance(node, ast.arg) and node.arg == name:
        yield node.lineno, True
    if isinstance(node, ast.Name) and node.id == name:
        yield node.lineno, isinstance(node.ctx, ast.Store)
    for child in ast.iter_child_nodes(node):
        yield from uses(child, name, inside=True)


def long_lives(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of each variable that is used more than so many lines below where it is bound."""
    for scope in (node for node in ast.walk(tree) if isinstance(node, Function | Loop)):
        for name in SAYS_NOTHING & {node.id for node in ast.walk(scope) if isinstance(node, ast.Name)}:
            lines = sorted(uses(scope, name))
            if isinstance(scope, Loop) and not targets(scope, name):
                continue
            bound = [line for line, binds in lines if binds]
            for line, binds in lines:
                begin = max((at for at in bound if at <= line), default=min(bound, default=line))
                if not binds and abs(line - begin) > MOST:
                    yield begin, name


def attributes(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of functions, classes, fields and attributes: these are read in other files."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name.strip("_").lower() in SAYS_NOTHING:
            yield node.lineno, node.name
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and node.attr in SAYS_NOTHING:
            yield node.lineno, node.attr
        elif isinstance(node, ast.ClassDef):
            fields = (inner.target for inner in node.body if isinstance(inner, ast.AnnAssign))
            yield from ((f.lineno, f.id) for f in fields if isinstance(f, ast.Name) and f.id in SAYS_NOTHING)


def faults(text: str) -> set[tuple[int, str]]:
    tree = ast.parse(text)
    return {*long_lives(tree), *attributes(tree)}


def test_words_that_say_nothing_live_three_lines_at_most() -> None:
    wrong = [
        f"{path.relative_to(ROOT.parent)}:{line} {name}"
        for path in sorted(ROOT.rglob("*.py"))
        for line, name in sorted(faults(path.read_text(encoding="utf-8")))
        if ("/".join(path.parts[-2:]), name) not in OF_THE_SUBJECT
    ]
    assert not wrong, "\n".join(wrong)


def test_a_long_lived_name_is_seen() -> None:
    body = "".join(f"    x{i} = {i}\n" for i in range(3))
    assert faults(f"def f():\n    found = 1\n{body}    return found\n") == {(2, "found")}
    assert faults(f"def f(one):\n{body}    return one\n") == {(1, "one")}
    assert faults("def f():\n    found = 1\n    x = 2\n    y = 3\n    return found\n") == set()
    assert faults("def f(rows):\n    return [one for one in rows]\n") == set()
    assert faults("xs = [\n    (one,\n     1,\n     2,\n     3)\n    for one in rows\n]\n") == {(6, "one")}
    assert faults("class A:\n    known: int = 0\n") == {(2, "known")}
    assert faults("class A:\n    def f(self):\n        self.place = 1\n") == {(3, "place")}
    assert faults("class Found:\n    pass\n") == {(1, "Found")}
