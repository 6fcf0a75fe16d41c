"""transformers' Auto classes know our own classes as soon as both are imported, and nothing is imported for that."""

import sys
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

# A module of transformers -> ours, which register their classes there when they are imported.
OURS = {
    "transformers.models.auto.configuration_auto": (
        "encodery.models.amos_config",
        "encodery.objectives.parts.own_configs",
    ),
    "transformers.models.auto.modeling_auto": (
        "encodery.models.amos",
        "encodery.objectives.parts.joint_span",
        "encodery.objectives.parts.pooled_classifier",
    ),
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
                import_ours(name)

            loader.exec_module = then
        return spec


def import_ours(theirs: str) -> None:
    """All modules of ours that wait for this one."""
    for name in OURS[theirs]:
        import_module(name)


def watch() -> None:
    """Import ours now where theirs is there already, and else when its time comes."""
    for theirs in OURS:
        if theirs in sys.modules:
            import_ours(theirs)
        else:
            sys.meta_path.insert(0, After(theirs))
