"""Moves top-level names from one module into another, new or existing, and rewrites whoever uses them.

    python tools/split_module.py encodery.build encodery.loading load_model,pick_device "Open a model."

It is used for one redesign and goes with it.
"""
# ruff: noqa: B023, D103, E741

import ast
import re
import subprocess
import sys
from pathlib import Path

old, new, names, doc = (
    sys.argv[1],
    sys.argv[2],
    set(sys.argv[3].split(",")),
    sys.argv[4] if len(sys.argv) > 4 else "TODO",
)


def P(m):
    return Path(*m.split(".")).with_suffix(".py")


src = P(old).read_text()
lines = src.splitlines(keepends=True)
tree = ast.parse(src)


def bound(s):
    if isinstance(s, (ast.FunctionDef, ast.ClassDef)):
        return {s.name}
    if isinstance(s, ast.Assign):
        return {n.id for t in s.targets for n in ast.walk(t) if isinstance(n, ast.Name)}
    if isinstance(s, ast.AnnAssign):
        return {s.target.id}
    return set()


moved, imports, prev_end = [], [], 0
cut = set()
own = set().union(*(bound(s) for s in tree.body))
for s in tree.body:
    start = min([s.lineno, *(d.lineno for d in getattr(s, "decorator_list", []))])
    while start - 2 >= 0 and lines[start - 2].startswith("#"):
        start -= 1
    if isinstance(s, (ast.Import, ast.ImportFrom)) or (
        isinstance(s, ast.If) and "TYPE_CHECKING" in ast.unparse(s.test)
    ):
        imports.append("".join(lines[s.lineno - 1 : s.end_lineno]))
    if bound(s) & names:
        moved.append("".join(lines[start - 1 : s.end_lineno]))
        cut |= set(range(start - 1, s.end_lineno))
missing = names - own
assert not missing, missing
used = {n.id for s in tree.body if bound(s) & names for n in ast.walk(s) if isinstance(n, ast.Name)} & (own - names)
if used:
    print("moved code still uses", used, "of", old)
rest = "".join(l for i, l in enumerate(lines) if i not in cut)
rest_used = {n.id for n in ast.walk(ast.parse(rest)) if isinstance(n, ast.Name)} & names
# strings in annotations
rest_used |= {n for n in names if re.search(rf'"[^"\n]*\b{n}\b[^"\n]*"', rest)} & {n for n in names if n[0].isupper()}
if rest_used:
    t = ast.parse(rest)
    last = max((s.end_lineno for s in t.body if isinstance(s, (ast.Import, ast.ImportFrom))), default=1)
    rl = rest.splitlines(keepends=True)
    rl.insert(last, f"from {new} import {', '.join(sorted(rest_used))}\n")
    rest = "".join(rl)
P(old).write_text(rest)
body = "\n\n\n".join(m.strip("\n") for m in moved) + "\n"
extra = f"from {old} import {', '.join(sorted(used))}\n" if used else ""
if P(new).exists():
    t = P(new).read_text()
    tr = ast.parse(t)
    last = max((s.end_lineno for s in tr.body if isinstance(s, (ast.Import, ast.ImportFrom))), default=1)
    tl = t.splitlines(keepends=True)
    tl.insert(last, "".join(imports) + extra)
    P(new).write_text("".join(tl) + "\n\n" + body)
else:
    P(new).parent.mkdir(parents=True, exist_ok=True)
    P(new).write_text(f'"""{doc}"""\n\n' + "".join(imports) + extra + "\n\n" + body)
op, ob = old.rsplit(".", 1)
np_, nb = new.rsplit(".", 1)
for f in [
    *Path("encodery").rglob("*.py"),
    *Path("tests").rglob("*.py"),
    *Path("bench").glob("*.py"),
    *Path("stories").rglob("*.py"),
    *Path("docs").glob("*.py"),
]:
    if f in (P(old), P(new)) and f == P(old):
        continue
    t = o = f.read_text()

    def fix(m):
        items = [
            x.strip() for x in m.group(3).replace("(", "").replace(")", "").replace("\n", " ").split(",") if x.strip()
        ]
        go = [x for x in items if x.split(" as ")[0] in names]
        stay = [x for x in items if x not in go]
        if not go:
            return m.group(0)
        out = []
        if stay:
            out.append(f"{m.group(1)}from {old} import {', '.join(stay)}")
        if f != P(new):
            out.append(f"{m.group(1)}from {new} import {', '.join(go)}")
        return "\n".join(out) if out else m.group(1) + "pass"

    t = re.sub(rf"^([ \t]*)from ({re.escape(old)}) import (\([^)]*\)|[^\n(#]+)", fix, t, flags=re.M)
    if re.search(rf"from {re.escape(op)} import (?:\([^)]*\b{ob}\b|[^\n]*\b{ob}\b)", t):
        pat = re.compile(r"(?<![\w.]){}\.({})\b".format(ob, "|".join(sorted(names))))
        if pat.search(t):
            t = pat.sub(lambda m: f"{nb}.{m.group(1)}" if f != P(new) else m.group(1), t)
            if f != P(new):
                t = re.sub(
                    rf"^([ \t]*)(from {re.escape(op)} import [^\n]*)",
                    lambda m: (
                        f"{m.group(1)}from {np_} import {nb}\n{m.group(0)}"
                        if re.search(rf"\b{ob}\b", m.group(2))
                        else m.group(0)
                    ),
                    t,
                    flags=re.M,
                )
        for m in re.finditer(rf"setattr\({ob}, \"(\w+)\"", t):
            if m.group(1) in names:
                print("monkeypatch by hand:", f, m.group(0))
    for n in names:
        t = t.replace(f"{old}.{n}", f"{new}.{n}")
    if t != o:
        f.write_text(t)
subprocess.run([".venv/bin/ruff", "check", "--fix", "-q", "."])
subprocess.run([".venv/bin/ruff", "format", "-q", "."])
