"""`kind: freelb` is the one public class in encodery/methods/freelb.py. Own files (`mine.py:Mine`): own_code.py."""

import difflib
import importlib
import pkgutil
import sys
from types import ModuleType

from encodery.core.options import Options
from encodery.errors import UserError

# Where the kinds of each section are: a package with a file for each kind, or a module with a table KINDS.
_PACKAGES = {
    "tasks": "encodery.tasks",
    "objectives": "encodery.objectives",
    "methods": "encodery.methods",
    "weighting": "encodery.weighting",
    "mix": "encodery.data.mixes",
    "select": "encodery.selectors",
}


def find(package: str, name: str) -> type[Options]:
    """The class of ours that a name in a config stands for."""
    module, kind = importlib.import_module(_PACKAGES[package]), name.replace("-", "_")
    kinds: dict[str, type[Options]] = getattr(module, "KINDS", {})
    if kind in kinds:
        return kinds[kind]
    # Of one that is loaded the disk is not asked again: plans of thousands of runs come here.
    loaded = sys.modules.get(f"{module.__name__}.{kind}") if _is_kind(kind) else None
    if (loaded is None or hasattr(loaded, "__path__")) and kind not in (kinds_here := names(package)):
        near = _parts_called(name) if package == "tasks" else []
        near = near or difflib.get_close_matches(kind, kinds_here, n=1, cutoff=0.5)
        hint = f" Did you mean {' or '.join(repr(one) for one in near)}?" if near else ""
        raise UserError(f"there is no '{name}' in {package}.{hint} There are: {', '.join(kinds_here)}.")
    return _only_class(importlib.import_module(f"{module.__name__}.{kind}"))


def _parts_called(name: str) -> list[str]:
    """Tasks whose part has this name: `rte` is meant for glue/rte, `SST-2` for glue/sst2."""
    wanted = _bare(name)
    parts = {kind: getattr(find("tasks", kind), "parts", {}) for kind in names("tasks")}
    return [f"{kind}/{part}" for kind, some in parts.items() for part in some if part and _bare(part) == wanted]


def _bare(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


def names(package: str) -> list[str]:
    """The kinds of a section: every public file of its package but `base`, or the keys of its table."""
    module = importlib.import_module(_PACKAGES[package])
    if hasattr(module, "KINDS"):
        return sorted(module.KINDS)
    files = (entry.name for entry in pkgutil.iter_modules(module.__path__) if not entry.ispkg)
    return sorted(filter(_is_kind, files))


def _is_kind(file: str) -> bool:
    """Whether a file of a component package may be a component by its name."""
    return file.isidentifier() and file != "base" and not file.startswith("_")


def _only_class(module: ModuleType) -> type[Options]:
    mine = [c for c in vars(module).values() if isinstance(c, type) and _within(c.__module__, module.__name__)]
    public = [c for c in mine if issubclass(c, Options) and not c.__name__.startswith("_")]
    kind = module.__name__.rpartition(".")[2].replace("_", "")
    public = [c for c in public if c.__name__.lower() == kind] or public  # others are its variants
    if len(public) != 1:
        raise UserError(f"{module.__name__} is not a component: it has {len(public)} public classes with options.")
    return public[0]


def _within(name: str, module: str) -> bool:
    """Defined here, or in a part of the folder that a big component may be."""
    return name == module or name.startswith(f"{module}.")
