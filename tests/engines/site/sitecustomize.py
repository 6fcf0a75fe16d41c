"""Python runs this at its start: where SLOW_UNTIL names a file, plain training takes its time until that file is there.

It sleeps, and changes no number. After a while it is slower still: however busy the machine is, it has not ended when a
test interrupts it. An own method could do this too, but all who read its config would import torch for it.
"""

import importlib.abc
import importlib.util
import itertools
import os
import sys
import time
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

UNTIL = "SLOW_UNTIL"  # the name of the file, in the environment
METHOD = "encodery.methods.plain"
SOON = 40  # steps


class Finder(importlib.abc.MetaPathFinder):
    """Plain training, half a second later each step; after the fortieth ten seconds."""

    def find_spec(self, name: str, path: object, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != METHOD:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.loader is not None
        execute = spec.loader.exec_module

        def then_slow_down(module: ModuleType) -> None:
            execute(module)
            module.Plain.__call__ = slowly(module.Plain.__call__)

        spec.loader.exec_module = then_slow_down  # type: ignore[method-assign]
        return spec


def slowly(step: Any) -> Any:
    """The same step, later."""
    count = itertools.count(1)

    def wait_and_step(*args: Any) -> Any:
        if not Path(os.environ[UNTIL]).exists():
            time.sleep(0.5 if next(count) <= SOON else 10.0)
        return step(*args)

    return wait_and_step


if UNTIL in os.environ:
    sys.meta_path.insert(0, Finder())
