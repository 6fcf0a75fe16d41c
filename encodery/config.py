"""A run's settings: read from YAML, recipes and the command line, checked, stored, compared and named by a hash.

Defaults < extends < file < command line; later wins. See layers.py for merging and check.py for errors.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from encodery import files, layers, yaml_reader
from encodery.check import check, check_beside_task, options
from encodery.find import find, names
from encodery.identity import differences, flat, identity_of, leaves
from encodery.layers import Layer, Place
from encodery.options import Options
from encodery.own_code import FOLDER, LISTING, Code
from encodery.paths import as_name
from encodery.schema import Config, Entry
from encodery.yaml_reader import Key

if TYPE_CHECKING:
    from encodery.tasks.base import Task

T = TypeVar("T", bound=Options)

__all__ = [
    "Resolved", "differences", "dump", "find", "flat", "identity", "keep_code", "load", "load_beside_task", "loads",
    "names",
]  # fmt: skip


@dataclass(frozen=True)
class Resolved:
    """A checked config: the settings with all defaults, what they name, and where each value came from."""

    config: Config
    tasks: "list[tuple[Task, Entry]]"
    method: Options
    mix: Options
    weighting: Options
    origins: dict[str, str] = field(compare=False)  # dotted key -> `rte.yaml:3`, `command line`, `default`
    notes: list[str] = field(compare=False)
    folder: Path = field(compare=False)
    name: str = field(compare=False)
    code: dict[str, tuple[Path, str]] = field(compare=False)  # own Python files as typed -> (path, sha256)


def load(
    source: str | Path | Mapping[str, Any] | None = None,
    overrides: Sequence[str] | Mapping[str, Any] = (),
    *,
    allow_code: bool = False,
    weights: bool = True,
) -> Resolved:
    """A config file, `recipe:…`, a mapping, a run directory or nothing, with the overrides on top.

    Overrides are words of a command line, or sections as data. Own Python files named by a config run; those of a run
    directory run only with `allow_code` (own_code.py). Without `weights` a tokenizer is model enough.
    """
    if source is None or isinstance(source, Mapping):
        layer = layers.stack(layers.from_mapping(source or {}, Place("given", Path.cwd())), Path.cwd())
        return _resolve(layer, overrides, Path.cwd(), "", Code(allow_code), weights)
    if str(source).startswith("recipe:"):
        name = as_name(str(source).removeprefix("recipe:"))
        layer = layers.from_source(str(source), Path.cwd())
        return _resolve(layer, overrides, Path.cwd(), name, Code(allow_code), weights)
    path, given = Path(source), Path(source).is_dir()
    path = path / "config.yaml" if given else path
    # A folder is a run directory even without run.json, or taking that file away would let its code run.
    run = path.parent if given or (path.name == "config.yaml" and (path.parent / "run.json").exists()) else None
    code = Code(allow_code, run)
    name = as_name(run.resolve().name if run else path.stem)
    return _resolve(layers.from_source(str(path), Path()), overrides, path.resolve().parent, name, code, weights)


def of_layer(layer: Layer, folder: Path, name: str, allow_code: bool = False) -> Resolved:
    """A config whose layers somebody else has read; relative paths start from the folder."""
    return _resolve(layer, (), folder, as_name(name), Code(allow_code))


def load_around(
    kind: type[T], file: str | Path, overrides: Sequence[str], allow_code: bool = False
) -> tuple[T, Resolved, Layer]:
    """A config with keys of another kind around it, such as a study's; those, the config, and all as it was read."""
    layer = layers.from_source(str(file), Path())
    for above in layers.from_overrides(overrides, Place("command line", Path.cwd())):
        layer.lay(above)
    inner, ours = ({k: v for k, v in layer.tree.items() if (k in Config.model_fields) == own} for own in (True, False))
    around = options(kind, Layer(ours, layer.places))
    folder = Path() if str(file).startswith("recipe:") else Path(file).resolve().parent
    return around, of_layer(Layer(inner, layer.places), folder, as_name(Path(str(file)).stem), allow_code), layer


def loads(text: str, overrides: Sequence[str] = ()) -> Resolved:
    """A config from YAML text, such as `dump` writes."""
    return _resolve(layers.from_text(text, "text", Path.cwd()), overrides, Path.cwd(), "", Code())


def load_beside_task(
    kind: type[T], key: str, source: str | Path | None, overrides: Sequence[str] = (), allow_code: bool = False
) -> "tuple[T, Task]":
    """A config that is one options class and one task under `key`, for verbs that make no run."""
    layer = layers.from_source(str(source), Path()) if source else Layer()
    for above in layers.from_overrides(overrides, Place("command line", Path.cwd())):
        layer.lay(above)
    return check_beside_task(layer, kind, key, Code(allow_code))


def _resolve(
    layer: Layer,
    overrides: Sequence[str] | Mapping[str, Any],
    folder: Path,
    name: str,
    code: Code,
    weights: bool = True,
) -> Resolved:
    if isinstance(overrides, Mapping):
        layer.lay(layers.from_mapping(overrides, Place("given", Path.cwd())))
    else:
        for above in layers.from_overrides(overrides, Place("command line", Path.cwd())):
            layer.lay(above)
    checked = check(layer, code, weights)
    origins = {".".join(map(str, key)): _origin(layer, key) for key, _ in leaves(checked.config.plain(), ())}
    name = name or _own_name(checked.config)
    method, mix, weighting = (checked.kinds[section] for section in ("method", "mix", "weighting"))
    return Resolved(
        checked.config, checked.tasks, method, mix, weighting, origins, layer.notes, folder, name, code.used
    )


def _origin(layer: Layer, key: Key) -> str:
    place = layer.places.get(key)
    return place.text if place else "default"


def _own_name(config: Config) -> str:
    """A name for a run without a file: `glue-rte-roberta-base`."""
    first = config.tasks[0]
    task = first.get("name") or Path(first["kind"].partition(":")[0]).stem
    model = config.model.name or (config.model.new.kind if config.model.new else "")
    more = [f"and-{len(config.tasks) - 1}-more"] if len(config.tasks) > 1 else []
    return as_name("-".join([task, *more, Path(model).name]))


def dump(resolved: Resolved) -> str:
    """The whole config as YAML, defaults included: it loads back to the same."""
    return yaml_reader.write(resolved.config.plain())


def with_code_paths(resolved: Resolved) -> dict[str, Any]:
    """The plain config with own Python files by their full paths, for a file that is read from elsewhere."""
    tree: dict[str, Any] = json.loads(json.dumps(resolved.config.plain()))
    sections = [tree["method"], tree["mix"], tree["weighting"], *tree["tasks"]]
    for section in [*sections, *(entry["objective"] for entry in tree["tasks"])]:
        file, _, name = str(section.get("kind") or "").rpartition(":")
        if file in resolved.code:
            section["kind"] = f"{resolved.code[file][0]}:{name}"
    return tree


def identity(resolved: Resolved, digests: Mapping[str, str]) -> str:
    """The sha256 of everything that changes the result. Numbers are compared by value, paths by content.

    `digests` gives, by dotted key (`model.name`, `tasks.0.data`), the digest that stands for what the path holds.
    """
    return identity_of(resolved.config.plain(), [task for task, _ in resolved.tasks], resolved.code, digests)


def keep_code(resolved: Resolved, run: Path) -> None:
    """Copy own Python files into the run directory, with their digests."""
    if not resolved.code:
        return
    folder = run / FOLDER
    folder.mkdir(exist_ok=True)
    kept = {}
    for number, (typed, (path, digest)) in enumerate(resolved.code.items(), 1):
        copy = f"{number}-{as_name(path.name)}"
        files.write_atomic(folder / copy, path.read_bytes())
        kept[typed] = [copy, digest]
    files.write_atomic(folder / LISTING, json.dumps(kept, indent=1))
