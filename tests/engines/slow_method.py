"""Plain training that takes its time until a file is there, without keeping a core busy.

After a while it is slower still: however busy the machine is, it has not ended when a test interrupts it.
"""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from encodery.components import Batch, Method, Model, Terms, Totals, backward, each

UNTIL = "SLOW_UNTIL"  # the name of the file, in the environment
SOON = 40  # steps


class Slow(Method):
    """The gradient of the loss, half a second later; from the fortieth step on five seconds."""

    steps: ClassVar[int] = 0

    def __call__(self, model: Model, micro: Sequence[Batch], totals: Totals) -> Terms:
        if UNTIL in os.environ and not Path(os.environ[UNTIL]).exists():
            Slow.steps += 1
            time.sleep(0.5 if Slow.steps <= SOON else 5.0)
        return each(self.on_batch, model, micro, totals)

    def on_batch(self, model: Model, batch: Batch, totals: Totals) -> Terms:
        return backward(model, batch, totals)[1]
