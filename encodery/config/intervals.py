"""`500 steps`, `1/2 epoch`, `10 min`, `end`, `never`: when something is due."""

import math
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction


@dataclass
class Every:
    """Says after which steps something is due. Steps and epochs depend on the step alone; minutes on the clock."""

    steps: Fraction | None = None
    seconds: float | None = None
    last: float = field(default_factory=time.monotonic)

    def due(self, step: int) -> bool:
        """Whether it is due after this many steps."""
        if self.steps is not None:
            return int(step / self.steps) > int((step - 1) / self.steps)
        if self.seconds is not None and time.monotonic() - self.last >= self.seconds:
            self.last = time.monotonic()
            return True
        return False


def parse(text: str, steps_per_epoch: int) -> Every:
    """Read an interval; the schema has checked its form. `end` and `never` are due nowhere on the way."""
    match = re.match(r"^(\d+)(?:/(\d+))? (step|epoch|min)", text)
    if not match:
        return Every()
    amount = Fraction(int(match[1]), int(match[2] or 1))
    if match[3] == "min":
        return Every(seconds=float(amount) * 60)
    return Every(steps=max(amount * (steps_per_epoch if match[3] == "epoch" else 1), Fraction(1)))


def of_shares(shares: Sequence[float], total: int) -> dict[int, str]:
    """After which step which share (in per cent) of all steps is done; of shares on one step the largest."""
    return {math.ceil(total * share / 100): f"{share:g}" for share in sorted(shares) if share < 100}
