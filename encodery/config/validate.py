"""From plain data to frozen options: every error at once, each with its place, its key and the nearest legal key."""

import difflib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from encodery.config import components
from encodery.config.foreign_flags import advice, ours
from encodery.config.layers import Layer, Location, is_data_file
from encodery.config.own_code import Code
from encodery.config.schema import DEFAULT_MODEL, DEFAULT_MODEL_SETTINGS, Config, Entry, idle_fraction, idle_settings
from encodery.core.options import Options
from encodery.core.redact import is_secret_key, scrub
from encodery.core.yaml import MAX_DIGITS, Key, scalar
from encodery.errors import UserError

if TYPE_CHECKING:
    from encodery.tasks.base import Task

T = TypeVar("T", bound=Options)

# Sections whose keys depend on a kind: where the kinds are, and what is meant if nobody says.
KINDS = {"method": ("methods", "plain"), "mix": ("mix", "shuffled"), "weighting": ("weighting", "constant")}
TASKS_ADVICE = ": a file (`encodery train reviews.csv`) or a name (`--tasks glue/rte`; `encodery tasks` lists them)"
_FORM = "string_pattern_mismatch"
_LENGTHS = {"too_short": "at least", "too_long": "at most"}
# How pydantic says it, and how people do.
_WORDS = {
    "expected greater than": "expected a number greater than",
    "expected less than": "expected a number less than",
    "a valid array": "a list",
    "a valid list": "a list",
    "a valid integer": "an integer",
    "an object": "a mapping",
    "a valid ": "a ",
    "boolean": "boolean (true or false)",
}
_OF_ATTACKS = ("method.adv_lr", "method.init_mag", "method.max_norm")  # which no section has unless its kind is one
MODEL_SOURCES = {"name", "new", "tokenizer", "init_from", "generator", "revision"}  # of these one speaks of a model
DEFAULTED = (
    f"model: {DEFAULT_MODEL}, the small encoder that comes with encodery; --model NAME takes another, "
    "such as roberta-base (downloaded once)"
)
SPELLINGS = {"toy/corpus": "corpus/toy"}  # where a task is called otherwise than its file


@dataclass(frozen=True)
class Checked:
    """A config whose every part was accepted by its class."""

    config: Config
    tasks: "list[tuple[Task, Entry]]"
    kinds: dict[str, Options]  # method, mix and weighting


def check(layer: Layer, code: Code, weights: bool = True) -> Checked:
    """Everything that a config names, built; or one error that lists all that is wrong."""
    return _Check(layer, code).run(weights)


def take_default_model(tree: dict[str, Any]) -> bool:
    """Where nothing says which encoder: the one that comes with encodery, with the rate and epochs that suit it.

    Whether nothing said it.
    """
    section = tree.get("model")
    nameless = section is None or (isinstance(section, dict) and not section.keys() & MODEL_SOURCES)
    if nameless:
        section = tree["model"] = {"name": DEFAULT_MODEL, **(section or {})}
    if isinstance(section, dict) and section.get("name") == DEFAULT_MODEL:
        for part, settings in DEFAULT_MODEL_SETTINGS.items():
            if isinstance(own := tree.get(part, {}), dict):
                tree[part] = settings | own
    return nameless


def options(kind: type[T], layer: Layer) -> T:
    """The options of another file than a config, such as a sweep, with errors of the same kind."""
    check = _Check(layer, Code())
    check._values(layer.tree, ())
    built = check._build(kind, layer.tree, ())
    if check.errors or built is None:
        raise UserError("\n".join(check.errors))
    return built


def check_beside_task(layer: Layer, kind: type[T], key: str, code: Code) -> "tuple[T, Task]":
    """Options and one task, which stands under `key`: for verbs whose config is not a run's."""
    return _Check(layer, code).beside_task(kind, key)


class _Check:
    """Collects errors while the parts are built."""

    def __init__(self, layer: Layer, code: Code) -> None:
        self.layer, self.code = layer, code
        self.errors: dict[str, None] = {}  # ordered, without repetition

    def run(self, weights: bool) -> Checked:
        self._values(self.layer.tree, ())
        if take_default_model(self.layer.tree):
            self.layer.notes.append(DEFAULTED)
        tree = self.layer.tree
        if isinstance(tree.get("tasks"), list):
            tree["tasks"] = [self._of_file(entry, ("tasks", i)) for i, entry in enumerate(tree["tasks"])]
        config = self._build(Config, tree, ())
        section = tree.get("model")
        enough = ("name", "new") if weights else ("name", "new", "tokenizer")
        if isinstance(section, dict) and all(section.get(key) is None for key in enough):
            self._error(("model",), "give a name (hub name, folder or run) or new (an encoder with fresh weights)")
        entries = tree.get("tasks") if isinstance(tree.get("tasks"), list) else []
        if "tasks" in tree and entries == []:
            self._error(("tasks",), "expected at least one task")
        pairs = [self._task(entry, ("tasks", i)) for i, entry in enumerate(entries or []) if isinstance(entry, dict)]
        kinds = {section: self._section(section, self._meant(section)) for section in KINDS}
        if self.errors or config is None:
            raise UserError("\n".join(dict.fromkeys(self.errors)))
        plain = [_complete(entry, task, options) for entry, (task, options) in zip(entries or [], pairs, strict=True)]
        self.layer.notes += idle_settings(config.optim)
        for i, (_, options) in enumerate(pairs):
            prefix = "tasks." if len(pairs) == 1 else f"tasks.{i}."
            self.layer.notes += idle_fraction(options.fraction, options.count, prefix)
        built = {section: options for section, options in kinds.items() if options is not None}
        whole = {section: {"kind": self._meant(section)["kind"], **own.to_dict()} for section, own in built.items()}
        config = config.model_copy(update={"tasks": plain, **whole})
        return Checked(config, [(task, options) for task, options in pairs], built)

    def _meant(self, section: str) -> Any:
        """A section with the kind that is meant if nobody says."""
        tree = self.layer.tree.get(section, {})
        return {"kind": self._default(section), **tree} if isinstance(tree, dict) else tree

    def _default(self, section: str) -> str:
        """The kind that is meant if nobody says; a weighting that compares tasks wants them in one step."""
        if section == "mix":
            weighting = self._meant("weighting")
            name = weighting.get("kind") if isinstance(weighting, dict) else None
            own = self._kind("weighting", name, ("weighting", "kind")) if isinstance(name, str) else None
            if own is not None and getattr(own, "together", False):
                return "together"
        return KINDS[section][1]

    def beside_task(self, kind: type[T], key: str) -> "tuple[T, Task]":
        self._values(self.layer.tree, ())
        own = {name: value for name, value in self.layer.tree.items() if name != key}
        options = self._build(kind, own, ())
        entry = self.layer.tree.get(key, {})
        if isinstance(entry, str):
            by = "file" if is_data_file(entry) else "name"
            self.layer.places[key, by] = self.layer.places.get((key,), Location("given", Path.cwd()))
            entry = {by: entry}
        entry = self._of_file(entry, (key,))
        if isinstance(entry, dict):
            named = {} if "kind" in entry else {"name": key}  # own files have the name that a run gives them
            task, _ = self._task({**named, **entry}, (key,))
        else:
            self._error((key,), "expected a name or a mapping")
        if self.errors or options is None:
            raise UserError("\n".join(dict.fromkeys(self.errors)))
        return options, task

    def _of_file(self, entry: Any, at: Key) -> Any:
        """`{file: reviews.csv, label: stars}`: the entry with everything that the file itself says."""
        if not isinstance(entry, dict) or not isinstance(entry.get("file"), str):
            return entry
        location = self.layer.places.get((*at, "file"), Location("given", Path.cwd()))
        own = {key: value for key, value in entry.items() if key not in (*Entry.model_fields, "file")}
        table: Any = self.code.find("tasks", "table", location.folder)
        # In messages the file is called as it was typed.
        options, remarks = table.of_file(entry["file"], location.folder, own, flag=f"--{at[0]}.{{}}")
        if (*at, "train") not in self.layer.places:
            self.layer.places[*at, "train"] = location
        for key in options:
            self.layer.places.setdefault((*at, key), Location(f"recognised in {entry['file']}", location.folder))
        self.layer.recognised.append(entry["file"])
        self.layer.notes += [f"{entry['file']}: {remark}" for remark in remarks]
        return options | {key: value for key, value in entry.items() if key in Entry.model_fields}

    def _section(self, section: str, tree: Any) -> Options | None:
        """The options of a section whose keys depend on its kind."""
        if not isinstance(tree, dict):
            return None
        own = dict(tree)
        kind = self._kind(KINDS[section][0], own.pop("kind"), (section, "kind"))
        return self._build(kind, own, (section,), f"{section} {tree['kind']}") if kind else None

    def _task(self, entry: dict[str, Any], at: Key) -> "tuple[Task, Entry]":
        """The task and what every entry may carry; errors leave a hole that `run` never returns."""
        own = {key: value for key, value in entry.items() if key not in Entry.model_fields}
        shared = {key: value for key, value in entry.items() if key in Entry.model_fields}
        for key in ("subset", "sample_by"):
            if isinstance(shared.get(key), str):  # the stored config may be read from elsewhere
                shared[key] = str((self._folder((*at, key)) / shared[key]).resolve())
        if isinstance(shared.get("teacher"), str | list):
            shared["teacher"] = _beside(shared["teacher"], self._folder((*at, "teacher")))
        built: Any = self._build(Entry, shared, at)
        by = "kind" if "kind" in own else "name"
        name = own.pop(by, None)
        if name is None:
            self._error(at, "a task needs a name, such as glue/rte, or a kind, such as table")
            return built, built
        if by == "name" and is_data_file(str(name)):
            self._error((*at, by), f"{name} is a file: write `file: {name}`")
            return built, built
        head, _, part = SPELLINGS.get(str(name), str(name)).partition("/") if by == "name" else (name, "", "")
        kind = self._kind("tasks", head, (*at, by))
        if kind is None:
            return built, built
        if part and "part" not in kind.model_fields:
            self._error((*at, by), f"{head} has no parts: write {head}")
        own |= {"part": part} if part and "part" in kind.model_fields else {}
        own = self._with_folders(own, kind, at)
        try:
            kind = kind.variant(own) if hasattr(kind, "variant") else kind
        except UserError as error:
            self._error(at, str(error))
            return built, built
        task: Any = self._build(kind, own, at, f"task {name}", Entry)
        if task is not None and built is not None and built.objective:
            self._objective(task, built, (*at, "objective"))
        return task, built

    def _with_folders(self, own: dict[str, Any], kind: type[Options], at: Key) -> dict[str, Any]:
        """The run's data folder, and for own files the folder of the config that names them."""
        if "root" in kind.model_fields and own.get("root") is None:
            own = self._rooted(own, kind, at)
        folders = {"data": self.layer.tree.get("data")}
        return own | {key: f for key, f in folders.items() if key in kind.model_fields and own.get(key) is None}

    def _rooted(self, own: dict[str, Any], kind: type[Options], at: Key) -> dict[str, Any]:
        """Each path starts where it was written, whatever other keys of the task the command line sets."""
        paths = [key for key in getattr(kind, "paths", ()) if key != "root" and isinstance(own.get(key), str)]
        places = {key: self._folder((*at, key)).resolve() for key in paths}
        root = next(iter(places.values()), self._folder(at).resolve())
        moved = {key: str(place / Path(own[key]).expanduser()) for key, place in places.items() if place != root}
        return own | moved | {"root": str(root)}

    def _objective(self, task: "Task", entry: Entry, at: Key) -> None:
        """Options of the objective are checked here so that a wrong key is not found after the data were read."""
        try:
            options = {**task.objective(), **entry.objective}
        except UserError:
            return  # its data are missing, which the run will say better
        kind = self._kind("objectives", options.pop("kind"), at)
        if kind is not None:
            self._build(kind, options, at, f"objective of {task.name}")

    def _kind(self, package: str, name: Any, at: Key) -> type[Options] | None:
        try:
            if not isinstance(name, str):
                raise UserError("expected a name")
            return self.code.find(package, name, self._folder(at))
        except UserError as error:
            self._error(at, str(error))
            return None

    def _build(
        self, kind: type[T], tree: Mapping[str, Any], at: Key, who: str = "", beside: type[Options] | None = None
    ) -> T | None:
        """The options object; its errors go to the list, with keys of `beside` also counting as legal."""
        try:
            # Through JSON: strict, yet 1 is a number for a float, and a list is a tuple.
            return kind.model_validate_json(json.dumps(tree, default=str))
        except ValidationError as error:
            found = error.errors(include_url=False)
            # Of a key that may be true or a word, only what the word should look like.
            words = {_known_part(one["loc"], tree) for one in found if one["type"] == _FORM}
            for one in found:
                if one["type"] == _FORM or _known_part(one["loc"], tree) not in words:
                    self._explain(one, kind, tree, at, who, beside)
            return None

    def _explain(
        self, error: Any, kind: type[Options], tree: Any, at: Key, who: str, beside: type[Options] | None
    ) -> None:
        loc = _known_part(error["loc"], tree)
        key = (*at, *loc)
        if error["type"] == "extra_forbidden":
            legal = [*_fields(kind, loc[:-1]), *(beside.model_fields if beside else ())]
            legal = [name for name in legal if name != "part"]  # the name of a task says it
            hint = _of_other_kinds(key, kind) or _nearest(key, legal, self._dotted_keys())
            general = f"unknown key{' of ' + who if who else ''}{hint}"
            for value in (error["input"], *([self.layer.covered[key]] if key in self.layer.covered else [])):
                for inner in _innermost(key, value):
                    found = _elsewhere(inner, self._dotted_keys()) if inner != key else None
                    self._error(inner if found else key, f"unknown key; did you mean {found}?" if found else general)
        elif error["type"] == "missing":
            advice = TASKS_ADVICE if (*at, *error["loc"]) == ("tasks",) else ""
            self._error((*at, *error["loc"]), f"is required{' by ' + who if who else ''}{advice}")
        elif error["loc"] == ("part",):
            self._error((*at, "name"), f"{who.removeprefix('task ')}: the part after '/' is wrong: {_expected(error)}")
        else:
            # A whole list or mapping is not shown: the sentence says itself what is wrong in it.
            whole = error["type"] in ("value_error", *_LENGTHS) and isinstance(error["input"], (dict, list))
            self._error(key, f"{_expected(error, _meaning(kind, loc))}{'' if whole else _got(error)}")

    def _values(self, value: Any, at: Key) -> None:
        """What no field may hold: numbers that are not finite, things that are not data, and secrets."""
        name = str(at[-1]) if at else ""
        if isinstance(value, float) and not math.isfinite(value):
            self._error(at, "expected a finite number")
        elif value is not None and not isinstance(value, (dict, list, str, int, float)):
            self._error(at, f"expected text, a number, a list or a mapping, not a {type(value).__name__}")
        elif isinstance(value, str) and (is_secret_key(name) or scrub(value) != value):
            self._error(at, "looks like a secret; keep tokens in HF_TOKEN or `hf auth login`, never in a config")
        for key, item in _items(value):
            self._values(item, (*at, key))
        if isinstance(value, str) and not _is_text(value):
            self._error(at, "contains a lone surrogate; file names must be valid UTF-8")
        if not at and self.errors and not _is_text(json.dumps(value, default=str, ensure_ascii=False)):
            raise UserError("\n".join(self.errors))  # what follows could not even read it

    def _dotted_keys(self) -> list[str]:
        return [f"{name}.{key}" for name, part in Config.model_fields.items() for key in _sub_fields(part.annotation)]

    def _error(self, at: Key, message: str) -> None:
        known = at
        while known and known not in self.layer.places:
            known = known[:-1]
        place = self.layer.places.get(known)
        only_task = at[:2] == ("tasks", 0) and len(self.layer.tree.get("tasks", ())) == 1
        key = ("tasks", *at[2:]) if only_task else at  # as it may be typed
        words = [place.text if place else "", ".".join(map(str, key)), message]
        self.errors[": ".join(word for word in words if word).rstrip(".") + ("" if message.endswith("?") else ".")] = (
            None
        )

    def _folder(self, at: Key) -> Path:
        place = self.layer.places.get(at)
        return place.folder if place else Path()


def _is_text(value: str) -> bool:
    """Whether it can be written as UTF-8."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _beside(names: Any, folder: Path) -> Any:
    """Folders beside the config by their full path; everything else as it is."""
    if isinstance(names, list):
        return [_beside(name, folder) for name in names]
    return str((folder / names).resolve()) if isinstance(names, str) and (folder / names).exists() else names


def _complete(entry: Mapping[str, Any], task: "Task", options: Entry) -> dict[str, Any]:
    """An entry with all its defaults; `part` is left out because the name says it."""
    own = task.to_dict()
    own["data"] = entry.get("data")  # not the run's folder, which has its own key
    if "kind" in entry:
        return {"kind": entry["kind"], **own, **options.to_dict()}
    own.pop("part", None)
    return {"name": task.name, **own, **options.to_dict()}


def _known_part(loc: Key, tree: Any) -> Key:
    """The part of pydantic's location that stands in the config; it also names members of unions."""
    part: list[str | int] = []
    for step in loc:
        inside = (isinstance(tree, dict) and step in tree) or (
            isinstance(tree, list) and isinstance(step, int) and step < len(tree)
        )
        if not inside:
            break
        part.append(step)
        tree = tree[step]
    return tuple(part)


def _sub_fields(annotation: Any) -> Mapping[str, Any]:
    """The fields of a section, also of an optional one."""
    for kind in (annotation, *getattr(annotation, "__args__", ())):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return _by_key(kind)
    return {}


def _by_key(kind: type[BaseModel]) -> dict[str, Any]:
    """Fields by the key that people type."""
    return {part.alias or name: part for name, part in kind.model_fields.items()}


def _fields(kind: type[Options], loc: Key) -> Mapping[str, Any]:
    fields: Mapping[str, Any] = _by_key(kind)
    for step in loc:
        fields = _sub_fields(fields[str(step)].annotation) if str(step) in fields else {}
    return fields


def _innermost(key: Key, value: Any) -> Iterator[Key]:
    """The keys that were meant where a whole path is unknown: `task.model.init_mag`."""
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _innermost((*key, name), inner)
    else:
        yield key


def _elsewhere(key: Key, everywhere: list[str]) -> str | None:
    """Our key for a whole path of another program, or of an objective, which belongs to its task."""
    wanted = str(key[-1])
    if key[0] == "objective":
        return ".".join(map(str, ("tasks", *key)))
    same = [dotted for dotted in (*everywhere, *_OF_ATTACKS) if dotted.endswith(f".{wanted}")]
    return ours(wanted) or next(iter(same), wanted if wanted in Config.model_fields else None)


def _of_other_kinds(key: Key, kind: type[Options]) -> str:
    """`method.epsilon` of freelb: which methods have it; empty where none has."""
    section, name = (str(key[0]), str(key[-1])) if len(key) == 2 else ("", "")
    if section not in KINDS:
        return ""
    package, default = KINDS[section]
    having = [one for one in components.names(package) if name in _by_key(components.find(package, one))]
    if not having:
        return ""
    listed = having[0] if len(having) == 1 else f"{', '.join(having[:-1])} and {having[-1]}"
    verb = "has" if len(having) == 1 else "have"
    example = "freelb" if "freelb" in having else having[0]
    add = f": add --{section} {example}" if kind is components.find(package, default) else ""
    return f"; {listed} {verb} it{add}"


def _nearest(key: Key, legal: list[str], everywhere: list[str]) -> str:
    """`--lr` means optim.lr; `optim.lt` means lr; else say what there is."""
    wanted = str(key[-1]).replace("-", "_")
    elsewhere = [dotted for dotted in everywhere if dotted.rpartition(".")[2] == wanted] if len(key) == 1 else []
    known = ours(wanted)
    if known and wanted not in legal:
        return f"; did you mean {known}?"
    if len(key) == 1 and not elsewhere and (instead := advice(wanted)):
        return f"; {instead}"
    near = elsewhere or difflib.get_close_matches(wanted, legal, n=1, cutoff=0.5)
    if near:
        return f"; did you mean {near[0]}?"
    return f"; there are: {', '.join(legal)}" if legal else "; it has no keys"


def _meaning(kind: type[Options], loc: Key) -> str:
    """What the documentation says of a key, on one line."""
    for step in loc[:-1]:
        inner = kind.model_fields[str(step)].annotation if str(step) in kind.model_fields else None
        parts = (inner, *getattr(inner, "__args__", ()))
        kind = next((one for one in parts if isinstance(one, type) and issubclass(one, Options)), kind)
    return " ".join(kind.documented().get(str(loc[-1]), "").split()) if loc else ""


def _expected(error: Any, meaning: str = "") -> str:
    message: str = error["msg"].removeprefix("Value error, ").replace("Input should be", "expected")
    if error["type"] == _FORM:
        return f"expected another form ({meaning or '`encodery config --reference` shows it'})"
    if error["type"] == "list_type" and isinstance(error["input"], str):
        return f"expected a list, such as [{error['input']}]"
    if error["type"] in _LENGTHS:
        limit = "min_length" if error["type"] == "too_short" else "max_length"
        bound, number = _LENGTHS[error["type"]], error["ctx"][limit]
        return f"expected {bound} {number} {'entry' if number == 1 else 'entries'}, not {len(error['input'])}"
    for theirs, said in _WORDS.items():
        message = message.replace(theirs, said)
    return message


def _got(error: Any) -> str:
    value = error["input"]
    if isinstance(value, (dict, list)) or value is None:
        return f", not {'a mapping' if isinstance(value, dict) else 'a list' if isinstance(value, list) else 'null'}"
    quoted = error["type"] in ("float_type", "int_type") and isinstance(value, str) and _is_number(value)
    pyyaml = " (PyYAML reads 1e-6 so, and 1.0e-6 as a number)" if "e" in str(value) else ""
    return f", not {scrub(json.dumps(value, default=str))[:80]}{f', which is text in quotes{pyyaml}' if quoted else ''}"


def _is_number(text: str) -> bool:
    return len(text) <= MAX_DIGITS and isinstance(scalar(text), int | float)


def _items(value: Any) -> Iterator[tuple[str | int, Any]]:
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, list):
        yield from enumerate(value)
