"""Configs lie on top of each other: extends < file < command line. Mappings merge, lists replace, later wins.

A layer is plain data plus the place of every key, so that the origin of each value is known to the end.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import encodery.recipes as recipes
from encodery.config.components import names
from encodery.config.foreign_flags import instead_of
from encodery.config.schema import Entry
from encodery.core import yaml
from encodery.core.yaml import Key
from encodery.errors import UserError

_KEY = re.compile(r"[A-Za-z_][\w-]*(\.[\w-]+)*")
# What model.new.size stands for, in the words of the architectures' configs.
SIZES = (
    "num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "embedding_size", "n_layers", "dim",
    "n_heads", "hidden_dim",
)  # fmt: skip
# Endings of files that are data. (.json is SQuAD's layout; a config may be written in JSON, too.)
DATA_FILES = (
    ".csv", ".tsv", ".jsonl", ".ndjson", ".parquet", ".json", ".conll", ".conllu", ".bio", ".iob", ".txt",
)  # fmt: skip
_ANY_STYLE = "write --key value, --key=value or key=value"


@dataclass(frozen=True)
class Location:
    """Where a value was written: `rte.yaml:3`, and the folder that its relative paths start from."""

    text: str
    folder: Path


@dataclass
class Layer:
    """Plain data and the place of each key in it; grows while other layers are laid on it."""

    tree: dict[str, Any] = field(default_factory=dict)
    places: dict[Key, Location] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    dropped: dict[Key, list[str]] = field(default_factory=dict)  # keys that went when the kind of their section changed
    recognised: list[str] = field(default_factory=list)  # data files whose columns were recognised
    covered: dict[Key, Any] = field(
        default_factory=dict
    )  # a section that a plain value replaced, or the other way round

    def lay(self, above: "Layer") -> None:
        """Put another layer on top of this one."""
        self.notes += above.notes
        self.dropped |= above.dropped
        self._merge(self.tree, above.tree, (), above.places)

    def all_notes(self) -> list[str]:
        """The notes, and what was dropped; not keys that a later layer set anew, such as the next flag."""
        lines = []
        for at, gone in self.dropped.items():
            lost = [name for name in dict.fromkeys(gone) if (*at, name) not in self.places]
            shown = "tasks" if at[0] == "tasks" else _dotted(at)  # only an only task changes its kind
            lines += [f"{shown} changed its kind: dropped {', '.join(lost)}."] if lost else []
        return [*lines, *self.notes]

    def _merge(self, below: dict[str, Any], above: Mapping[str, Any], at: Key, places: Mapping[Key, Location]) -> None:
        self._make_room(below, above, at, places)
        if at == ("model", "new"):
            self._require_free_sizes(below, above, places)
        for name, value in above.items():
            here = (*at, name)
            if here == ("tasks",) and isinstance(value, dict):
                self._merge_task(below, value, places)
            elif isinstance(value, dict) and isinstance(below.get(name), dict):
                self.places[here] = places[here]
                self._merge(below[name], value, here, places)
            else:
                if name in below and isinstance(value, dict) != isinstance(below[name], dict):
                    self.covered[here] = below[name]
                self._forget(here)
                below[name] = value
                self.places |= {key: place for key, place in places.items() if key[: len(here)] == here}

    def _merge_task(self, below: dict[str, Any], value: dict[str, Any], places: Mapping[Key, Location]) -> None:
        """`tasks` as a mapping changes the one entry there is; a name or a list would replace all entries."""
        entries = below.setdefault("tasks", [{}])
        if not isinstance(entries, list) or len(entries) != 1 or not isinstance(entries[0], dict):
            at = f"{places['tasks',].text}: tasks.{next(iter(value), '')}"
            raise UserError(f"{at} needs exactly one task; write the list of all tasks.")
        moved = {("tasks", 0, *key[1:]): place for key, place in places.items() if key[:1] == ("tasks",)}
        self.places.setdefault(("tasks",), places["tasks",])
        self.places[("tasks", 0)] = moved[("tasks", 0)]
        self._merge(entries[0], value, ("tasks", 0), moved)

    def _make_room(
        self, below: dict[str, Any], above: Mapping[str, Any], at: Key, places: Mapping[Key, Location]
    ) -> None:
        """Drop keys of the old kind when the kind changes, because the new kind does not know them."""
        gone: list[str] = []
        if at in (("method",), ("mix",), ("weighting",)) and _changed(below, above):
            gone = list(below)
        elif len(at) == 2 and at[0] == "tasks" and _changed(below, above):
            gone = [name for name in below if name not in Entry.model_fields]
        elif at == ("model",):
            gone = [
                old for old, new in (("name", "new"), ("new", "name")) if above.get(new) is not None and old in below
            ]
            # The vocabulary of a new encoder does not fit weights that bring their own, unless both are from one hand.
            if "new" in gone and "tokenizer" in below and self._elsewhere(("model", "tokenizer"), places["model",]):
                gone.append("tokenizer")
        for name in gone:
            del below[name]
            self._forget((*at, name))
        lost = [name for name in gone if name not in above and name not in ("kind", "name", "new")]
        if lost:
            self.dropped[at] = [*self.dropped.get(at, []), *lost]

    def _elsewhere(self, at: Key, place: Location) -> bool:
        """Whether a value was written in another source: lines of one file and words of one command are one source."""
        return _source(self.places[at]) != _source(place)

    def _require_free_sizes(
        self, below: dict[str, Any], above: Mapping[str, Any], places: Mapping[Key, Location]
    ) -> None:
        """A size or kind over numbers of another source would be ignored, or fit nothing."""
        numbers, given = _mapping(below.get("config")), _mapping(above.get("config"))
        for key in ("size", "kind"):
            if key not in above or above[key] == below.get(key):
                continue
            location = places["model", "new", key]
            names = [name for name in numbers if name not in given and (key == "kind" or name in SIZES)]
            fixed = [name for name in names if self._elsewhere(("model", "new", "config", name), location)]
            if fixed:
                where = self.places["model", "new", "config", fixed[0]].text
                raise UserError(
                    f"{location.text}: model.new.{key}: {where} sets {', '.join(fixed)} by number, for "
                    f"{below.get(key)}; {key} would not change them. Set them too (--model.new.config.{fixed[0]} VALUE)"
                    ", or begin from a recipe without such numbers."
                )

    def _forget(self, at: Key) -> None:
        self.places = {key: place for key, place in self.places.items() if key[: len(at)] != at}


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _source(place: Location) -> str:
    """`rte.yaml:3` is of rte.yaml; `command line, --lr` of the command line."""
    return re.sub(r":\d+$", "", place.text.partition(", ")[0])


def _changed(below: Mapping[str, Any], above: Mapping[str, Any]) -> bool:
    old, new = (tree.get("kind", tree.get("name")) for tree in (below, above))
    if "kind" in below and "kind" not in above and isinstance(new, str) and not _names_task(new):
        return False  # own files get the name that their run shows
    return old is not None and new is not None and old != new


def _names_task(name: str) -> bool:
    """Whether a task of ours has this name, as far as its first word tells."""
    return name.partition("/")[0] in names("tasks")


def _dotted(key: Key) -> str:
    return ".".join(map(str, key))


def from_mapping(tree: Mapping[str, Any], place: Location) -> Layer:
    """Data handed over in Python: every key has the same place."""
    plain = _copy(tree)
    return _expand(Layer(plain, dict.fromkeys(_keys(plain, ()), place)))


def from_text(text: str, shown: str, folder: Path) -> Layer:
    """A YAML text, with the file names in `extends` relative to `folder`."""
    return _from_read(yaml.read_text(text, shown), shown, folder)


def from_source(source: str, folder: Path, above: tuple[Path, ...] = ()) -> Layer:
    """A file or `recipe:…` with everything that it extends below it."""
    if source.startswith("recipe:"):
        path, shown = recipes.path(source.removeprefix("recipe:")), source
    else:
        path = folder / source
        shown = source if not above else str(path)
    path = path.resolve()
    if path in above:
        raise UserError(f"{shown}: extends itself: {' -> '.join(p.name for p in (*above, path))}.")
    if path.suffix.lower() in _PACKED and path.is_file():
        raise UserError(f"{shown}: is compressed; unpack it and give the file inside.")
    if path.suffix.lower() in _WORKBOOKS:
        raise UserError(
            f"{shown}: workbooks are not read; save the sheet as CSV (UTF-8) and give `{Path(shown).stem}.csv`."
        )
    if looks_like_data(path):
        raise UserError(
            f"{shown}: is data, not a config. `encodery train {_with_ending(shown)}` trains on a table (csv, tsv, "
            "jsonl, Parquet), and --save-config FILE writes the resulting config."
        )
    return _from_read(yaml.read_file(path, shown), shown, path.parent, (*above, path))


_CONFIGS = (".yaml", ".yml", ".json")
_WORKBOOKS = (".xlsx", ".xls", ".ods")
_SHEETS = (*_WORKBOOKS, ".feather", ".arrow", ".pkl")
_PACKED = (".gz", ".zip", ".bz2", ".xz", ".zst", ".tar")


def _with_ending(name: str) -> str:
    return name if is_data_file(name) else f"{Path(name).stem}.csv"


def looks_like_data(path: Path) -> bool:
    """Whether a file holds rows: by its ending, else because its first lines have as many columns each."""
    suffix = path.suffix.lower()
    if suffix in _CONFIGS or not path.is_file():
        return False
    if is_data_file(path.name) or suffix in _SHEETS:
        return True
    head = path.open("rb").read(4000).decode(errors="replace").split("\n")[:3]
    counts = [{line.count(mark) for line in head if line.strip()} for mark in (",", ";", "\t")]
    return (
        len(head) > 1
        and not re.match(r"[\w.-]+:(\s|$)|[#{-]", head[0])
        and any(len(found) == 1 and min(found) > 0 for found in counts)
    )


def _from_read(read: yaml.Read, shown: str, folder: Path, above: tuple[Path, ...] = ()) -> Layer:
    if read.tree is None:
        return Layer()
    if not isinstance(read.tree, dict):
        raise UserError(
            f"{shown}:1: a config is a mapping such as `model: bert-base-uncased`. "
            "A data file needs an extension such as .csv."
        )
    places = {key: Location(f"{shown}:{line}", folder) for key, line in read.lines.items()}
    return stack(_expand(Layer(read.tree, places)), folder, above)


def stack(top: Layer, folder: Path, above: tuple[Path, ...] = ()) -> Layer:
    """The layer on everything that its `extends` names, the first named lowest."""
    extends = top.tree.pop("extends", None)
    place = top.places.pop(("extends",), None)
    sources = [extends] if isinstance(extends, str) else extends or []
    if not isinstance(sources, list) or not all(isinstance(source, str) for source in sources):
        raise UserError(f"{place.text if place else ''}: extends: expected a file, recipe:name, or a list of these.")
    stacked = Layer()
    for source in sources:
        stacked.lay(from_source(source, folder, above))
    stacked.lay(top)
    return stacked


def with_overrides(layer: Layer, overrides: Sequence[str]) -> Layer:
    """The layer with what the command line says on top."""
    for above in from_overrides(overrides, Location("command line", Path.cwd())):
        layer.lay(above)
    return layer


def from_overrides(words: Sequence[str], location: Location) -> Iterator[Layer]:
    """One layer for each override on the command line, in their order; `tasks` itself goes below its own keys."""
    for key, text in sorted(pairs(list(words)), key=lambda pair: pair[0] != "tasks"):
        try:
            tree = yaml.value(text)
        except UserError as error:
            raise UserError(f"{location.text}: {key}: {error}") from None
        for name in reversed(key.split(".")):
            tree = {name: tree}
        yield from_mapping(tree, location)


def pairs(words: list[str]) -> list[tuple[str, str]]:
    """Key and text of each override, in the three styles that people write them."""
    given: list[tuple[str, str | None]] = []
    while words:
        word = words.pop(0)
        key, equals, text = word.removeprefix("--").partition("=")
        if not _KEY.fullmatch(key) or (word[:2] != "--" and not equals):
            raise UserError(f"command line: '{word}' is not an override; {_ANY_STYLE}.")
        has_value = bool(words) and not words[0].startswith("--")
        given.append((key, text if equals else words.pop(0) if has_value else None))
    settings = [(key, text) for key, text in given if text is not None]
    if len(settings) < len(given):
        sentences = dict.fromkeys(filter(None, (_wrong(key, bare=text is None) for key, text in given)))
        raise UserError("\n".join(f"command line: {one}" + "." * (one[-1] != "?") for one in sentences))
    return settings


def _wrong(key: str, *, bare: bool) -> str | None:
    """What is wrong with a flag: a missing value, or that another program has it; one error names all of them."""
    instead = instead_of(key, bare=bare)
    if instead:
        return f"--{key} is not a setting; {instead}"
    return f"--{key} needs a value; {_ANY_STYLE}" if bare else None


def _expand(layer: Layer) -> Layer:
    """Short forms: `model: x`, `method: x`, `tasks: x`, `seed: 3` become what they stand for."""
    tree, places = layer.tree, layer.places
    for section, key in (("model", "name"), ("method", "kind"), ("mix", "kind"), ("weighting", "kind")):
        if isinstance(tree.get(section), str):
            tree[section] = {key: tree[section]}
            places[section, key] = places[section,]
    seed = tree.get("seed")
    if isinstance(seed, int) and not isinstance(seed, bool):
        tree["seed"] = {"init": seed, "data": seed}
        places["seed", "init"] = places["seed", "data"] = places["seed",]
    if isinstance(pool := tree.get("pool"), str):  # of `select`
        key = _names_by(pool)
        tree["pool"] = {key: pool}
        places["pool", key] = places["pool",]
    if isinstance(tree.get("tasks"), str):
        tree["tasks"] = [tree["tasks"]]
        places["tasks", 0] = places["tasks",]
    if isinstance(tree.get("tasks"), list):
        tree["tasks"] = [_entry(entry, i, places) for i, entry in enumerate(tree["tasks"])]
    return layer


def _entry(entry: Any, index: int, places: dict[Key, Location]) -> Any:
    if not isinstance(entry, str):
        return entry
    if entry.startswith("mtdnn:"):  # mtdnn:PATH#TASK
        path, _, task = entry.removeprefix("mtdnn:").rpartition("#")
        fields = {"kind": "mtdnn", "definition": path, "task": task}
        places |= {("tasks", index, name): places["tasks", index] for name in fields}
        return fields
    key = _names_by(entry)
    places["tasks", index, key] = places["tasks", index]
    return {key: entry}


def _names_by(word: str) -> str:
    """The key of a task that a single word means."""
    return "kind" if ".py:" in word else "file" if is_data_file(word) else "name"


def task_word(entry: Mapping[str, Any]) -> str | None:
    """What an entry of `tasks` trains on: a task of ours or a file; a name of one's own only says what it is called."""
    name = entry.get("name")
    called = not isinstance(name, str) or name.startswith("table/") or not (is_data_file(name) or _names_task(name))
    words = (None if called or "kind" in entry else name, entry.get("file"), entry.get("train"), entry.get("kind"))
    return next((word for word in words if isinstance(word, str)), None)


def is_data_file(name: str) -> bool:
    """Whether a word names a file of rows, whose columns are then recognised; no task is called like this."""
    return name.lower().endswith(DATA_FILES)


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _copy(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_copy(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def _keys(value: Any, at: Key) -> Iterator[Key]:
    yield at
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from _keys(item, (*at, key))


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
