"""Times that are asserted: the least of a few, because a busy machine adds time and never takes any away."""

from collections.abc import Callable


def least(seconds: Callable[[int], float], limit: float, attempts: int = 3) -> float:
    """The smallest of up to `attempts` measurements; those after one below the limit are not taken."""
    best = float("inf")
    for attempt in range(attempts):
        best = min(best, seconds(attempt))
        if best < limit:
            break
    return best
