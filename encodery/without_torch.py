"""Reads option classes without importing torch: while a component's file runs, heavy packages are placeholders.

The options of a component and the code that uses them are in one file, and that file imports torch, which takes
seconds. A command that only compares or prints settings needs the options alone. So the file is run with placeholders
in place of torch and its like, and every module that saw one is forgotten afterwards: training imports the real one.
"""

import importlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Iterator, MutableSequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

HEAVY = {"torch", "transformers", "tokenizers", "sklearn", "scipy", "datasets", "peft", "safetensors", "accelerate"}


class _Kind(type):
    """A class whose every attribute is such a class: it may be inherited from, called, subscripted, joined by `|`."""

    def __getattr__(cls, name: str) -> "_Kind":
        if name.startswith("__"):
            raise AttributeError(name)
        return _Kind(name, (), {})

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        # A decorator gives back what it decorates, so that a class below it keeps its name and fields.
        return args[0] if len(args) == 1 and callable(args[0]) and not kwargs else cls

    def __getitem__(cls, key: Any) -> "_Kind":
        return cls


class _Placeholder(ModuleType):
    """A module whose every attribute is a placeholder class."""

    __path__: MutableSequence[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Kind(name, (), {})


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives placeholders for heavy packages and everything below them."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        return importlib.machinery.ModuleSpec(name, self) if name.partition(".")[0] in HEAVY else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _Placeholder(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is run."""


@contextmanager
def placeholders() -> Iterator[None]:
    """Heavy packages are placeholders inside; modules imported meanwhile are forgotten at the end."""
    if HEAVY & set(sys.modules):  # one is loaded already: it costs nothing more
        yield
        return
    before, finder = set(sys.modules), _Finder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in set(sys.modules) - before:
            if name.partition(".")[0] in HEAVY | {"encodery"}:
                _forget(name)


def _forget(name: str) -> None:
    module = sys.modules.pop(name)
    parent, _, child = name.rpartition(".")
    if parent in sys.modules and getattr(sys.modules[parent], child, None) is module:
        delattr(sys.modules[parent], child)
