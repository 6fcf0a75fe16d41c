"""A run's settings: read from YAML, recipes and the command line, checked, stored, compared and named by a hash.

Defaults < extends < file < command line; later wins. See layers.py for merging and validate.py for errors.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from encodery.config import layers
from encodery.config.components import find, names
from encodery.config.layers import Layer, Location, differences, flat, leaves
from encodery.config.own_code import FOLDER, LISTING, Code
from encodery.config.schema import DEFAULT_MODEL, DEFAULT_MODEL_SETTINGS, Config, Entry
from encodery.config.validate import check, check_beside_task, options
from encodery.core import files, yaml
from encodery.core.files import as_name
from encodery.core.options import Options
from encodery.core.yaml import Key
from encodery.errors import UserError

if TYPE_CHECKING:
    from encodery.tasks.base import Task

T = TypeVar("T", bound=Options)

__all__ = [
    "Resolved", "differences", "dump", "find", "flat", "keep_code", "load", "load_beside_task", "loads",
    "names",
]  # fmt: skip


# Keys that tell the file of another verb, the more particular verbs first: curves and GradTS have seeds and limits too.
_OTHER_VERBS = {
    "curve": ("methods", "fractions"),
    "gradts": ("primary", "strategy"),
    "sweep run": (
        "base", "fixed", "grid", "zip", "variants", "exclude", "seeds", "search", "stages", "early_stop", "limits",
        "resources",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Resolved:
    """A checked config: the settings with all defaults, what they name, and where each value came from."""

    config: Config
    tasks: "list[tuple[Task, Entry]]"
    method: Options
    mix: Options
    weighting: Options
    origins: dict[str, str] = field(compare=False)  # dotted key -> `rte.yaml:3`, `command line`, `default`, …
    notes: list[str] = field(compare=False)
    folder: Path = field(compare=False)
    name: str = field(compare=False)
    code: dict[str, tuple[Path, str]] = field(compare=False)  # own Python files as typed -> (path, sha256)
    given: dict[str, Any] = field(compare=False, default_factory=dict)  # all that is not a default
    recognised: list[str] = field(compare=False, default_factory=list)  # data files whose columns were recognised


def load(
    source: str | Path | Mapping[str, Any] | None = None,
    overrides: Sequence[str] | Mapping[str, Any] = (),
    *,
    allow_code: bool = False,
    weights: bool = True,
) -> Resolved:
    """A config file, `recipe:…`, a mapping, a run directory, a data file or nothing, with the overrides on top.

    Overrides are words of a command line, or sections as data. Own Python files named by a config run; those of a run
    directory run only with `allow_code` (own_code.py). Without `weights` a tokenizer is model enough.
    """
    if source is None or isinstance(source, Mapping):
        layer = layers.stack(layers.from_mapping(source or {}, Location("given", Path.cwd())), Path.cwd())
        return _resolve(layer, overrides, Path.cwd(), "", Code(allow_code), weights)
    if str(source).startswith("recipe:"):
        name = as_name(str(source).removeprefix("recipe:"))
        layer = layers.from_source(str(source), Path.cwd())
        return _resolve(layer, overrides, Path.cwd(), name, Code(allow_code), weights)
    if is_data(source):
        layer = layers.from_mapping({"tasks": str(source)}, Location("command line", Path.cwd()))
        _lay(layer, overrides)
        require_kept(str(source), layer.tree["tasks"])
        return _resolve(layer, (), Path.cwd(), as_name(Path(source).stem), Code(allow_code), weights)
    path, given = Path(source), Path(source).is_dir()
    path = path / "config.yaml" if given else path
    if given and not path.exists():
        raise UserError(
            f"{source}: is a folder without config.yaml, so it is not a run; give a data file, a config or a run."
        )
    # A folder is a run directory even without run.json, or taking that file away would let its code run.
    run = path.parent if given or (path.name == "config.yaml" and files.is_run(path.parent)) else None
    code = Code(allow_code, run)
    name = as_name(run.resolve().name if run else path.stem)
    layer = layers.from_source(str(path), Path())
    _refuse_other_verbs(layer, str(source))
    if run:
        _as_begun(layer)
    return _resolve(layer, overrides, path.resolve().parent, name, code, weights)


def _lay(layer: Layer, overrides: Sequence[str] | Mapping[str, Any]) -> None:
    if isinstance(overrides, Mapping):
        layer.lay(layers.from_mapping(overrides, Location("given", Path.cwd())))
    else:
        layers.with_overrides(layer, overrides)


def require_kept(file: str, entries: Any) -> None:
    """A data file is not dropped without a word because the overrides name another file or task."""
    tasks = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    words = [layers.task_word(entry) for entry in tasks]
    here = Path(file).resolve()
    others = [word for word in words if word is not None and Path(word).resolve() != here]
    if not others or len(others) < len(words):
        return
    raise UserError(
        f"{file} and tasks {', '.join(others)}: both say what to train on; give one of them. Several tasks are "
        f"written in a config, such as `tasks: [{', '.join([file, *others])}]`."
    )


def _refuse_other_verbs(layer: Layer, shown: str) -> None:
    """A sweep file is a natural thing to give to `train`; a list of unknown keys would not say what it is."""
    for verb, particular in _OTHER_VERBS.items():
        keys = [key for key in layer.tree if key in particular]
        if keys:
            what = f"a file for `encodery {verb}` (it has {', '.join(keys)})"
            raise UserError(f"{shown}: is {what}: `encodery {verb} {shown}` trains its runs.")


def _as_begun(layer: Layer) -> None:
    """A run's own config has every key of its version: a key that is absent means what was done before it existed."""
    entries = layer.tree.get("tasks")
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and entry.get("kind") == "table":
            entry.setdefault("equal_texts", "apart")


def load_around(
    kind: type[T], file: str | Path, overrides: Sequence[str], allow_code: bool = False
) -> tuple[T, Resolved, Layer]:
    """A config with keys of another kind around it, such as a study's; those, the config, and all as it was read."""
    layer = layers.with_overrides(layers.from_source(str(file), Path()), overrides)
    inner, ours = ({k: v for k, v in layer.tree.items() if (k in Config.model_fields) == own} for own in (True, False))
    around = options(kind, Layer(ours, layer.places))
    folder = Path() if str(file).startswith("recipe:") else Path(file).resolve().parent
    return (
        around,
        _resolve(Layer(inner, layer.places), (), folder, as_name(Path(str(file)).stem), Code(allow_code)),
        layer,
    )


def loads(text: str, overrides: Sequence[str] = ()) -> Resolved:
    """A config from YAML text, such as `dump` writes."""
    return _resolve(layers.from_text(text, "text", Path.cwd()), overrides, Path.cwd(), "", Code())


def load_beside_task(
    kind: type[T], key: str, source: str | Path | None, overrides: Sequence[str] = (), allow_code: bool = False
) -> "tuple[T, Task]":
    """A config that is one options class and one task under `key`, for verbs that make no run."""
    layer = layers.with_overrides(layers.from_source(str(source), Path()) if source else Layer(), overrides)
    return check_beside_task(layer, kind, key, Code(allow_code))


def _resolve(
    layer: Layer,
    overrides: Sequence[str] | Mapping[str, Any],
    folder: Path,
    name: str,
    code: Code,
    weights: bool = True,
) -> Resolved:
    _lay(layer, overrides)
    checked = check(layer, code, weights)
    config = checked.config
    origins = {".".join(map(str, key)): _origin(layer, key, config) for key, _ in leaves(config.to_dict(), ())}
    name = name or _own_name(checked.config)
    method, mix, weighting = (checked.kinds[section] for section in ("method", "mix", "weighting"))
    return Resolved(
        checked.config, checked.tasks, method, mix, weighting, origins, layer.all_notes(), folder, name, code.used,
        layer.tree, layer.recognised,
    )  # fmt: skip


def is_data(source: str | Path, more: Collection[str] = ()) -> bool:
    """Whether a file holds rows and not settings. Settings may be written in JSON, too: they name a model or tasks.

    `more`: further keys that only settings have, such as those of a sweep.
    """
    if not layers.is_data_file(str(source)) or Path(source).is_dir():
        return False
    if Path(source).suffix.lower() != ".json":
        return True
    try:
        tree = json.loads(Path(source).read_bytes())
    except (OSError, ValueError):
        return True
    return not (isinstance(tree, dict) and {"model", "tasks", "extends", *more} & tree.keys())


def short(resolved: Resolved, folder: Path | None = None) -> str:
    """What was given and recognised, without defaults, as a config that a person would write.

    `folder`: where it will be kept; paths that start elsewhere are written out.
    """
    tree = json.loads(json.dumps(resolved.given))
    for section, key in (("model", "name"), ("method", "kind"), ("mix", "kind"), ("weighting", "kind")):
        if isinstance(tree.get(section), dict) and list(tree[section]) == [key]:
            tree[section] = tree[section][key]
    seed = tree.get("seed")
    if isinstance(seed, dict) and set(seed) == {"init", "data"} and seed["init"] == seed["data"]:
        tree["seed"] = seed["init"]
    if folder is not None and folder.resolve() != resolved.folder.resolve():
        for entry, (task, _) in zip(tree["tasks"], resolved.tasks, strict=True):
            root = Path(getattr(task, "root", None) or resolved.folder)
            for key in {"train", "dev", "test"} & entry.keys():
                entry[key] = str((root / Path(entry[key]).expanduser()).resolve())
        if isinstance(tree.get("model"), str) and Path(tree["model"]).is_dir():
            tree["model"] = str(Path(tree["model"]).resolve())
    order = [*(key for key in ("model", "tasks") if key in tree), *(k for k in tree if k not in ("model", "tasks"))]
    if len(tree["tasks"]) == 1:
        tree["tasks"] = tree["tasks"][0]
    return yaml.write({key: tree[key] for key in order})


def _origin(layer: Layer, key: Key, config: Config) -> str:
    place = layer.places.get(key)
    if place:
        return place.text
    own = config.model.name == DEFAULT_MODEL and len(key) == 2 and key[1] in DEFAULT_MODEL_SETTINGS.get(str(key[0]), {})
    return f"default of {DEFAULT_MODEL}" if own else "default"


def _own_name(config: Config) -> str:
    """A name for a run without a file: `glue-rte-roberta-base`."""
    first = config.tasks[0]
    task = first.get("name") or Path(first["kind"].partition(":")[0]).stem
    model = config.model.name or (config.model.new.kind if config.model.new else "")
    more = [f"and-{len(config.tasks) - 1}-more"] if len(config.tasks) > 1 else []
    return as_name("-".join([task, *more, Path(model).name]))


def dump(resolved: Resolved) -> str:
    """The whole config as YAML, defaults included: it loads back to the same."""
    return yaml.write(resolved.config.to_dict())


def with_code_paths(resolved: Resolved) -> dict[str, Any]:
    """The plain config with own Python files by their full paths, for a file that is read from elsewhere."""
    tree: dict[str, Any] = json.loads(json.dumps(resolved.config.to_dict()))
    sections = [tree["method"], tree["mix"], tree["weighting"], *tree["tasks"]]
    for section in [*sections, *(entry["objective"] for entry in tree["tasks"])]:
        file, _, name = str(section.get("kind") or "").rpartition(":")
        if file in resolved.code:
            section["kind"] = f"{resolved.code[file][0]}:{name}"
    return tree


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
