"""`kind: freelb` is the one public class in encodery/methods/freelb.py. Own files (`mine.py:Mine`): own_code.py."""

import difflib
import importlib
import pkgutil
from types import ModuleType

from encodery.errors import UserError
from encodery.options import Options

# Files of a room that are no components, besides those with a leading _.
_HELPERS = {
    "base", "check", "classify", "documents", "grammar", "hub", "known", "metrics", "named", "pretraining", "ranked",
    "readers", "rows", "sources", "spans", "split", "tagged",
}  # fmt: skip


def find(room: str, name: str) -> type[Options]:
    """The class of ours that a name in a config stands for."""
    if name.replace("-", "_") not in (known := names(room)):
        near = difflib.get_close_matches(name.replace("-", "_"), known, n=1, cutoff=0.5)
        hint = f" Did you mean '{near[0]}'?" if near else ""
        raise UserError(f"there is no '{name}' in {room}.{hint} There are: {', '.join(known)}.")
    return _only_class(importlib.import_module(f"encodery.{room}.{name.replace('-', '_')}"))


def names(room: str) -> list[str]:
    """The components of a room: its files, without helpers."""
    package = importlib.import_module(f"encodery.{room}")
    found = (module.name for module in pkgutil.iter_modules(package.__path__))
    return sorted(name for name in found if not name.startswith("_") and name not in _HELPERS)


def _only_class(module: ModuleType) -> type[Options]:
    mine = [c for c in vars(module).values() if isinstance(c, type) and _within(c.__module__, module.__name__)]
    public = [c for c in mine if issubclass(c, Options) and not c.__name__.startswith("_")]
    if len(public) != 1:
        raise UserError(f"{module.__name__} is not a component: it has {len(public)} public classes with options.")
    return public[0]


def _within(name: str, module: str) -> bool:
    """Defined here, or in a part of the folder that a big component may be."""
    return name == module or name.startswith(f"{module}.")
