"""Values of an axis: lists, `range(1, 6, 2)`, `log(1e-5, 1e-3, 5)`, `linspace(0, 1, 3)`; and what a search draws from:
`uniform(0, 1)`, `loguniform(1e-6, 1e-4)`, `int(1, 8)`, `choice(a, b)`. A call is read by a pattern, nothing is run.
"""

import difflib
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from typing import Any, Literal

from encodery.core import yaml

MAX_VALUES = 100_000

_CALL = re.compile(r"([A-Za-z_]\w*)\((.*)\)", re.DOTALL)
_LISTS = ("range", "log", "linspace")
_DRAWS = ("uniform", "loguniform", "int", "choice")
_FORMS = {
    "range": "range(begin, end) or range(begin, end, step), the end left out",
    "log": "log(first, last, points), both above 0",
    "linspace": "linspace(first, last, points)",
    "uniform": "uniform(low, high)",
    "loguniform": "loguniform(low, high), both above 0",
    "int": "int(low, high), both ends included",
    "choice": "choice(a, b, …)",
}


@dataclass(frozen=True)
class Draw:
    """What one value of a search is drawn from."""

    kind: Literal["uniform", "loguniform", "int", "choice"]
    low: float = 0.0
    high: float = 0.0
    choices: tuple[Any, ...] = ()

    def at(self, share: float) -> Any:
        """The value at a share of the way, 0 ≤ share < 1."""
        if self.kind == "choice":
            return self.choices[int(share * len(self.choices))]
        if self.kind == "int":
            return int(self.low) + int(share * (self.high - self.low + 1))
        if self.kind == "loguniform":
            return rounded(self.low * (self.high / self.low) ** share)
        return rounded(self.low + share * (self.high - self.low))


def values(given: Any) -> list[Any]:
    """The values of a grid axis; a ValueError says what is wrong."""
    if isinstance(given, list):
        choices = list(given)
    else:
        name, words = _call(given, _LISTS)
        choices = _RANGES[name](name, words)
    if not choices:
        raise ValueError("expected at least one value")
    if len({_text(value) for value in choices}) != len(choices):
        raise ValueError("a value appears twice")
    return choices


def is_list(text: str) -> bool:
    """Whether a word of the command line is `range(…)`, `log(…)` or `linspace(…)`."""
    match = _CALL.fullmatch(text.strip())
    return match is not None and match[1] in _LISTS


def draw(given: Any) -> Draw:
    """What a search draws from; a list is a choice."""
    if isinstance(given, list):
        return _choice(given)
    name, words = _call(given, (*_DRAWS, *_LISTS))
    if name in _LISTS:
        return _choice(values(given))
    if name == "choice":
        return _choice([yaml.scalar(word) for word in words])
    low, high = _numbers(name, words, 2)
    if name == "int" and (low != int(low) or high != int(high)):
        raise ValueError(f"expected whole numbers: {_FORMS[name]}")
    if low >= high or (name == "loguniform" and low <= 0):
        raise ValueError(f"expected {_FORMS[name]}, low below high")
    return Draw("int" if name == "int" else "loguniform" if name == "loguniform" else "uniform", low, high)


def _choice(found: Sequence[Any]) -> Draw:
    if len({_text(value) for value in found}) != len(found) or not found:
        raise ValueError("expected different values to choose from")
    return Draw("choice", choices=tuple(found))


def _call(given: Any, names: Sequence[str]) -> tuple[str, list[str]]:
    """Name and words of `name(word, …)`."""
    forms = ", ".join(f"{name}(…)" for name in names)
    match = _CALL.fullmatch(given.strip()) if isinstance(given, str) else None
    if match is None:
        torn = isinstance(given, str) and given.count("(") != given.count(")")
        hint = "; inside { } write it in quotes" if torn else ""
        raise ValueError(f"expected a list such as [1, 2], or one of {forms}{hint}")
    if match[1] not in names:
        near = difflib.get_close_matches(match[1], names, n=1)
        raise ValueError(f"there is no {match[1]}(…) here{f'; did you mean {near[0]}?' if near else f', only {forms}'}")
    return match[1], [word.strip() for word in match[2].split(",")] if match[2].strip() else []


def _numbers(name: str, words: Sequence[str], *counts: int) -> list[float]:
    found = [yaml.scalar(word) for word in words]
    right = [n for n in found if isinstance(n, int | float) and not isinstance(n, bool) and math.isfinite(n)]
    if len(words) not in counts or len(right) != len(words):
        raise ValueError(f"expected {_FORMS[name]}")
    return right


def _range(name: str, words: Sequence[str]) -> list[Any]:
    """As in Python, and in exact decimal steps: range(0.1, 0.4, 0.1) is 0.1, 0.2, 0.3."""
    bounds = _numbers(name, words, 2, 3)
    begin, end, step = (Decimal(str(number)) for number in (*bounds, 1)[:3])
    count = int(((end - begin) / step).to_integral_value(ROUND_CEILING)) if step else 0
    if count < 1 or count > MAX_VALUES:
        raise ValueError(f"expected {_FORMS[name]}, with 1 to {MAX_VALUES:,} values")
    whole = all(isinstance(number, int) for number in bounds)
    return [int(begin + i * step) if whole else float(begin + i * step) for i in range(count)]


def _spaced(name: str, words: Sequence[str]) -> list[Any]:
    first, last, points = _numbers(name, words, 3)
    if points != int(points) or not 2 <= points <= MAX_VALUES or (name == "log" and min(first, last) <= 0):
        raise ValueError(f"expected {_FORMS[name]}, at least 2 points")
    shares = [i / (int(points) - 1) for i in range(int(points))]
    if name == "log":
        between = [first * (last / first) ** share for share in shares]
    else:
        between = [first + (last - first) * share for share in shares]
    return [float(first), *map(_short, between[1:-1]), float(last)]


def rounded(number: float) -> float:
    """A drawn number with six digits: more would only make the names of runs long."""
    return float(f"{number:.6g}")


def _short(number: float) -> float:
    """Without the noise of the last digits, which would make ugly names: 1e-4 and not 9.999999999999999e-05."""
    return float(f"{number:.12g}")


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


_RANGES = {"range": _range, "log": _spaced, "linspace": _spaced}
