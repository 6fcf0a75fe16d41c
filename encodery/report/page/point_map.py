"""A map of many points as data: drawn on a canvas by the page (assets/map.js), by matplotlib on paper.

plotly's points are elements of the page; thousands of them stand still. Here a point is some numbers: places in 10,000
steps, columns as codes, so that 20,000 points with the beginnings of their texts take about 2 MB.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from encodery.core.text import short
from encodery.report.page.chart import Dots, Value, spread

POINTS = 20_000  # of a map: more do not fit a screen
LETTERS = 1_200_000  # of all texts of a map
TEXT = 160  # of one text
NAMES = 40  # values of a column that have a colour of their own
NUMBERS = 1000  # the same of a column of whole numbers, such as clusters
STEPS = 9999
OTHER = "other"


def said(dots: Dots) -> str:
    """The note of a map, and what was left out of it."""
    whole = dots.of or len(dots.ids)
    left = f" {len(dots.ids):,} of {whole:,} points are drawn." if whole > len(dots.ids) else ""
    cut = letters(len(dots.ids))
    shortened = f" Texts are truncated to {cut} characters." if dots.texts and cut < TEXT else ""
    return f"{dots.note}{left}{shortened}".strip()


def letters(points: int) -> int:
    """How long each text of so many points may be."""
    return max(20, min(TEXT, LETTERS // max(points, 1)))


def thinned(count: int, most: int = POINTS) -> list[int]:
    """Places of at most so many rows, evenly over the file."""
    return list(spread(range(count), most))


def plain(dots: Dots) -> dict[str, Any]:
    """What the page's script reads."""
    cut = letters(len(dots.ids))
    x, x_range = _steps(dots.x, dots.fixed.get("x"))
    y, y_range = _steps(dots.y, dots.fixed.get("y"))
    return {
        "ids": list(dots.ids), "x": x, "y": y, "xRange": x_range, "yRange": y_range, "xName": dots.x_name,
        "yName": dots.y_name, "texts": [short(text, cut) for text in dots.texts],
        "columns": [_column(name, values, dots.fixed.get(name)) for name, values in dots.columns.items()],
        "names": [
            [_step(at, x_range), _step(up, y_range), text] for at, up, text in dots.names
        ],
    }  # fmt: skip


def numeric(values: Sequence[Value]) -> bool:
    """Whether a column is a quantity: numbers, and more of them than a legend holds."""
    known = [value for value in values if value is not None]
    numbers = all(isinstance(value, float | int) and not isinstance(value, bool) for value in known)
    return bool(known) and numbers and (len(set(known)) > NAMES or any(isinstance(value, float) for value in known))


def names_of(values: Sequence[Value]) -> list[str]:
    """The values of a column of names: the commonest ones, then what is left; numbers in their order."""
    counts = Counter("none" if value is None else str(value) for value in values)
    whole = all(name.lstrip("-").isdigit() for name in counts)
    most = NUMBERS if whole else NAMES
    names = [name for name, _ in counts.most_common(most)]
    names = sorted(names, key=int) if whole else sorted(names, key=lambda name: (-counts[name], name))
    return [*names, OTHER] if len(counts) > most else names


def codes_of(values: Sequence[Value], names: Sequence[str]) -> list[int]:
    """The place of each value among the names."""
    at = {name: place for place, name in enumerate(names)}
    return [at.get("none" if value is None else str(value), len(names) - 1) for value in values]


def _column(name: str, values: Sequence[Value], fixed: tuple[float, float] | None) -> dict[str, Any]:
    if numeric(values):
        numbers = [None if value is None else float(value) for value in values]
        known = [value for value in numbers if value is not None]
        low, high = fixed or (min(known), max(known))
        width = (high - low) or 1.0
        shares = [None if v is None else round(100 * min(1.0, max(0.0, (v - low) / width))) for v in numbers]
        return {"name": name, "low": float(f"{low:.4g}"), "high": float(f"{high:.4g}"), "shares": shares}
    names = names_of(values)
    return {"name": name, "names": [short(one, 40) for one in names], "codes": codes_of(values, names)}


def _steps(values: Sequence[float], fixed: tuple[float, float] | None) -> tuple[list[int], list[float]]:
    low, high = fixed or (min(values, default=0.0), max(values, default=1.0))
    whole = [low, low + ((high - low) or 1.0)]
    return [_step(value, whole) for value in values], [float(f"{v:.5g}") for v in whole]


def _step(value: float, whole: Sequence[float]) -> int:
    return round(STEPS * (value - whole[0]) / (whole[1] - whole[0]))
