"""encodery: a place where text encoders are made.

import encodery as en
run = en.train("rte.yaml", optim={"lr": 3e-5})
model = en.load(run)
model(("a premise", "a hypothesis"))
"""

from typing import TYPE_CHECKING, Any

from encodery.models import auto_register

if TYPE_CHECKING:
    from encodery.api import (
        Classifier,
        Prediction,
        Run,
        Sweep,
        cross_validate,
        evaluate,
        export,
        inspect,
        load,
        predict,
        report,
        run_sweep,
        steps,
        table,
        train,
    )

    __version__: str

__all__ = [
    "Classifier", "Prediction", "Run", "Sweep", "__version__", "cross_validate", "evaluate", "export",
    "inspect", "load", "predict", "report", "run_sweep", "steps", "table", "train",
]  # fmt: skip


auto_register.watch()


def __getattr__(name: str) -> Any:
    """Import the heavy parts, and ask for the version, only when somebody wants them."""
    if name == "__version__":
        from encodery.core.environment import version

        return version()
    if name in __all__:
        from encodery import api

        return getattr(api, name)
    raise AttributeError(f"module 'encodery' has no attribute {name!r}")


def __dir__() -> list[str]:
    """What completion should offer."""
    return __all__
