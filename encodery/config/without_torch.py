"""Reads option classes without importing torch: while a component's file runs, heavy packages are placeholders.

The options of a component and the code that uses them are in one file, and that file imports torch, which takes
seconds. A command that only checks, compares or prints settings needs the options alone. So the file is run with
placeholders in place of torch and its like, and every module that saw one is forgotten afterwards: training imports
the real one. What needs more than options (a person's own Python file, a file that pandas reads) says so by
`NeedsTorch`, and `light` then does the work again with the real packages.
"""

import importlib
import importlib.abc
import importlib.machinery
import inspect
import sys
from collections.abc import Callable, Iterator, MutableSequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any, TypeVar

from encodery.errors import EncoderyError

HEAVY = {
    "torch", "transformers", "tokenizers", "sklearn", "scipy", "datasets", "peft", "safetensors", "accelerate",
    "numpy", "pandas", "pyarrow",
}  # fmt: skip
# Of ours: components mention their classes and call their functions, but no option is made of them.
WORKING = {
    "encodery.data.batches", "encodery.data.tensor_rng", "encodery.distributed.comm", "encodery.models.encoder",
    "encodery.models.model", "encodery.objectives.parts.amos_mixture",
}  # fmt: skip
T = TypeVar("T")


class NeedsTorch(BaseException):
    """Options are not enough here. No Exception, so that nobody catches it on the way to `light`."""


class _Kind(type):
    """A class whose every attribute is such a class: it may be inherited from, called, subscripted, joined by `|`."""

    def __getattr__(cls, name: str) -> "_Kind":
        if name.startswith("__"):
            raise AttributeError(name)
        return _Kind(name, (), {})

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if sys._getframe(1).f_code.co_flags & inspect.CO_OPTIMIZED:  # in a function, not while a file is imported
            raise NeedsTorch
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
    """Gives placeholders for the heavy packages that are not loaded yet, and for everything below them."""

    def __init__(self) -> None:
        self.heavy = HEAVY - sys.modules.keys()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name == "pyarrow":
            self._read_parquet()
        stands_in = name.partition(".")[0] in self.heavy or name in WORKING
        return importlib.machinery.ModuleSpec(name, self) if stands_in else None

    def _read_parquet(self) -> None:
        """Only what reads a Parquet file imports pyarrow, which takes half a second; it needs the real numpy."""
        self.heavy -= {"pyarrow", "numpy"}
        for module in [m for m in sys.modules if m.partition(".")[0] == "numpy" and _saw_placeholder(sys.modules[m])]:
            _forget(module)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _Placeholder(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is run."""


def light(work: Callable[[], T]) -> T:
    """The result of work that needs options alone, without torch; done again with torch where it needs more.

    The work must not print or write. Its result may be shown, not trained: it is made of classes without torch.
    """
    try:
        with placeholders():
            return work()
    except EncoderyError:
        raise
    except (Exception, NeedsTorch):
        return work()


def need_torch() -> None:
    """Say that what follows runs code of unknown needs; nothing happens outside of `placeholders`."""
    if active():
        raise NeedsTorch


def active() -> bool:
    """Whether heavy packages are placeholders now."""
    return any(isinstance(finder, _Finder) for finder in sys.meta_path)


@contextmanager
def placeholders() -> Iterator[None]:
    """Heavy packages are placeholders inside; modules that saw them are forgotten at the end."""
    if active() or "torch" in sys.modules:  # loaded already: it costs nothing more
        yield
        return
    before, finder = set(sys.modules), _Finder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in set(sys.modules) - before:
            if name.partition(".")[0] == "encodery" or _saw_placeholder(sys.modules[name]):
                _forget(name)


def _saw_placeholder(module: ModuleType) -> bool:
    values = [module, *vars(module).values()]
    return any(isinstance(value, _Placeholder | _Kind) for value in values)


def _forget(name: str) -> None:
    module = sys.modules.pop(name)
    parent, _, child = name.rpartition(".")
    if parent in sys.modules and getattr(sys.modules[parent], child, None) is module:
        delattr(sys.modules[parent], child)
