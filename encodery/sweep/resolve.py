"""From settings to complete configs and what they are hashed by. Made for thousands of runs: files are read once, each
section of a config is checked once for each of its values, and each input is digested once.
"""

import difflib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from encodery.config import layers
from encodery.config.components import names
from encodery.config.layers import Layer, Location
from encodery.config.load import find
from encodery.config.own_code import Code, is_own
from encodery.config.schema import DEFAULT_MODEL, Config
from encodery.config.validate import KINDS, check, options, take_default_model
from encodery.core.options import Options
from encodery.errors import UserError
from encodery.runs.identity import Texts, content_of, identity_of
from encodery.sweep.points import Setting

if TYPE_CHECKING:
    from encodery.tasks.base import Task

_SECTIONS = tuple(Config.model_fields)
_PATHS = ("name", "init_from", "tokenizer")  # of model: what may be a folder
_ALONE = ("optim", "train", "seed", "method")  # sections that can be checked without the others
STAGE = "stage:"

Tree = dict[str, Any]


@dataclass(frozen=True)
class Ground:
    """What many points share: files and recipes, and the settings that never change."""

    layer: Layer
    number: int


@dataclass(frozen=True)
class Point:
    """A complete config, checked. Its parts are shared with other points: copy before changing anything."""

    config: Tree
    tasks: "Sequence[Task]"
    dropped: tuple[Setting, ...]  # what its method does not have

    def stages(self) -> dict[str, str]:
        """Key of model → the stage whose runs stand there."""
        found = {key: self.config["model"][key] for key in _PATHS}
        return {key: value[len(STAGE) :] for key, value in found.items() if value and value.startswith(STAGE)}


@dataclass
class Resolver:
    """Reads, checks and digests, remembering everything."""

    code: Code = field(default_factory=Code)
    absent_ok: bool = False  # a model that is not here is hashed by its name: good enough to list runs
    absent: dict[str, str] = field(default_factory=dict)  # such models, and why
    _sources: dict[tuple[Any, ...], Layer] = field(default_factory=dict)
    _pieces: dict[tuple[Any, ...], Any] = field(default_factory=dict)
    _digests: dict[tuple[Any, ...], str] = field(default_factory=dict)
    _metrics: dict[tuple[Any, ...], tuple[str, ...]] = field(default_factory=dict)
    _methods: dict[str, type[Options]] = field(default_factory=dict)
    _texts: Texts = field(default_factory=dict)
    _grounds: int = 0

    def ground(self, sources: Iterable[str], folder: Path, constants: Sequence[Setting]) -> Ground:
        """The layers below all points of a block."""
        layer = self._stacked(tuple(sources), folder)
        for setting in constants:
            _require_key(layer.tree, setting)
            _lay(layer, setting)
        self._grounds += 1
        return Ground(layer, self._grounds)

    def _stacked(self, sources: tuple[str, ...], folder: Path) -> Layer:
        key = (sources, folder)
        if key not in self._sources:
            whole = Layer()
            for source in sources:
                whole.lay(layers.from_source(source, folder))
            self._sources[key] = whole
        return _copied(self._sources[key])

    def point(self, ground: Ground, settings: Sequence[Setting], kinds_vary: bool) -> Point:
        """The config of one point; where methods vary, a method's missing keys are left out and named."""
        layer = _copied(ground.layer)
        dropped = []
        for setting in settings:
            _require_key(layer.tree, setting)
            if kinds_vary and _unknown_to_method(layer.tree, setting.key):
                dropped.append(setting)
            else:
                _lay(layer, setting)
        take_default_model(layer.tree)  # before sections are looked at one by one: it reaches several
        _absolute(layer, self.code)
        config, tasks = self._checked(layer, ground.number)
        return Point(config, tasks, tuple(dropped))

    def _checked(self, layer: Layer, ground: int) -> "tuple[Tree, Sequence[Task]]":
        """Sections that were checked before are taken as they came out then."""
        tree = layer.tree
        keys: dict[str, tuple[Any, ...]] = {name: (ground, name, _text(tree.get(name))) for name in _SECTIONS}
        keys["tasks"] = (*keys["tasks"], tree.get("data"))
        new = [name for name, key in keys.items() if key not in self._pieces]
        if any(name not in keys for name in tree) or not all(self._alone(name, keys[name], tree) for name in new):
            checked = check(layer, self.code)  # says what is wrong, and where it stands
            plain = checked.config.to_dict()
            self._pieces |= {key: plain[name] for name, key in keys.items()}
            self._pieces["objects", *keys["tasks"]] = [task for task, _ in checked.tasks]
        config = {name: self._pieces[key] for name, key in keys.items()}
        return config, self._pieces["objects", *keys["tasks"]]

    def _alone(self, name: str, key: tuple[Any, ...], tree: Tree) -> bool:
        """Check a section that depends on no other one, many times faster than a whole config; False: not possible."""
        if name not in _ALONE or not isinstance(tree.get(name, {}), dict):
            return False
        own = {"kind": "plain", **tree.get(name, {})} if name == "method" else dict(tree.get(name, {}))
        more = {"kind": own.pop("kind")} if name == "method" else {}
        try:
            cls = self._method(str(more["kind"])) if more else Config.model_fields[name].annotation
            self._pieces[key] = more | options(cast(type[Options], cls), Layer(own)).to_dict()
            return True
        except UserError:
            return False

    def _method(self, kind: str) -> type[Options]:
        if kind not in self._methods:
            self._methods[kind] = self.code.find("methods", kind, Path())
        return self._methods[kind]

    def metric_names(self, task: "Task", objective: str | None) -> tuple[str, ...]:
        """The scores that runs of a task have."""
        memo = (type(task), task.model_dump_json(), objective)
        if memo not in self._metrics:
            self._metrics[memo] = task.metric_names(objective)
        return self._metrics[memo]

    def digests(self, point: Point) -> dict[str, str]:
        """What stands for the content of model and data; runs of earlier stages are left to the plan."""
        model = point.config["model"]
        if (model["name"] is None) == (model["new"] is None):
            raise UserError("model: give either a name or new")
        from_stages = point.stages()
        by_key = {
            f"model.{key}": self._folder(key, model[key], model["revision"] if key == "name" else None)
            for key in _PATHS
            if model[key] and key not in from_stages and (key, model[key]) != ("tokenizer", "toy")
        }
        by_key |= {
            f"tasks.{i}.{key}": self._subset(entry[key])
            for i, entry in enumerate(point.config["tasks"])
            for key in ("subset", "sample_by")
            if entry.get(key)
        }
        by_key |= {
            f"tasks.{i}.teacher": self._teacher(entry)
            for i, entry in enumerate(point.config["tasks"])
            if entry.get("teacher")
        }
        return by_key | {f"tasks.{i}.data": self._content(task) for i, task in enumerate(point.tasks)}

    def _teacher(self, entry: Mapping[str, Any]) -> str:
        from encodery.models import locate

        names = [entry["teacher"]] if isinstance(entry["teacher"], str) else entry["teacher"]
        return self._or_name(", ".join(names), lambda: locate.digest_of_all(names, Path()))

    def _or_name(self, name: str, digest: Callable[[], str]) -> str:
        """The digest of a model; in a plan that nobody runs its name will do where it is not on this machine."""
        try:
            return digest()
        except UserError as error:
            if not self.absent_ok:
                raise
            self.absent[name] = str(error)
            return f"absent:{name}"

    def _subset(self, path: str) -> str:
        from encodery.data.subset import digest_of

        if ("subset", path) not in self._digests:
            self._digests["subset", path] = digest_of(path)
        return self._digests["subset", path]

    def _folder(self, key: str, name: str, revision: str | None) -> str:
        from encodery.models import locate

        memo = (key == "tokenizer", name, revision)
        if memo not in self._digests:

            def digest() -> str:
                if key == "tokenizer":
                    return locate.resolve_tokenizer(name, Path(), not self.absent_ok).digest()
                return locate.resolve(name, revision, Path(), not self.absent_ok).digest()

            self._digests[memo] = self._or_name(name, digest)
        return self._digests[memo]

    def _content(self, task: "Task") -> str:
        memo = (type(task), task.model_dump_json())
        if memo not in self._digests:
            self._digests[memo] = content_of(task)
        return self._digests[memo]

    def identity(self, config: Tree, tasks: "Sequence[Task]", digests: Mapping[str, str]) -> str:
        """The hash that names the run; the same that the run itself writes down."""
        return identity_of(config, tasks, self.code.used, digests, self._texts)


def _lay(layer: Layer, setting: Setting) -> None:
    tree = setting.value
    for name in reversed(setting.key.split(".")):
        tree = {name: tree}
    layer.lay(layers.from_mapping(tree, setting.location))


def _copied(layer: Layer) -> Layer:
    return Layer(_copy(layer.tree), dict(layer.places), [])


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value


def _text(value: Any) -> str:
    return json.dumps(value, default=str)


def _unknown_to_method(tree: Tree, key: str) -> bool:
    section, *names = key.split(".")
    if section != "method" or names in ([], ["kind"]):
        return False
    kind = _method_of(tree)
    return not is_own(kind) and names[0] not in find("methods", kind).model_fields


def _method_of(tree: Tree) -> str:
    method = tree.get("method")
    return str(method.get("kind", "plain")) if isinstance(method, dict) else "plain"


def _require_key(tree: Tree, setting: Setting) -> None:
    """What a variant or a mapping sets for its method must be a key of that method."""
    if not setting.required or not _unknown_to_method(tree, setting.key):
        return
    name, kind = setting.key.split(".")[1], _method_of(tree)
    having = [other for other in names("methods") if name in find("methods", other).model_fields]
    hint = f"; methods with this key: {', '.join(having)}" if having else near_key(setting.key, [kind])
    raise UserError(f"{setting.location.text}: {setting.key}: method {kind} has no {name}{hint}.")


def near_key(key: str, kinds: Iterable[str]) -> str:
    """`; did you mean method.adv_lr`, of the keys that these methods have."""
    keys = {f"method.{name}" for kind in kinds if not is_own(kind) for name in find("methods", kind).model_fields}
    near = difflib.get_close_matches(key, sorted(keys), n=1)
    return f"; did you mean {near[0]}" if near else ""


def _absolute(layer: Layer, code: Code) -> None:
    """Paths as they are from everywhere, because a run may start in another folder than the plan was made in."""
    tree, places = layer.tree, layer.places
    model = tree.get("model")
    for key in _PATHS if isinstance(model, dict) else ():
        location = places.get(("model", key))
        if isinstance(model, dict) and isinstance(model.get(key), str) and location:
            model[key] = _beside_config(model[key], location)
    sections: list[tuple[Any, tuple[Any, ...]]] = [(tree.get(name), (name,)) for name in KINDS]
    entries = tree.get("tasks")
    for i, entry in enumerate(entries if isinstance(entries, list) else []):
        if isinstance(entry, dict):
            sections += [(entry, ("tasks", i)), (entry.get("objective"), ("tasks", i, "objective"))]
            _absolute_data(entry)
    _absolute_data(tree)
    for section, at in sections:
        kind = section.get("kind") if isinstance(section, dict) else None
        if isinstance(kind, str) and is_own(kind) and (location := places.get((*at, "kind"))):
            file, _, name = kind.rpartition(":")
            try:
                section["kind"] = f"{code.path_of(file, location.folder)}:{name}"
            except UserError as error:
                raise UserError(f"{location.text}: {'.'.join(map(str, at))}.kind: {error}") from None


def _absolute_data(tree: Tree) -> None:
    if isinstance(tree.get("data"), str):
        tree["data"] = os.path.abspath(tree["data"])


def _beside_config(name: str, location: Location) -> str:
    """The folder or file of that name beside the config that names it, or in this folder; else it is a hub name."""
    if name == DEFAULT_MODEL:
        return name
    for base in (location.folder, Path()):
        path = base / name
        if path.is_file() or (path / "config.json").exists() or (path / "model" / "config.json").exists():
            return str(path.resolve())
    return name


def with_model(point: Point, runs: Mapping[str, str]) -> Tree:
    """The point's config with folders of runs where stages were named; what is not changed is shared."""
    return point.config | {"model": point.config["model"] | dict(runs)} if runs else point.config


def with_seed(point: Point, seed: int | None) -> Point:
    """The same point with another seed."""
    return point if seed is None else replace(point, config=point.config | {"seed": _seed(seed)})


@cache
def _seed(seed: int) -> Tree:
    """The section of a seed: all points share it."""
    return {"init": seed, "data": seed}
