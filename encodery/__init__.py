"""encodery: a place where text encoders are made.

import encodery as en
run = en.train("rte.yaml", optim={"lr": 3e-5})
model = en.load(run)
model(("a premise", "a hypothesis"))
"""

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from encodery.api import Classifier, Prediction, Run, load, steps, table, train

try:
    __version__ = version("encodery")
except PackageNotFoundError:  # run from a checkout that was not installed
    __version__ = "0+unknown"

__all__ = ["Classifier", "Prediction", "Run", "__version__", "load", "steps", "table", "train"]


def __getattr__(name: str) -> Any:
    """Import the heavy parts only when somebody asks for them."""
    if name in __all__:
        from encodery import api

        return getattr(api, name)
    raise AttributeError(f"module 'encodery' has no attribute {name!r}")
