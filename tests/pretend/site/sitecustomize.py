"""Python runs this at its start: where ENCODERY_PRETEND_GUARD is set, `import torch` finds pretend GPUs."""

import ctypes
import importlib.abc
import importlib.util
import os
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType


def visible() -> int:
    """How many devices this process may see, as CUDA counts them."""
    names = os.environ.get("CUDA_VISIBLE_DEVICES", os.environ.get("ENCODERY_PRETEND_MACHINE", "0,1"))
    return len([name for name in names.split(",") if name.strip() not in ("", "-1")])


class Finder(importlib.abc.MetaPathFinder):
    """Nothing is imported before torch is asked for: what does without it stays fast."""

    def find_spec(self, name: str, path: object, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        os.environ["ENCODERY_PRETEND_DEVICES"] = str(visible())
        ctypes.CDLL(os.environ["ENCODERY_PRETEND_GUARD"])  # before torch looks for its hooks
        spec = importlib.util.find_spec("torch")
        assert spec is not None
        assert spec.loader is not None
        execute = spec.loader.exec_module

        def then_install(module: ModuleType) -> None:
            execute(module)
            place = Path(__file__).resolve().parent.parent / "device.py"
            about = importlib.util.spec_from_file_location("pretend_device", place)
            assert about is not None
            assert about.loader is not None
            device = sys.modules["pretend_device"] = importlib.util.module_from_spec(about)
            about.loader.exec_module(device)
            device.install()

        spec.loader.exec_module = then_install  # type: ignore[method-assign]
        return spec


if "ENCODERY_PRETEND_GUARD" in os.environ and visible():
    sys.meta_path.insert(0, Finder())
