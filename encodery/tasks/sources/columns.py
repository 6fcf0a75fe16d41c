"""Any column of a task's rows, for breakdowns: what an example keeps, or what only the file has."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from encodery.errors import UserError
from encodery.tasks.base import Example, Task

MOST = 40  # different values that a breakdown has
PARTS = 4  # of numbers, where there are many different ones
NONE = "(none)"


def column(task: Task, split: str, name: str) -> dict[str, str]:
    """The value of a column for every row, by id; rows without one have `(none)`.

    Many different numbers become quarters of the rows. What is no breakdown, such as a text, is refused.
    """
    examples = task.examples(split)
    return grouped({example.id: value for example, value in zip(examples, raw(task, split, name), strict=True)}, name)


def raw(task: Task, split: str, name: str) -> list[Any]:
    """The values as they are, in the order of the examples."""
    examples = task.examples(split)
    kept = [_kept(example, name) for example in examples]
    if any(value is not None for value in kept):
        return kept
    rows = task.raw_rows(split)
    if not any(name in values for values in rows.values()):
        names = ", ".join(names_of(examples, rows)) or "none"
        raise UserError(f"{task.name}:{split} has no column {name}; it has {names}")
    return [rows.get(example.id, {}).get(name) for example in examples]


def names_of(examples: Sequence[Example], rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The columns that rows can be divided by."""
    found = ["label"] * any(example.label is not None for example in examples)
    found += ["group"] * any(example.group is not None for example in examples)
    found += list(dict.fromkeys(key for example in examples for key in example.extra))
    return list(dict.fromkeys([*found, *(key for values in rows.values() for key in values)]))


def _kept(example: Example, name: str) -> Any:
    if name in ("label", "group"):
        return getattr(example, name)
    return example.extra.get(name)


def grouped(values: Mapping[str, Any], name: str) -> dict[str, str]:
    """Values as text, few enough to be shown one by one."""
    texts = {id: _text(value) for id, value in values.items()}
    if len(Counter(texts.values())) <= MOST:
        return texts
    numbers = {id: _number(text) for id, text in texts.items() if text != NONE}
    if any(number is None for number in numbers.values()):
        count = len(Counter(texts.values()))
        raise UserError(f"column {name}: has {count:,} different values; at most {MOST} can be compared")
    edges = _edges([number for number in numbers.values() if number is not None])
    return {id: _part(numbers.get(id), edges) for id in texts}


def ordered(rows: Mapping[str, float]) -> list[str]:
    """Values of a breakdown as people read them: numbers and parts of numbers from low to high, names by their rows.

    What has no value comes last.
    """
    begins = {value: _begin(value) for value in rows if value != NONE}
    if all(begin is not None for begin in begins.values()):
        found = sorted(begins, key=lambda value: (begins[value], value))
    else:
        found = sorted(begins, key=lambda value: (-rows[value], value))
    return [*found, *(value for value in rows if value == NONE)]


def _begin(value: str) -> float | None:
    """Where a number or a part of numbers begins; None of a name."""
    if value.startswith("below "):
        return -math.inf if _number(value.removeprefix("below ")) is not None else None
    number = _number(value.split(" to ")[0].removesuffix(" and more"))
    return number if number is not None and math.isfinite(number) else None


def _text(value: Any) -> str:
    if value is None or value == "":
        return NONE
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _edges(numbers: Sequence[float]) -> list[float]:
    ordered = sorted(numbers)
    return sorted({ordered[min(len(ordered) - 1, len(ordered) * part // PARTS)] for part in range(1, PARTS)})


def _part(number: float | None, edges: Sequence[float]) -> str:
    if number is None:
        return NONE
    place = sum(number >= edge for edge in edges)
    if place == 0:
        return f"below {edges[0]:g}"
    return f"{edges[-1]:g} and more" if place == len(edges) else f"{edges[place - 1]:g} to {edges[place]:g}"
