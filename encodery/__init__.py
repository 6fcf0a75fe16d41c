"""encodery: a place where text encoders are made.

import encodery as en
run = en.train("rte.yaml", optim={"lr": 3e-5})
model = en.load(run)
model(("a premise", "a hypothesis"))
"""

from typing import TYPE_CHECKING, Any

from encodery import auto

if TYPE_CHECKING:
    from encodery.api import Classifier, Prediction, Run, cross_validate, load, steps, table, train

    __version__: str

__all__ = ["Classifier", "Prediction", "Run", "__version__", "cross_validate", "load", "steps", "table", "train"]


auto.watch()


def __getattr__(name: str) -> Any:
    """Import the heavy parts, and ask for the version, only when somebody wants them."""
    if name == "__version__":
        return _version()
    if name in __all__:
        from encodery import api

        return getattr(api, name)
    raise AttributeError(f"module 'encodery' has no attribute {name!r}")


def __dir__() -> list[str]:
    """What completion should offer."""
    return __all__


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("encodery")
    except PackageNotFoundError:  # run from a checkout that was not installed
        return "0+unknown"
