"""transformers' Auto classes know our own classes as soon as both are imported, and nothing is imported for that."""

import sys
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

# A module of transformers -> ours, which registers its classes there when it is imported.
OURS = {
    "transformers.models.auto.configuration_auto": "encodery.objectives._joint_config",
    "transformers.models.auto.modeling_auto": "encodery.objectives._joint",
}


class After(MetaPathFinder):
    """Waits for a module of transformers, and imports ours when that is there."""

    def __init__(self, name: str) -> None:
        self.name = name

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Only this one module, only once."""
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            inner = loader.exec_module

            def then(module: ModuleType) -> None:
                inner(module)
                import_module(OURS[name])

            loader.exec_module = then
        return spec


def watch() -> None:
    """Import ours now where theirs is there already, and else when its time comes."""
    for theirs, ours in OURS.items():
        if theirs in sys.modules:
            import_module(ours)
        else:
            sys.meta_path.insert(0, After(theirs))
