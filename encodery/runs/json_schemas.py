"""What kind of values a JSON file of a run holds, so that a damaged one is named and not stumbled over. No torch.

A shape is a type, a list of one shape, a mapping of known keys to shapes, or a mapping of any key (`ANY`) to a shape.
Keys may be missing, and null stands for nothing or for no number. Keys that no shape names are of other versions and
may be anything.
"""

from collections.abc import Iterator
from typing import Any

from encodery.errors import UserError

ANY = "*"
NUMBER = (int, float)
Shape = Any

INFO: Shape = {
    "identity": str, "name": str, "task": str, "tasks": [str], "steps": int, "ended": {"state": str, "error": str},
    "inputs": {ANY: str}, "revisions": {ANY: str}, "hardware": dict, "environment": dict, "went_on_from": [str],
    "attention": {ANY: str},
    "data": {ANY: dict}, "data_of": {ANY: {ANY: dict}}, "notices": [{"text": str, "time": str}],
}  # fmt: skip
_SCORES: Shape = {ANY: {ANY: NUMBER}}
SCORES: Shape = {
    "scores": _SCORES, "majority": _SCORES, "main": {ANY: str}, "chosen": dict, "alarms": [str],
    "evaluations": {ANY: {"scores": {ANY: NUMBER}, "main": str, "alarms": [str]}},
}  # fmt: skip
CONFIG: Shape = {
    "tasks": [{"name": str, "kind": str}], "model": dict, "optim": dict, "train": dict, "method": dict,
}  # fmt: skip
RECORD: Shape = dict.fromkeys(("time", "loss", "norm", "tokens", "cells", "seconds", "lr"), NUMBER)

_NAMES = {dict: "a mapping", list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}


def mistake(value: Any, shape: Shape, at: str = "", *, null: bool = True) -> str | None:
    """`data.dev is a list, not a mapping`: the first place where a value has another shape; None if there is none."""
    if value is None:
        return None if null else f"{at} is null, not {_wanted(shape)}"
    kind = _kind(shape)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind in (int, NUMBER)):
        return f"{at or 'it'} is {_NAMES.get(type(value), 'something else')}, not {_wanted(shape)}"
    found = (mistake(item, inner, where, null=may) for where, item, inner, may in _parts(value, shape, at))
    return next((sentence for sentence in found if sentence), None)


def _parts(value: Any, shape: Shape, at: str) -> Iterator[tuple[str, Any, Shape, bool]]:
    """What is inside: place, value, shape, and whether null may stand there (a key without a value, or no number)."""
    if isinstance(shape, list):
        yield from ((f"{at}[{number}]", item, shape[0], False) for number, item in enumerate(value))
    elif isinstance(shape, dict):
        for key, item in value.items():
            inner = shape.get(ANY, shape.get(key))
            if inner is not None:
                yield f"{at}.{key}" if at else str(key), item, inner, ANY not in shape or inner is NUMBER


def _kind(shape: Shape) -> Any:
    return dict if isinstance(shape, dict) else list if isinstance(shape, list) else shape


def _wanted(shape: Shape) -> str:
    kind = _kind(shape)
    return _NAMES[kind[0] if isinstance(kind, tuple) else kind]


def require(value: Any, shape: Shape, file: object, remedy: str) -> None:
    """Refuse the content of a file, named with the place and what is wrong there."""
    if found := mistake(value, shape):
        raise UserError(f"{file} is damaged: {found}; {remedy}")
