"""`kind: freelb` is the one public class in encodery/methods/freelb.py; `kind: mine.py:Mine` is your own file's."""

import difflib
import hashlib
import importlib
import importlib.util
import pkgutil
import sys
import traceback
from pathlib import Path
from types import ModuleType

from encodery.errors import UserError
from encodery.options import Options

# Files of a room that are no components, besides those with a leading _.
_HELPERS = {
    "base", "check", "classify", "documents", "grammar", "hub", "known", "metrics", "named", "pretraining", "ranked",
    "readers", "rows", "sources", "spans", "split", "tagged",
}  # fmt: skip


def find(room: str, name: str, folder: Path | None = None) -> type[Options]:
    """The class that a name in a config stands for. Own files are looked up in `folder` (and are run)."""
    if ".py:" in name:
        file, _, wanted = name.rpartition(":")
        own = getattr(load_file((folder or Path()) / file), wanted, None)
        if not (isinstance(own, type) and issubclass(own, Options)):
            raise UserError(f"{file} has no class {wanted} that is made of encodery's Options.")
        return own
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


def digest(path: Path) -> str:
    """The sha256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def load_file(path: Path) -> ModuleType:
    """A person's own Python file as a module; the same content is run once."""
    path = path.resolve()
    if not path.is_file():
        raise UserError(f"there is no file {path}; own files are looked up beside the config that names them.")
    name = f"encodery_own_{path.stem}_{digest(path)[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UserError(f"{path} is not a Python file.")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
        line = f":{frames[-1].lineno}" if frames else f":{error.lineno}" if isinstance(error, SyntaxError) else ""
        raise UserError(f"{path}{line}: {type(error).__name__}: {error}") from error
    return module
