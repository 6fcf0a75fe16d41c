"""What the command line, or a call from Python, adds to a sweep: axes, and settings that win over the file's.

On the command line `--a.b 1,2` is an axis and `--a.b 1` a setting.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

from encodery.config.layers import Layer, Location, from_mapping, pairs
from encodery.config.load import require_kept
from encodery.config.schema import Config
from encodery.config.validate import options as checked
from encodery.core import yaml
from encodery.core.options import Options
from encodery.core.yaml import Key
from encodery.errors import UserError
from encodery.sweep import search_space
from encodery.sweep.points import axis_name, long_key
from encodery.sweep.sweep_file import Block, Limits, Resources, Sweep, SweepFile

B = TypeVar("B", bound=Block)
T = TypeVar("T", bound=Options)

# Keys of a sweep file that an option of the command line sets.
OPTIONS = {
    "resources.devices": "--devices",
    "resources.runs_per_device": "--runs-per-device",
    "resources.threads": "--threads",
    "limits.timeout": "--timeout",
    "limits.retries": "--retries",
    "seeds": "--seeds",
}

SAY_TASKS = ("tasks", "tasks.name", "tasks.file", "tasks.train", "tasks.kind")  # what runs are trained on


def axis(text: str) -> list[Any] | str | None:
    """The values of `1,2` or `log(1e-5, 1e-3, 3)`; None where it is one value."""
    if search_space.is_list(text):
        return text
    if text.strip()[:1] in ("[", "{", '"', "'") or "," not in text:
        return None
    return [yaml.value(word) for word in text.split(",")]


def split(words: Sequence[str]) -> tuple[dict[str, list[Any] | str], dict[str, Any]]:
    """Axes and single settings among the overrides."""
    axes: dict[str, list[Any] | str] = {}
    fixed: dict[str, Any] = {}
    given = pairs(list(words))
    if wrong := [f"command line: {key}: {_of_the_file(key)}." for key, _ in given if _is_of_the_file(key)]:
        raise UserError("\n".join(dict.fromkeys(wrong)))
    for key, text in given:
        try:
            values = axis(text)
            value = yaml.value(text) if values is None else None
        except UserError as error:
            hint = "" if "],[" not in text.replace(" ", "") else " An axis of lists belongs under grid in a sweep file."
            raise UserError(f"command line: {key}: {error}{hint}") from None
        key = long_key(key, value if values is None else values[0])
        axes.pop(key, None), fixed.pop(key, None)  # the later word wins
        if values is None:
            fixed[key] = value
        else:
            _check(key, values, "command line")
            axes[key] = values
    return axes, fixed


def _is_of_the_file(key: str) -> bool:
    """Whether it belongs to the sweep, and not to its runs."""
    first = key.partition(".")[0]
    return first in Sweep.model_fields and first not in Config.model_fields


def _of_the_file(key: str) -> str:
    """What to write instead of a key of a sweep file."""
    first, _, rest = key.partition(".")
    options = [option for name, option in OPTIONS.items() if key in (name, name.partition(".")[0])]
    if first in ("grid", "fixed") and rest:
        options = [f"--{rest}"]
    if options:
        return f"is a key of sweep files; on the command line write {' or '.join(options)}"
    return "is a key of sweep files and has no option on the command line; set it in the file"


def _check(key: str, values: list[Any] | str, whose: str) -> None:
    try:
        search_space.values(values)
    except ValueError as error:
        raise UserError(f"{whose}: {key}: {error}.") from None


def apply(file: SweepFile, words: Sequence[str], seeds: int | None = None) -> SweepFile:
    """The sweep with the command line on top."""
    axes, fixed = split(words)
    if file.sweep.stages and (axes or seeds is not None):
        raise UserError("command line: this sweep has stages; write axes and seeds into the stage that they belong to.")
    if seeds is not None and seeds < 1:
        raise UserError("--seeds: must be at least 1")
    lines = "".join(f"# command line: {word}\n" for word in words)
    return _laid(file, axes, fixed, {} if seeds is None else {"seeds": seeds}, "command line", lines)


def lay(file: SweepFile, given: Mapping[str, Any]) -> SweepFile:
    """The sweep with sections of a config and keys of a sweep file on top, as Python gives them."""
    sections = {key: value for key, value in given.items() if key in Config.model_fields}
    keys = {key: value for key, value in given.items() if key not in sections and key != "grid"}
    axes = {}
    grid = given.get("grid") or {}
    if not isinstance(grid, Mapping):
        form = "keys with lists of values, as in {'optim.lr': [1e-5, 3e-5]}"
        raise UserError(f"Python: grid: expected {form}, not {grid!r}")
    for name, values in grid.items():
        values = _as_list(values)
        key = long_key(name, values[0] if isinstance(values, list) and values else values)
        _check(key, values, "Python: grid")
        axes[key] = values
    said = json.dumps(dict(given), default=lambda one: one.tolist() if hasattr(one, "tolist") else str(one))
    line = f"# Python: {said}\n" if given else ""
    return _laid(file, axes, dict(_flat(sections)), keys, "Python", line)


def _flat(tree: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys of nested sections."""
    for name, value in tree.items():
        key = f"{above}{name}"
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{key}.")
        else:
            yield long_key(key, value), str(value) if isinstance(value, Path) else value


def _as_list(values: Any) -> Any:
    """A tuple, a range or an array is a list of values; a text is `log(…)` and the like."""
    if hasattr(values, "tolist"):  # numpy's numbers are none that YAML knows
        return values.tolist()
    return list(values) if isinstance(values, tuple | range) else values


def _laid(
    file: SweepFile, axes: Mapping[str, Any], fixed: Mapping[str, Any], keys: Mapping[str, Any], whose: str, lines: str
) -> SweepFile:
    """The sweep with other axes, settings and keys; `whose` they are is what errors call them."""
    if file.data is not None:
        _require_kept(file.data, axes, fixed, whose)
    sweep, here = file.sweep, Location(whose, Path.cwd())
    stages = {name: _changed(stage, {}, fixed, whose).to_dict() for name, stage in sweep.stages.items()}
    tree = _changed(sweep, axes, fixed, whose).to_dict() | {"stages": stages} | dict(keys)
    places: dict[Key, Location] = {**file.places, **{("grid", key): here for key in axes}}
    places |= {(key,): here for key in keys}
    blocks: list[Key] = [(), *(("stages", name) for name in sweep.stages)]
    places |= {(*at, "fixed", key): here for at in blocks for key in fixed}
    sweep = checked(Sweep, Layer(tree, places))  # together they may not fit, such as tpe and an axis
    return replace(file, sweep=sweep, places=places, text=f"{file.text.rstrip()}\n{lines}")


def _require_kept(data: str, axes: Mapping[str, Any], fixed: Mapping[str, Any], whose: str) -> None:
    """A data file is trained on in some run at least: other tasks may stand beside it on an axis, not in its place."""
    about = {key: values for key, values in axes.items() if key in SAY_TASKS}
    own = {key: value for key, value in fixed.items() if key in SAY_TASKS}
    refusal: UserError | None = None
    for values in product(*about.values()):
        layer = from_mapping({"tasks": data}, here := Location(whose, Path.cwd()))
        point = own | dict(zip(about, values, strict=True))
        for key, tree in sorted(point.items(), key=lambda pair: pair[0] != "tasks"):
            for name in reversed(key.split(".")):
                tree = {name: tree}
            layer.lay(from_mapping(tree, here))
        try:
            return require_kept(data, layer.tree["tasks"])
        except UserError as error:
            refusal = error
    if refusal:
        raise refusal


def _changed(block: B, axes: Mapping[str, Any], fixed: Mapping[str, Any], whose: str) -> B:
    """A block in which these keys have other values; they must not be tied to others."""
    given = {*axes, *fixed}
    for line in block.zip:
        for key, value in line.items():
            if long_key(key, value) in given:
                raise UserError(f"{whose}: {key} is tied to others by zip; change it in the file.")
    grid = {key: value for key, value in block.grid.items() if not given & {key, axis_name(key, value)}}
    variants = {name: _without(variant, given) for name, variant in block.variants.items()}
    kept = _without(block.fixed, given)
    return block.model_copy(update={"grid": grid | dict(axes), "fixed": kept | dict(fixed), "variants": variants})


def _without(tree: Mapping[str, Any], keys: set[str], above: str = "") -> dict[str, Any]:
    """Settings but for these keys, whether they are written dotted or nested."""
    kept: dict[str, Any] = {}
    for name, value in tree.items():
        key = f"{above}{name}"
        if isinstance(value, dict) and name not in ("grid", "zip", "extends"):
            value = _without(value, keys, f"{key}.")
        if long_key(key, value) not in keys and value != {}:
            kept[name] = value
    return kept


def changed(options: T, **given: Any) -> T:
    """Options with what the command line says instead; its values are checked like a file's."""
    new = {key: value for key, value in given.items() if value is not None}
    layer = from_mapping(options.to_dict() | new, Location("command line", Path.cwd()))
    return checked(type(options), layer)


def resources(sweep: Sweep, devices: str | None, runs_per_device: int | None, threads: str | None) -> Resources:
    count = yaml.scalar(threads) if threads is not None else None
    return changed(sweep.resources, devices=devices, runs_per_device=runs_per_device, threads=count)


def limits(sweep: Sweep, timeout: str | None, retries: int | None) -> Limits:
    """How long and how often."""
    return changed(sweep.limits, timeout=timeout, retries=retries)
