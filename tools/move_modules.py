"""Moves and merges modules by a table (moves.csv), rewriting every import, string and page that names them.

    python tools/move_modules.py tools/moves.csv [--dry]        in the root of a clean checkout; needs libcst

moves.renames holds new names for what would collide when modules are merged: module, old name, new name. Tried on this
tree: what remains by hand is in the notes that it prints. It is used for one redesign and goes with it.
"""
# ruff: noqa: D101, D103, E741, SIM102, SIM115

import ast
import collections
import csv
import re
import subprocess
import sys
from pathlib import Path

import libcst as cst
from libcst import metadata as md

ROOT = Path.cwd()
DRY = "--dry" in sys.argv
MAP = {r["old"]: r["new"] for r in csv.DictReader(open(sys.argv[1]))}
RENAMES = {}  # (old module, name) -> new name, for collisions
ren = Path(sys.argv[1]).with_suffix(".renames")
if ren.exists():
    for line in ren.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            m, a, b = line.split()
            RENAMES[(m, a)] = b


def path_of(module, root=ROOT):
    p = root / Path(*module.split("."))
    return p / "__init__.py" if (p / "__init__.py").exists() else p.with_suffix(".py")


OLD = {}
for f in sorted(ROOT.glob("encodery/**/*.py")):
    parts = list(f.relative_to(ROOT).with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    OLD[".".join(parts)] = f
PACKAGES = {m for m, f in OLD.items() if f.name == "__init__.py"}
unmapped = [m for m in OLD if m not in MAP]
if unmapped:
    print("not in the mapping (stay):", unmapped)
for m in unmapped:
    MAP[m] = m
for m in list(MAP):
    if m not in OLD:
        print("gone:", m)
        del MAP[m]
NEWPKG = set()
for n in MAP.values():
    parts = n.split(".")
    for i in range(1, len(parts)):
        NEWPKG.add(".".join(parts[:i]))
groups = collections.defaultdict(list)
for o, n in MAP.items():
    groups[n].append(o)
PROBLEMS = []


class Rewriter(cst.CSTTransformer):
    """Imports, and the names that they bind."""

    METADATA_DEPENDENCIES = (md.ScopeProvider, md.PositionProvider)

    def __init__(self, where, new_where, module_old):
        self.where, self.new_where, self.module_old = where, new_where, module_old
        self.rename_nodes = {}  # Name node -> replacement expression
        self.drop = set()

    def visit_Module(self, node):
        scopes = {s for s in self.metadata[md.ScopeProvider].values() if s is not None}
        self.all_bound = collections.Counter()
        for s in scopes:
            for a in s.assignments:
                self.all_bound[a.name] += 1
        for s in scopes:
            for a in list(s.assignments):
                if isinstance(a, md.ImportAssignment):
                    self.plan_import(a)
        if self.module_old:
            for s in scopes:
                if isinstance(s, md.GlobalScope):
                    for a in s.assignments:
                        new = RENAMES.get((self.module_old, a.name))
                        if new and not isinstance(a, md.ImportAssignment):
                            for acc in a.references:
                                self.rename_nodes[id(acc.node)] = cst.Name(new)
                            self.def_rename = getattr(self, "def_rename", {})
                            self.def_rename[a.name] = new

    def plan_import(self, a):
        node = a.node
        if isinstance(node, cst.ImportFrom):
            base = dotted(node.module) if node.module else ""
            if node.relative:
                PROBLEMS.append(f"{self.where}: relative import")
                return
            if not (base == "encodery" or base.startswith("encodery.")):
                return
            for al in node.names:
                local = al.asname.name.value if al.asname else al.name.value
                if local != a.name:
                    continue
                name = al.name.value
                full = f"{base}.{name}"
                if full in OLD:  # a module
                    new = MAP[full]
                    nb = new.rsplit(".", 1)[1]
                    if (new == self.new_where and new != full) or new == self.new_where:
                        for acc in a.references:
                            self.mark_attr(acc, None, full)
                    elif not al.asname and nb != local:
                        target = self.local_name(nb, new, a)
                        for acc in a.references:
                            self.rename_nodes[id(acc.node)] = cst.Name(target)
                        self.aliases = getattr(self, "aliases", {})
                        self.aliases[(id(node), name)] = target
                    # attribute renames
                    for acc in a.references:
                        self.attr_rename(acc, full)
                elif base in MAP and MAP[base] == self.new_where and base != self.module_old:
                    newname = RENAMES.get((base, name), name)
                    if newname != local:
                        for acc in a.references:
                            self.rename_nodes[id(acc.node)] = cst.Name(newname)
                elif (base, name) in RENAMES and not al.asname:
                    for acc in a.references:
                        self.rename_nodes[id(acc.node)] = cst.Name(RENAMES[(base, name)])

    def local_name(self, nb, new, a):
        if self.all_bound[nb] and not self.same_module_import(nb, new):
            PROBLEMS.append(f"{self.where}: module {new} would be called {nb}, which is bound already; aliased")
            return f"{new.rsplit('.', 2)[-2]}_{nb}"
        return nb

    def same_module_import(self, nb, new):
        return False

    def mark_attr(self, acc, _new, full):
        self.unqualify = getattr(self, "unqualify", {})
        self.unqualify[id(acc.node)] = full

    def attr_rename(self, acc, full):
        self.attr_mod = getattr(self, "attr_mod", {})
        self.attr_mod[id(acc.node)] = full

    # leave
    def leave_Name(self, o, u):
        r = self.rename_nodes.get(id(o))
        return r if r is not None else u

    def leave_Attribute(self, o, u):
        if isinstance(o.value, cst.Name):
            full = getattr(self, "unqualify", {}).get(id(o.value))
            if full:
                return cst.Name(RENAMES.get((full, o.attr.value), o.attr.value), lpar=u.lpar, rpar=u.rpar)
            full = getattr(self, "attr_mod", {}).get(id(o.value))
            if full and (full, o.attr.value) in RENAMES:
                return u.with_changes(attr=cst.Name(RENAMES[(full, o.attr.value)]))
        return u

    def leave_FunctionDef(self, o, u):
        n = getattr(self, "def_rename", {}).get(o.name.value)
        return u.with_changes(name=cst.Name(n)) if n and self.is_top(o) else u

    def leave_ClassDef(self, o, u):
        n = getattr(self, "def_rename", {}).get(o.name.value)
        return u.with_changes(name=cst.Name(n)) if n and self.is_top(o) else u

    def leave_AssignTarget(self, o, u):
        if isinstance(o.target, cst.Name):
            n = getattr(self, "def_rename", {}).get(o.target.value)
            if n and isinstance(self.metadata[md.ScopeProvider].get(o.target), md.GlobalScope):
                return u.with_changes(target=cst.Name(n))
        return u

    def leave_AnnAssign(self, o, u):
        if isinstance(o.target, cst.Name):
            n = getattr(self, "def_rename", {}).get(o.target.value)
            if n and isinstance(self.metadata[md.ScopeProvider].get(o.target), md.GlobalScope):
                return u.with_changes(target=cst.Name(n))
        return u

    def is_top(self, o):
        return isinstance(self.metadata[md.ScopeProvider].get(o), md.GlobalScope)

    def leave_SimpleStatementLine(self, o, u):
        if len(o.body) != 1:
            return u
        s = o.body[0]
        if isinstance(s, cst.ImportFrom) and s.module is not None:
            base = dotted(s.module)
            if not (base == "encodery" or base.startswith("encodery.")) or isinstance(s.names, cst.ImportStar):
                return u
            by = collections.OrderedDict()
            for al in s.names:
                name = al.name.value
                asname = al.asname.name.value if al.asname else None
                full = f"{base}.{name}"
                if full in OLD:
                    new = MAP[full]
                    if new == self.new_where:
                        continue
                    parent, nb = new.rsplit(".", 1)
                    alias = asname
                    t = getattr(self, "aliases", {}).get((id(s), name))
                    if t and t != nb:
                        alias = t
                    if alias == nb:
                        alias = None
                    by.setdefault(parent, []).append((nb, alias))
                elif base in MAP:
                    new = MAP[base]
                    if new == self.new_where and base != self.module_old:
                        continue
                    by.setdefault(new, []).append((RENAMES.get((base, name), name), asname))
                else:
                    by.setdefault(base, []).append((name, asname))
                    PROBLEMS.append(f"{self.where}: unknown {base}")
            lines = []
            for parent, names in by.items():
                lines.append(
                    cst.SimpleStatementLine(
                        body=[
                            cst.ImportFrom(
                                module=to_dotted(parent),
                                names=[
                                    cst.ImportAlias(
                                        name=cst.Name(n), asname=cst.AsName(name=cst.Name(a)) if a else None
                                    )
                                    for n, a in names
                                ],
                            )
                        ],
                        leading_lines=u.leading_lines if not lines else [],
                        trailing_whitespace=u.trailing_whitespace if len(by) == 1 else cst.TrailingWhitespace(),
                    )
                )
            if not lines:
                return (
                    cst.SimpleStatementLine(body=[cst.Pass()])
                    if not self.is_top(o) and False
                    else cst.RemoveFromParent()
                )
            return cst.FlattenSentinel(lines)
        if isinstance(s, cst.Import):
            for al in s.names:
                d = dotted(al.name)
                if d.startswith("encodery.") and MAP.get(d) != d:
                    PROBLEMS.append(f"{self.where}: import {d}: by hand")
        return u


def dotted(n):
    return n.value if isinstance(n, cst.Name) else dotted(n.value) + "." + n.attr.value


def to_dotted(s):
    parts = s.split(".")
    e = cst.Name(parts[0])
    for p in parts[1:]:
        e = cst.Attribute(value=e, attr=cst.Name(p))
    return e


LONGEST = sorted(MAP, key=len, reverse=True)
TEXT = re.compile(r"\bencodery((?:\.[A-Za-z_][A-Za-z_0-9]*)+)")


def in_text(text):
    """Dotted names in strings and prose."""

    def swap(m):
        full = "encodery" + m.group(1)
        parts = full.split(".")
        for i in range(len(parts), 1, -1):
            stem = ".".join(parts[:i])
            if stem in MAP:
                rest = parts[i:]
                if rest and (stem, rest[0]) in RENAMES:
                    rest[0] = RENAMES[(stem, rest[0])]
                return ".".join([MAP[stem], *rest])
        return full

    text = TEXT.sub(swap, text)

    def swap_path(m):
        mod = m.group(1).replace("/", ".")
        return MAP[mod].replace(".", "/") + ".py" if mod in MAP and MAP[mod] not in PACKAGES else m.group(0)

    return re.sub(r"\b(encodery(?:/[a-z_0-9]+)+)\.py", swap_path, text)


class Strings(cst.CSTTransformer):
    def leave_SimpleString(self, o, u):
        return u.with_changes(value=in_text(u.value)) if "encodery" in u.value else u

    def leave_FormattedStringText(self, o, u):
        return u.with_changes(value=in_text(u.value)) if "encodery" in u.value else u

    def leave_Comment(self, o, u):
        return u.with_changes(value=in_text(u.value)) if "encodery" in u.value else u


def rewrite(text, where, old=None, new=None):
    wrapper = md.MetadataWrapper(cst.parse_module(text), unsafe_skip_copy=True)
    tree = wrapper.visit(Rewriter(where, new, old))
    return tree.visit(Strings())


# 1. the library
trees = {}
for old, file in OLD.items():
    trees[old] = rewrite(file.read_text(), str(file.relative_to(ROOT)), old, MAP[old])


def split_module(tree):
    """docstring, imports, type-only imports, rest."""
    body = list(tree.body)
    doc = None
    if (
        body
        and isinstance(body[0], cst.SimpleStatementLine)
        and isinstance(body[0].body[0], cst.Expr)
        and isinstance(body[0].body[0].value, (cst.SimpleString, cst.ConcatenatedString))
    ):
        doc = body.pop(0)
    imports, checking, rest = [], [], []
    for s in body:
        if isinstance(s, cst.SimpleStatementLine) and isinstance(s.body[0], (cst.Import, cst.ImportFrom)) and not rest:
            imports.append(s)
        elif isinstance(s, cst.If) and isinstance(s.test, cst.Name) and s.test.value == "TYPE_CHECKING":
            checking.extend(s.body.body)
        elif isinstance(s, cst.SimpleStatementLine) and isinstance(s.body[0], (cst.Import, cst.ImportFrom)):
            imports.append(s)
        else:
            rest.append(s)
    return doc, imports, checking, rest


def top_names(old):
    names = set()
    for s in ast.parse(OLD[old].read_text()).body:
        if isinstance(s, (ast.FunctionDef, ast.ClassDef)):
            names.add(s.name)
        elif isinstance(s, ast.Assign):
            for t in s.targets:
                for n in ast.walk(t):
                    if isinstance(n, ast.Name):
                        names.add(n.id)
        elif isinstance(s, ast.AnnAssign):
            names.add(s.target.id)
        elif isinstance(s, ast.TypeAlias) if hasattr(ast, "TypeAlias") else False:
            names.add(s.name.id)
    return {RENAMES.get((old, n), n) for n in names}


def order(olds, new):
    """Imported ones first; the module that keeps its name last of equals."""
    deps = {o: set() for o in olds}
    for o in olds:
        for s in ast.parse(OLD[o].read_text()).body:
            if isinstance(s, ast.ImportFrom) and s.module:
                for t in [s.module, *(f"{s.module}.{a.name}" for a in s.names)]:
                    if t in deps and t != o:
                        deps[o].add(t)
    done = []
    while len(done) < len(olds):
        ready = [o for o in sorted(olds) if o not in done and deps[o] <= set(done)]
        if not ready:
            PROBLEMS.append(f"{new}: cycle among {olds}")
            ready = [o for o in sorted(olds) if o not in done]
        done.append(ready[0])
    return done


out = {}
for new, olds in groups.items():
    if len(olds) == 1:
        out[new] = trees[olds[0]].code
        continue
    ordered = order(olds, new)
    seen = collections.Counter(n for o in ordered for n in top_names(o))
    for n, c in seen.items():
        if c > 1:
            PROBLEMS.append(f"COLLISION {new}: {n} in {[o for o in ordered if n in top_names(o)]}")
    docs, imports, checking, rest = [], [], [], []
    for o in ordered:
        d, i, c, r = split_module(trees[o])
        if d:
            docs.append(cst.Module([d]).code.strip())
        imports += i
        checking += c
        rest.append((o, r))
    # a name imported by one part and defined by another
    bound = collections.defaultdict(set)
    for s in imports:
        for al in s.body[0].names if not isinstance(s.body[0].names, cst.ImportStar) else []:
            n = al.asname.name.value if al.asname else dotted(al.name)
            src = (
                (dotted(s.body[0].module) if isinstance(s.body[0], cst.ImportFrom) and s.body[0].module else "")
                + ":"
                + dotted(al.name)
            )
            bound[n].add(src)
    for n, srcs in bound.items():
        if len(srcs) > 1:
            PROBLEMS.append(f"COLLISION {new}: import {n} from {sorted(srcs)}")
        if n in seen:
            PROBLEMS.append(f"COLLISION {new}: {n} imported {sorted(srcs)} and defined")
    main = next((o for o in ordered if o.rsplit(".", 1)[1] == new.rsplit(".", 1)[1]), None) or max(
        ordered, key=lambda o: OLD[o].stat().st_size
    )
    docof = {o: ast.get_docstring(ast.parse(OLD[o].read_text())) or "" for o in ordered}
    md_ = cst.Module([split_module(trees[main])[0]]).code.strip() if split_module(trees[main])[0] else ""
    text = md_ + "\n\n"
    text += "".join(cst.Module([s]).code for s in imports)
    if checking:
        text += "\nif TYPE_CHECKING:\n" + "".join(
            "    " + l + "\n" for s in checking for l in cst.Module([s]).code.strip().splitlines()
        )
    for o, r in rest:
        head = (
            ""
            if o == main or not docof[o]
            else "".join(f"# {l}".rstrip() + "\n" for l in in_text(docof[o]).splitlines()) + "\n\n"
        )
        if o == main and o != ordered[0] and docof[o]:
            head = ""
        text += "\n\n" + head + cst.Module(r).code.lstrip("\n")
    out[new] = text

# 2. everything else that imports the library
others = {}
for pattern in ("tests/**/*.py", "bench/*.py", "stories/**/*.py", "docs/*.py"):
    for f in ROOT.glob(pattern):
        t = f.read_text()
        if "encodery" in t:
            others[f] = rewrite(t, str(f.relative_to(ROOT))).code
for pattern in (
    "docs/*.md",
    "README.md",
    "CONTRIBUTING.md",
    "notebooks/*",
    "pyproject.toml",
    "tests/**/*.yaml",
    "Makefile",
):
    for f in ROOT.glob(pattern):
        t = f.read_text()
        n = in_text(t)
        if n != t:
            others[f] = n

for p in PROBLEMS:
    print(p)
print(len(OLD), "->", len(out), "modules;", len(PROBLEMS), "notes")
if DRY:
    sys.exit()


def is_package(new):
    return new in NEWPKG or (new in PACKAGES and MAP.get(new) == new)


def new_path(new):
    p = ROOT / Path(*new.split("."))
    return p / "__init__.py" if is_package(new) else p.with_suffix(".py")


moves = []
for new, olds in groups.items():
    target = new_path(new)
    keep = next((o for o in olds if OLD[o] == target), None) or max(olds, key=lambda o: OLD[o].stat().st_size)
    if OLD[keep] != target:
        moves.append((OLD[keep], target))
    for o in olds:
        if o != keep:
            moves.append((OLD[o], None))


def git(*a):
    subprocess.run(["git", *map(str, a)], check=True, stdout=subprocess.DEVNULL)


tmp = []
for src, dst in moves:
    if dst is None:
        git("rm", "-q", "--cached", src)
        src.unlink()
        continue
    t = src.with_name(src.name + ".moving")
    git("mv", src, t)
    tmp.append((t, dst))
for t, dst in tmp:
    dst.parent.mkdir(parents=True, exist_ok=True)
    git("mv", t, dst)
for new, text in out.items():
    p = new_path(new)
    p.parent.mkdir(parents=True, exist_ok=True)
    p.write_text(text)
for pkg in NEWPKG:
    i = ROOT / Path(*pkg.split(".")) / "__init__.py"
    if not i.exists():
        i.parent.mkdir(parents=True, exist_ok=True)
        i.write_text("")
for f, text in others.items():
    f.write_text(text)
for d in sorted((ROOT / "encodery").rglob("*"), reverse=True):
    if (
        d.is_dir()
        and not any(
            x.suffix in (".py", ".yaml", ".typed") or (x.is_dir() and x.name != "__pycache__") for x in d.iterdir()
        )
        and d.name != "__pycache__"
    ):
        if not any(x.is_file() for x in d.iterdir()):
            import shutil

            shutil.rmtree(d)
