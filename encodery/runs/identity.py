"""What makes two runs the same run: the settings that change a result, and the hash that stands for them.

A run must be recognised by later versions of the program, which have more keys. So a key counts only where it differs
from how things were before the key existed: its default, or `before` of its field where the default does something new
(`Field(default="auto", json_schema_extra={"before": "first"})`). first_defaults.json holds the keys and defaults of the
first version; those are always part of the hash, so that hashes and folder names of its runs hold. Never add to it.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic_core import to_jsonable_python

from encodery.config.components import find
from encodery.config.layers import by_value, differences
from encodery.config.load import Resolved
from encodery.config.own_code import kept
from encodery.config.schema import Config, Entry
from encodery.config.validate import KINDS, SPELLINGS
from encodery.config.without_torch import placeholders
from encodery.core import files, yaml
from encodery.core.files import digest_text
from encodery.core.options import Options
from encodery.core.yaml import Key
from encodery.errors import UserError
from encodery.runs.directory import RunDir

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


# Name, ids and digests of a section → the section, the tasks, and its text in the hash.
Texts = dict[tuple[Any, ...], tuple[Any, "Sequence[Task]", str]]


def identity_of(
    tree: Tree, tasks: "Sequence[Task]", code: CodeFiles, digests: Mapping[str, str], texts: Texts | None = None
) -> str:
    """The sha256 of everything that changes the result. Numbers are compared by value, paths by content.

    `digests` gives, by dotted key (`model.name`, `tasks.0.data`), the digest that stands for what the path holds.
    `texts` remembers sections from one call to the next: for thousands of configs that share most of theirs.
    """
    sections = _top(tree)
    inputs: dict[str, list[tuple[str, str]]] = {name: [] for name in sections}
    for dotted, digest in digests.items():
        inputs[dotted.partition(".")[0]].append((dotted, digest))
    texts = {} if texts is None else texts
    parts = []
    for name in sorted(sections):
        key = (name, id(sections[name]), id(tasks), *inputs[name])
        if key not in texts:  # what has these ids is kept too, so that nothing else can get them
            content = _content(name, sections[name], tasks, code, dict(inputs[name]))
            text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
            texts[key] = (sections[name], tasks, f"{json.dumps(name)}:{text}")
        parts.append(texts[key][2])
    return digest_text(f"{{{','.join(parts)}}}")  # as JSON of the whole, with sorted keys, would be


def _content(name: str, section: Any, tasks: "Sequence[Task]", code: CodeFiles, digests: Mapping[str, str]) -> Any:
    """A section as it counts: own files and paths are replaced by digests of what they hold."""
    section = _settled(name, section, tasks)
    kinds = [(section, name)] if name in KINDS else []
    if name == "tasks":
        for i, task in enumerate(tasks):
            by_content = (*task.paths, *task.told_by_content) if f"tasks.{i}.data" in digests else ()
            for key in (*_FOLDERS, *by_content):
                _put(section, (i, key), None)
        for entry in section:
            kinds += [(entry, "tasks"), (entry["objective"], "objectives")]
    for part, at in kinds:
        file, _, own = part.get("kind", "").rpartition(":")
        if file in code:
            part["kind"] = f"{at}:{code[file][1]}:{own}"
    for dotted, digest in digests.items():
        _put(section, tuple(int(step) if step.isdigit() else step for step in dotted.split(".")[1:]), digest)
    return section


def recognises(run: RunDir, identity: str, tasks: "Sequence[Task]") -> bool:
    """Whether a run directory, of whatever version, holds the run of this identity, which has these tasks."""
    return run.info().get("identity") == identity or earlier_identity(run, tasks) == identity


def earlier_identity(run: RunDir, tasks: "Sequence[Task]") -> str | None:
    """The identity, as it is reckoned now, of a run that has these tasks and was hashed otherwise; None: it was not."""
    info = run.info()
    if "identity" not in info or info.get("identity_form") == FORM:
        return None
    try:
        tree = yaml.read_text(run.config_text(), str(run.config)).tree
        names = [entry.get("kind") or entry["name"] for entry in tree["tasks"]]
        return identity_of(tree, tasks, kept(run.path), info.get("inputs", {})) if len(names) == len(tasks) else None
    except (UserError, KeyError, TypeError, AttributeError, IndexError):  # not a config that this version can read
        return None


def changes(
    old: Mapping[str, Any], new: Mapping[str, Any], tasks: "Sequence[Task]", same: Sequence[str] = ()
) -> list[tuple[str, Any, Any]]:
    """What differs between two configs and matters: (key, old, new). `same`: dotted keys whose content is the same."""
    try:
        before = settled(old, tasks)
    except (KeyError, TypeError, AttributeError):  # of another program, or edited by hand
        before = dict(old)
    by_content = {
        f"tasks.{i}.{name}" for i, task in enumerate(tasks) for name in (*_FOLDERS, *task.paths, *task.told_by_content)
    }
    return [found for found in differences(before, settled(new, tasks)) if found[0] not in {*same, *by_content}]


def settled(tree: Mapping[str, Any], tasks: "Sequence[Task]") -> Tree:
    """A copy of a config with what counts: later keys only where they are not as before, none that changes nothing."""
    return {name: _settled(name, section, tasks) for name, section in _top(tree).items()}


def _top(tree: Mapping[str, Any]) -> Tree:
    """The sections that count, themselves not copied."""
    sections = dict(tree)
    _settle(sections, "", Config)
    for key in _LEFT_OUT:
        if len(key) == 1:
            _put(sections, key, None)
    return sections


def _settled(name: str, section: Any, tasks: "Sequence[Task]") -> Any:
    """A copy of one section of a config with what counts."""
    section = by_value(section)
    for at, kind, part in _parts(name, section, tasks):
        _settle(part, at, kind)
    if name == "train" and section.get("max_steps") is not None:
        section["epochs"] = _first()["train"]["epochs"]
    for key in _LEFT_OUT:
        if key[:-1] == (name,):
            section.pop(key[-1], None)
    return section


def as_before(tree: Mapping[str, Any]) -> Tree:
    """A copy without later keys that are as before and without epochs that count for nothing, to compare old with new.

    It takes any tree, also one that is no whole config.
    """
    copied: Tree = by_value(tree)
    sections = [(name, _inner(field.annotation), copied.get(name)) for name, field in Config.model_fields.items()]
    sections += [
        (f"{name}:{_kind(copied.get(name))}", _component(room, copied.get(name)), copied.get(name))
        for name, (room, _) in KINDS.items()
    ]
    for entry in copied.get("tasks") or () if isinstance(copied.get("tasks"), list) else ():
        sections.append(("tasks", Entry, entry))
    for at, kind, section in sections:
        if kind is not None and isinstance(section, dict):
            for key, before in _keys(at, kind).later:
                if key in section and section[key] == before:
                    del section[key]
    train = copied.get("train")
    if isinstance(train, dict) and train.get("max_steps") is not None:
        train.pop("epochs", None)
    return copied


def _kind(section: Any) -> str:
    return str(section.get("kind", "")).replace("-", "_") if isinstance(section, dict) else ""


def _component(room: str, section: Any) -> type[Options] | None:
    """The class of a component of ours; None for own code and for what is not there."""
    kind = _kind(section)
    try:
        return _options_of(room, kind) if kind and ".py:" not in kind else None
    except UserError:
        return None


def _parts(name: str, section: Any, tasks: "Sequence[Task]") -> Iterator[tuple[str, type[Options], Tree]]:
    """What a section is made of, with its place and the class that knows its keys; own classes are not among them."""
    field = Config.model_fields.get(name)
    kind = _inner(field.annotation) if field else None
    if kind and isinstance(section, dict):
        yield name, kind, section
    if name in KINDS and ".py:" not in section["kind"]:
        yield f"{name}:{section['kind'].replace('-', '_')}", find(KINDS[name][0], section["kind"]), section
    for entry, task in zip(section, tasks, strict=False) if name == "tasks" else ():
        yield "tasks", Entry, entry
        if ".py:" not in (kind_or_name := str(entry.get("kind") or entry["name"])):
            yield f"tasks:{_file_and_form(kind_or_name, type(task))}", type(task), entry


@cache
def _file_and_form(name: str, kind: "type[Task]") -> str:
    """`table/spans`: the file of a task and the form of its question."""
    head = SPELLINGS.get(name, name).partition("/")[0].replace("-", "_")
    forms: Mapping[str, type] = getattr(find("tasks", head), "variants", {})
    return next((f"{head}/{form}" for form, one in forms.items() if one is kind), head)


@cache
def _options_of(room: str, kind: str) -> type[Options]:
    """The class for reading keys and defaults alone: tables must not wait for torch."""
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


def _put(tree: Any, key: Key, value: Any) -> None:
    """Set a value; None takes the key away."""
    for step in key[:-1]:
        tree = tree[step]
    if value is None:
        tree.pop(key[-1], None)
    else:
        tree[key[-1]] = value


def content_of(task: "Task") -> str:
    """Digest of the splits that training can see; one that is needed and not here is an error of the task's own."""
    for split in task.needed:
        if not task.has(split):
            task.origin(split)
    splits = [s for s in task.splits() if not s.startswith("test") and task.has(s)]
    return files.digest({split: task.origin(split).digest for split in splits})


def identity_of_config(resolved: Resolved, digests: Mapping[str, str]) -> str:
    """The sha256 of everything that changes the result. Numbers are compared by value, paths by content.

    `digests` gives, by dotted key (`model.name`, `tasks.0.data`), the digest that stands for what the path holds.
    """
    return identity_of(resolved.config.to_dict(), [task for task, _ in resolved.tasks], resolved.code, digests)
