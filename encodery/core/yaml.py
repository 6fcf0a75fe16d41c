"""YAML as we allow it: version 1.2 scalars, no anchors, no tags, no repeated keys, bounded size and depth.

Every value keeps the line it stands on, so that an error can name it. Keys are always text.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from encodery.core.text import first_line
from encodery.errors import UserError

Key = tuple[str | int, ...]  # ("tasks", 0, "name")
Repeated = dict[Key, tuple[int, int]]  # key -> the lines that it is on

MAX_BYTES = 1_000_000
MAX_DEPTH = 32
# Longer numbers are nobody's hyper-parameter, and Python refuses to convert integers of thousands of digits.
MAX_DIGITS = 300

_SCALARS: list[tuple[re.Pattern[str], Callable[[str], Any]]] = [
    (re.compile(r"|~|null|Null|NULL"), lambda _: None),
    (re.compile(r"true|True|TRUE"), lambda _: True),
    (re.compile(r"false|False|FALSE"), lambda _: False),
    (re.compile(r"[-+]?[0-9]+"), int),
    (re.compile(r"0o[0-7]+"), lambda text: int(text, 8)),
    (re.compile(r"0x[0-9a-fA-F]+"), lambda text: int(text, 16)),
    (re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"), float),
    (re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"), lambda text: float(text.replace(".", "", 1))),
]
_TAG = "tag:yaml.org,2002:"


@dataclass(frozen=True)
class Read:
    """What a text says, and on which line each key and list item begins (from 1)."""

    tree: Any
    lines: dict[Key, int]


def scalar(text: str) -> Any:
    """A plain word by the rules of YAML 1.2: `2e-5` is a number; `no`, `1_000` and `1:30` are text."""
    for pattern, convert in _SCALARS:
        if pattern.fullmatch(text):
            if len(text) > MAX_DIGITS:
                raise UserError(f"A number of {len(text)} characters is too long ({text[:12]}…).")
            return convert(text)
    return text


class _Loader(yaml.SafeLoader):
    """PyYAML's reader without anchors and aliases, and with a limit on depth. Builds nodes only, never objects."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            raise _Refused("anchors and aliases (& and *) are not allowed; quote the value if it is text", event)
        if event.tag is not None:
            raise _Refused(f"tags such as {event.tag} are not allowed", event)
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise _Refused(f"nested deeper than {MAX_DEPTH} levels", event)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


# Which plain words are numbers is decided by `scalar`, so PyYAML's own 1.1 rules are taken away.
_Loader.yaml_implicit_resolvers = {}


class _Refused(Exception):
    """Legal YAML that we do not take; knows the node or event at fault."""

    def __init__(self, problem: str, at: Any) -> None:
        super().__init__(problem)
        self.line = at.start_mark.line + 1


def read_file(path: Path, shown: str | None = None, repeated: Repeated | None = None) -> Read:
    """A YAML file; `shown` is what messages call it. For files of other programs: `repeated` is filled with the keys
    that a mapping has twice, of which the last is taken; without it they are refused."""
    shown = shown or str(path)
    try:
        with open(path, "rb") as file:
            raw = file.read(MAX_BYTES + 1)
        text = raw.decode("utf-8-sig") if len(raw) <= MAX_BYTES else " " * len(raw)
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{shown}: there is no such config file.") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{shown}: byte {error.start} is not UTF-8.") from None
    except OSError as error:
        raise UserError(f"{shown}: cannot be read ({error.strerror}).") from None
    return read_text(text, shown, repeated)


def read_text(text: str, shown: str, repeated: Repeated | None = None) -> Read:
    """A YAML text with one document."""
    if len(text) > MAX_BYTES:
        raise UserError(f"{shown}: longer than {MAX_BYTES:,} bytes, which no config needs.")
    try:
        node = _Loader(text).get_single_node()
        lines: dict[Key, int] = {}
        return Read(_build(node, (), lines, repeated) if node else None, lines)
    except _Refused as refused:
        raise UserError(f"{shown}:{refused.line}: {refused}.") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f":{mark.line + 1}: column {mark.column + 1}" if mark else ""
        raise UserError(f"{shown}{place}: not YAML: {error.problem}.") from None
    except yaml.YAMLError as error:
        raise UserError(f"{shown}: not YAML: {first_line(error)}.") from None


def value(text: str) -> Any:
    """A value from the command line: flow YAML if it begins like a list, mapping or quoted text, else one plain word.

    So `a=b=c`, `1/2 epoch`, `*.txt` and `# 1` need no quotes.
    """
    text = text.strip()
    return read_text(text, "value").tree if text[:1] in ("[", "{", '"', "'") else scalar(text)


def _build(node: Any, path: Key, lines: dict[Key, int], repeated: Repeated | None) -> Any:
    lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.ScalarNode):
        return scalar(node.value) if node.style is None else node.value
    if isinstance(node, yaml.SequenceNode):
        return [_build(item, (*path, i), lines, repeated) for i, item in enumerate(node.value)]
    return _mapping(node, path, lines, repeated)


def _mapping(node: Any, path: Key, lines: dict[Key, int], repeated: Repeated | None) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, item in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise _Refused("a key must be a word", key)
        here = (*path, key.value)
        if key.value in result:
            if repeated is None:
                raise _Refused(f"the key '{key.value}' appears twice in one mapping", key)
            repeated[here] = (lines[here], key.start_mark.line + 1)
        lines[here] = key.start_mark.line + 1
        result[key.value] = _build(item, here, lines, repeated)
    return result


class _Dumper(yaml.SafeDumper):
    """Quotes what either version of YAML would take for something else than text; one line per value."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, data: str) -> yaml.Node:
    plain = isinstance(scalar(data), str) if len(data) <= MAX_DIGITS else True
    # Double quotes escape line breaks of every kind; the other styles would fold them.
    style = None if plain and data.isprintable() else "'" if data.isprintable() else '"'
    return dumper.represent_scalar(_TAG + "str", data, style=style)


def _list(dumper: yaml.SafeDumper, data: list[Any]) -> yaml.Node:
    short = not any(isinstance(item, (dict, list)) for item in data)
    return dumper.represent_sequence(_TAG + "seq", data, flow_style=short)


_Dumper.add_representer(str, _text)
_Dumper.add_representer(list, _list)


def write(tree: Mapping[str, Any]) -> str:
    """The YAML text of plain data, in the order of its keys, one line per value."""
    text: str = yaml.dump(dict(tree), Dumper=_Dumper, sort_keys=False, width=float("inf"), allow_unicode=True)
    return text
