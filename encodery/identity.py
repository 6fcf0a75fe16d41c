"""What makes two runs the same run: the settings that change a result, and the hash that stands for them.

A run must be recognised by later versions of the program, which have more keys. So a key counts only where it differs
from how things were before the key existed: its default, or `before` of its field where the default does something new
(`Field(default="auto", json_schema_extra={"before": "first"})`). first_defaults.json holds the keys and defaults of the
first version; those are always part of the hash, so that hashes and folder names of its runs hold. Never add to it.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic_core import to_jsonable_python

from encodery import yaml_reader
from encodery.check import KINDS, SPELLINGS
from encodery.errors import UserError
from encodery.find import find
from encodery.options import Options
from encodery.own_code import kept
from encodery.rundir import RunDir
from encodery.schema import Config, Entry
from encodery.without_torch import placeholders
from encodery.yaml_reader import Key

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from encodery.tasks.base import Task

Tree = dict[str, Any]
CodeFiles = Mapping[str, tuple[Path, str]]  # own Python files as typed -> (path, sha256)

FORM = 2  # of the hash; runs without `identity_form` counted train.epochs beside train.max_steps
# Where it is computed and what is written along the way do not change what comes out.
_LEFT_OUT: tuple[Key, ...] = (
    ("data",),
    ("device",),
    ("threads",),
    ("train", "shard"),
    ("train", "check_processes"),
    ("train", "log"),
    ("train", "save"),
    ("train", "keep_checkpoints"),
)
_FOLDERS = ("data", "root")


def identity_of(tree: Tree, tasks: "Sequence[Task]", code: CodeFiles, digests: Mapping[str, str]) -> str:
    """The sha256 of everything that changes the result. Numbers are compared by value, paths by content.

    `digests` gives, by dotted key (`model.name`, `tasks.0.data`), the digest that stands for what the path holds.
    """
    tree = settled(tree, tasks)
    for i, task in enumerate(tasks):
        for name in (*_FOLDERS, *(task.paths if f"tasks.{i}.data" in digests else ())):
            _put(tree, ("tasks", i, name), None)
    sections = [(tree[section], section) for section in KINDS]
    for entry in tree["tasks"]:
        sections += [(entry, "tasks"), (entry["objective"], "objectives")]
    for section, at in sections:
        file, _, name = section.get("kind", "").rpartition(":")
        if file in code:
            section["kind"] = f"{at}:{code[file][1]}:{name}"
    for dotted, digest in digests.items():
        _put(tree, tuple(int(step) if step.isdigit() else step for step in dotted.split(".")), digest)
    text = json.dumps(tree, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def recognises(run: RunDir, identity: str, tasks: "Sequence[Task]") -> bool:
    """Whether a run directory, of whatever version, holds the run of this identity, which has these tasks."""
    return run.info().get("identity") == identity or earlier_identity(run, tasks) == identity


def earlier_identity(run: RunDir, tasks: "Sequence[Task]") -> str | None:
    """The identity, as it is reckoned now, of a run that has these tasks and was hashed otherwise; None: it was not."""
    info = run.info()
    if "identity" not in info or info.get("identity_form") == FORM:
        return None
    try:
        tree = yaml_reader.read_text(run.config_text(), str(run.config)).tree
        names = [entry.get("kind") or entry["name"] for entry in tree["tasks"]]
        return identity_of(tree, tasks, kept(run.path), info.get("inputs", {})) if len(names) == len(tasks) else None
    except (UserError, KeyError, TypeError, AttributeError, IndexError):  # not a config that this version can read
        return None


def changes(
    old: Mapping[str, Any], new: Mapping[str, Any], tasks: "Sequence[Task]", same: Sequence[str] = ()
) -> list[tuple[str, Any, Any]]:
    """What differs between two configs and matters: (key, old, new). `same`: dotted keys whose content is the same."""
    try:
        one = settled(old, tasks)
    except (KeyError, TypeError, AttributeError):  # of another program, or edited by hand
        one = dict(old)
    paths = {f"tasks.{i}.{name}" for i, task in enumerate(tasks) for name in (*_FOLDERS, *task.paths)}
    return [found for found in differences(one, settled(new, tasks)) if found[0] not in {*same, *paths}]


def settled(tree: Mapping[str, Any], tasks: "Sequence[Task]") -> Tree:
    """A copy of a config with what counts: later keys only where they are not as before, none that changes nothing."""
    found: Tree = by_value(tree)
    for at, kind, section in _sections(found, tasks):
        _settle(section, at, kind)
    if found["train"].get("max_steps") is not None:
        found["train"]["epochs"] = _first()["train"]["epochs"]
    for key in _LEFT_OUT:
        _put(found, key, None)
    return found


def as_before(tree: Mapping[str, Any]) -> Tree:
    """A copy without later keys that are as before and without epochs that count for nothing, to compare old with new.

    It takes any tree, also one that is no whole config.
    """
    found: Tree = by_value(tree)
    sections = [(name, _inner(field.annotation), found.get(name)) for name, field in Config.model_fields.items()]
    sections += [
        (f"{name}:{_kind(found.get(name))}", _known(room, found.get(name)), found.get(name))
        for name, (room, _) in KINDS.items()
    ]
    for entry in found.get("tasks") or () if isinstance(found.get("tasks"), list) else ():
        sections.append(("tasks", Entry, entry))
    for at, kind, section in sections:
        if kind is not None and isinstance(section, dict):
            for key, before in _keys(at, kind).later:
                if key in section and section[key] == before:
                    del section[key]
    train = found.get("train")
    if isinstance(train, dict) and train.get("max_steps") is not None:
        train.pop("epochs", None)
    return found


def _kind(section: Any) -> str:
    return str(section.get("kind", "")).replace("-", "_") if isinstance(section, dict) else ""


def _known(room: str, section: Any) -> type[Options] | None:
    """The class of a component of ours; None for own code and for what is not there."""
    kind = _kind(section)
    try:
        return _options_of(room, kind) if kind and ".py:" not in kind else None
    except UserError:
        return None


def _sections(tree: Tree, tasks: "Sequence[Task]") -> Iterator[tuple[str, type[Options], Tree]]:
    """Every part of a config, with its place and the class that knows its keys; own classes are not among them."""
    yield "", Config, tree
    for name, field in Config.model_fields.items():
        kind = _inner(field.annotation)
        if kind and isinstance(tree.get(name), dict):
            yield name, kind, tree[name]
    for name, (room, _) in KINDS.items():
        section = tree[name]
        if ".py:" not in section["kind"]:
            yield f"{name}:{section['kind'].replace('-', '_')}", _found(room, section["kind"]), section
    for entry, task in zip(tree["tasks"], tasks, strict=False):
        yield "tasks", Entry, entry
        if ".py:" not in (name := str(entry.get("kind") or entry["name"])):
            yield f"tasks:{_place(name, type(task))}", type(task), entry


@cache
def _place(name: str, kind: "type[Task]") -> str:
    """`table/spans`: the file of a task and the form of its question."""
    head = SPELLINGS.get(name, name).partition("/")[0].replace("-", "_")
    forms: Mapping[str, type] = getattr(_found("tasks", head), "variants", {})
    return next((f"{head}/{form}" for form, one in forms.items() if one is kind), head)


@cache
def _found(room: str, kind: str) -> type[Options]:
    """`find`, which looks at the disk, once for each name: plans of thousands of runs come here."""
    return find(room, kind)


@cache
def _options_of(room: str, kind: str) -> type[Options]:
    """The same for reading keys and defaults alone: tables must not wait for torch."""
    with placeholders():
        return find(room, kind)


@dataclass(frozen=True)
class _Keys:
    """The keys of a section: those of the first version, those that came later, and sections within."""

    first: Mapping[str, Any]
    later: tuple[tuple[str, Any], ...]  # and what means: as it was before there was such a key
    inner: tuple[tuple[str, type[Options]], ...]


@cache
def _keys(at: str, kind: type[Options]) -> _Keys:
    first = _first().get(at, {})
    fields = {field.alias or name: field for name, field in kind.model_fields.items()}
    later = tuple((key, _before(f)) for key, f in fields.items() if key not in first and not f.is_required())
    inner = tuple((key, found) for key, f in fields.items() if at and (found := _inner(f.annotation)))
    return _Keys({key: value for key, value in first.items() if key in fields}, later, inner)


def _settle(section: Tree, at: str, kind: type[Options]) -> None:
    keys = _keys(at, kind)
    named = at.startswith("tasks:") and "kind" not in section  # then the name says what part it is
    for key in keys.first.keys() - section.keys():  # of a run of a version before the first
        if key != "part" or not named:
            section[key] = by_value(keys.first[key])
    for key, before in keys.later:
        if key in section and section[key] == before and (key != "part" or not named):
            del section[key]
    for key, found in keys.inner:
        if isinstance(section.get(key), dict):
            _settle(section[key], f"{at}.{key}", found)


def _before(field: "FieldInfo") -> Any:
    extra = field.json_schema_extra
    if isinstance(extra, dict) and "before" in extra:
        return by_value(extra["before"])
    return by_value(to_jsonable_python(field.get_default(call_default_factory=True)))


def _inner(annotation: Any) -> type[Options] | None:
    """The class of a section, also of an optional one."""
    kinds = (annotation, *getattr(annotation, "__args__", ()))
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Options)), None)


@cache
def _first() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("first_defaults.json").read_text("utf-8"))
    return found


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """What differs between two plain configs: (key, old, new), with None for what is not there."""
    a, b = flat(old), flat(new)
    return [(key, a.get(key), b.get(key)) for key in {**a, **b} if a.get(key) != b.get(key)]


def flat(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted key to value, as in `tasks.0.name` and `optim.lr`."""
    return {".".join(map(str, key)): value for key, value in leaves(dict(tree), ())}


def leaves(value: Any, at: Key) -> Iterator[tuple[Key, Any]]:
    """Every value that is not a mapping or a list of mappings, with its key."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from leaves(item, (*at, key))
    elif isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        for i, item in enumerate(value):
            yield from leaves(item, (*at, i))
    else:
        yield at, value


def by_value(value: Any) -> Any:
    """A copy of plain data, with numbers by their value: 3.0 is 3."""
    if isinstance(value, Mapping):
        return {key: by_value(item) for key, item in value.items()}
    if isinstance(value, list):
        return [by_value(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _put(tree: Any, key: Key, value: Any) -> None:
    """Set a value; None takes the key away."""
    for step in key[:-1]:
        tree = tree[step]
    if value is None:
        tree.pop(key[-1], None)
    else:
        tree[key[-1]] = value
