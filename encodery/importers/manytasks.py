"""Reads ManyTasks files (`search.json`): JSON with comments, `==base==` and `==more==`, `$<…>` and `${…}`.

A sweep file comes out where the program is ours, or ParaGen's with settings that we know; a list of commands otherwise.
"""

import difflib
import glob
import itertools
import json
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from encodery import recipes
from encodery.core import yaml
from encodery.core.text import counted
from encodery.errors import UserError
from encodery.importers import paragen

_ON, _OFF = "$_ON_", "$_OFF_"
_CALL = re.compile(r"\$<([^>]*)>")
_REFERENCE = re.compile(r"\$\{([^}]+)\}")
_RANGE = re.compile(r"(-?\d+):(-?\d+)(?::(-?\d+))?(?:;(\d+))?")
_PYTHON_RANGE = re.compile(r"range\((-?\d+)(?:,\s*(-?\d+))?(?:,\s*(-?\d+))?\)")
_SLICE = re.compile(r"([^\[]+)\[(-?\d*):(-?\d*)\]")
_TABLE = re.compile(r"([^\[]+)\[(.+)\]")
_SETTING = re.compile(r"[A-Za-z_][\w-]*(\.[\w-]+)*")

Word = tuple[str, str]  # key (`--lr`, or `__1` for a bare word) and value
Block = list[tuple[str, list[str]]]  # the values that each key may have


@dataclass(frozen=True)
class Imported:
    """What a file comes to: a sweep of ours as YAML text, or commands; and what a person should know."""

    sweep: str | None
    commands: list[str]
    notes: list[str]


def read(path: Path) -> Imported:
    tree = _json(path)
    executor, configs = tree.get("executor"), tree.get("configs")
    if not isinstance(executor, str) or not isinstance(configs, dict) or not isinstance(configs.get("==base=="), list):
        raise UserError(f"{path}: not a ManyTasks file; it needs executor and configs with ==base== and ==more==.")
    more = configs.get("==more==", [])
    if not isinstance(more, list) or not all(isinstance(block, list) for block in more):
        raise UserError(f"{path}: ==more== is a list of lists.")
    blocks = [_parse(configs["==base=="], "", path) + _parse(block, f"{i}.", path) for i, block in enumerate(more)]
    blocks = blocks or [_parse(configs["==base=="], "", path)]
    notes = _resource_notes(tree)
    program = shlex.split(executor)
    ours = _Ours(program, path, notes)
    if ours.is_ours and (sweep := ours.sweep(blocks)) is not None:
        return Imported(sweep, [], notes)
    return Imported(None, [_command(program, task) for task in tasks(blocks)], notes)


def tasks(blocks: Sequence[Block]) -> Iterator[list[Word]]:
    """The commands in ManyTasks' order: block by block, the last argument fastest."""
    for block in blocks:
        for values in itertools.product(*(choices for _, choices in block)):
            yield _referred([(key, value) for (key, _), value in zip(block, values, strict=True)])


def _json(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8-sig")
        tree = json.loads(_without_comments(text))
    except json.JSONDecodeError as error:
        raise UserError(f"{path}:{error.lineno}: not JSON: {error.msg}.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read ({error}).") from None
    if not isinstance(tree, dict):
        raise UserError(f"{path}:1: not a ManyTasks file, which is a mapping.")
    return tree


_TOKENS = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|#[^\n]*|/\*.*?\*/', re.DOTALL)
_TRAILING = re.compile(r'("(?:\\.|[^"\\])*")|,(\s*[\]}])', re.DOTALL)


def _without_comments(text: str) -> str:
    """Comments become spaces, so that lines keep their numbers; commas before a closing bracket go."""

    def blank(match: re.Match[str]) -> str:
        return match[0] if match[0].startswith('"') else re.sub(r"[^\n]", " ", match[0])

    return _TRAILING.sub(lambda match: match[1] or match[2], _TOKENS.sub(blank, text))


def _is_key(word: Any) -> bool:
    if not isinstance(word, str) or not word.startswith("-"):
        return False
    try:
        float(word.lstrip("-"))
        return False
    except ValueError:
        return True


def _parse(words: Sequence[Any], prefix: str, path: Path) -> Block:
    """Keys with the values that each may have; a key without a value is a flag, a value without a key is bare."""
    block: Block = []
    pending: str | None = None
    bare = itertools.count(1)
    for word in words:
        if _is_key(word):
            if pending is not None:
                block.append((pending, [_ON]))
            pending = word
            continue
        values = [str(one) for one in word] if isinstance(word, list) else _values(str(word), path)
        block.append((pending or f"__{prefix}{next(bare)}", values))
        pending = None
    return block + ([(pending, [_ON])] if pending is not None else [])


def _values(text: str, path: Path) -> list[str]:
    """`$<1:4>`, `$<a|b>`, `$<?>`, `$<files:*.py>`, `$<lines:urls.txt>`; several in one text multiply."""
    parts = _CALL.split(text)
    choices = [_enumerated(part, path) if i % 2 else [part] for i, part in enumerate(parts)]
    return ["".join(pieces) for pieces in itertools.product(*choices)]


def _enumerated(inner: str, path: Path) -> list[str]:
    inner = inner.strip()
    if inner == "?":
        return [_ON, _OFF]
    if match := _RANGE.fullmatch(inner):
        return _counted(int(match[1]), int(match[2]), int(match[3] or 1), int(match[4] or 0))
    if match := _PYTHON_RANGE.fullmatch(inner):  # of older files
        begin, end = (0, int(match[1])) if match[2] is None else (int(match[1]), int(match[2]))
        return _counted(begin, end, int(match[3] or 1), 0)
    if inner.startswith("files:"):
        pattern, _, only = inner.removeprefix("files:").partition(";")
        found = sorted(glob.glob(str(path.parent / pattern)))
        return [os.path.basename(one) if only == "nameonly" else one for one in found]
    if inner.startswith("lines:"):
        try:
            lines = (path.parent / inner.removeprefix("lines:")).read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise UserError(f"{path}: $<{inner}>: cannot be read ({error.strerror}).") from None
        return [line.strip() for line in lines if line.strip()]
    if "|" in inner:
        return inner.split("|")
    raise UserError(f"{path}: $<{inner}> is not known; Python code is not run.")


def _counted(begin: int, end: int, step: int, zeros: int) -> list[str]:
    return [str(i).zfill(zeros) for i in range(begin, end, step or 1)]


def _referred(task: list[Word]) -> list[Word]:
    """Fill in `${lr}`, `${name[1:4]}`, `${arch[lstm:1,_:0]}`, `${1}`, in the order of the arguments."""
    values: dict[str, str] = {}
    for key, value in task:
        values[key] = value
    for key, value in task:
        for _ in range(100):
            match = _REFERENCE.search(values[key])
            if match is None:
                break
            values[key] = values[key].replace(match[0], _value_of(match[1], values))
        else:
            raise UserError(f"{key} {value}: refers to itself.")
    return [(key, values[key]) for key, _ in task]


def _value_of(inner: str, values: dict[str, str]) -> str:
    if match := _SLICE.fullmatch(inner):
        whole = values[_name(match[1], values)]
        return whole[int(match[2] or 0) : int(match[3]) if match[3] else None]
    if match := _TABLE.fullmatch(inner):
        pairs = dict(pair.split(":", 1) for pair in match[2].split(",") if ":" in pair)
        value = values[_name(match[1], values)]
        if value not in pairs and "_" not in pairs:
            raise UserError(f"${{{inner}}}: has nothing for {value}.")
        return pairs.get(value, pairs.get("_", ""))
    return values[_name(inner, values)]


def _name(word: str, values: dict[str, str]) -> str:
    for name in (word, f"--{word}", f"-{word}", f"__{word}"):
        if name in values:
            return name
    near = difflib.get_close_matches(word, [name.lstrip("-") for name in values], n=1)
    raise UserError(f"${{{word}}}: there is no such argument{f'; did you mean {near[0]}?' if near else '.'}")


def _command(program: Sequence[str], task: Sequence[Word]) -> str:
    """A shell line; every word is quoted where that is needed."""
    words = list(program)
    for key, value in task:
        if value == _OFF:
            continue
        words += [] if key.startswith("__") else [key]
        words += [] if value == _ON else [value]
    return shlex.join(words)


def _resource_notes(tree: dict[str, Any]) -> list[str]:
    cuda, at_once = tree.get("cuda"), tree.get("concurrency")
    if isinstance(cuda, list) and cuda not in ([], [-1]):
        devices = ",".join(map(str, cuda))
    else:
        devices = {"ALL": "all", "NO": "cpu", "-1": "cpu"}.get(str(cuda), "all")
    return [f"cuda {json.dumps(cuda)} and concurrency {json.dumps(at_once)}: run it with --devices {devices}."]


@dataclass(frozen=True)
class _Ours:
    """Commands that we know as settings of ours."""

    program: list[str]
    path: Path
    notes: list[str]

    @property
    def is_ours(self) -> bool:
        """Whether the program is encodery itself or ParaGen."""
        return self.program == ["paragen-run"] or self.program[-2:] == ["encodery", "train"]

    def sweep(self, blocks: Sequence[Block]) -> str | None:
        """The sweep file as text, or None, with a note, where something has no counterpart."""
        runs = [self._settings(task) for task in tasks(blocks)]
        if any(run is None for run in runs):
            return None
        kept = [run for run in runs if run is not None]
        fixed = {key: value for key, value in kept[0].items() if all(run.get(key) == value for run in kept)}
        varying = [{key: value for key, value in run.items() if key not in fixed} for run in kept]
        tree: dict[str, Any] = {"base": fixed.pop("base")} if "base" in fixed else {}
        tree |= {"fixed": fixed} if fixed else {}
        text = yaml.write(tree | _multiplied(varying))
        return f"# Imported from {self.path.name} (ManyTasks): {counted(len(kept), 'run')}.\n{text}"

    def _settings(self, task: Sequence[Word]) -> dict[str, Any] | None:
        by_key: dict[str, Any] = {}
        for key, value in task:
            try:
                name, text = self._ours(key, value)
            except UserError as error:
                self._note(f"{key}: {error} So the commands are kept as they are.")
                return None
            by_key[name] = self._base(value) if name == "base" else yaml.value(text)
        return None if by_key.get("base", "") is None else by_key

    def _ours(self, key: str, value: str) -> tuple[str, str]:
        """Our name of an argument, and its value; `base` for a config."""
        name, of_paragen = key.lstrip("-"), self.program == ["paragen-run"]
        if name == "config" if of_paragen else key.startswith("__"):
            return "base", value
        ours = paragen.translate(name, value)
        if (
            value in (_ON, _OFF)
            or not key.startswith("--")
            or not _SETTING.fullmatch(name)
            or bool(ours.note) != of_paragen
        ):
            raise UserError("has no counterpart in an encodery sweep.")
        return ours.key, ours.text

    def _base(self, value: str) -> str | None:
        """ParaGen's config files have a form of their own; where we have the same as a recipe, that is taken."""
        if self.program != ["paragen-run"]:
            return value
        name = f"freelb/paragen/{Path(value).stem.lower()}"
        if name not in recipes.names():
            self._note(f"{value} is in ParaGen's own form and is not a recipe here: the commands are kept as they are.")
            return None
        self._note(f"{value} became recipe:{name}; ParaGen's names became ours, such as method.adv_lr.")
        return f"recipe:{name}"

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def _multiplied(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Runs as grid × zip where they are such a product; else as lines of zip, in a variant for each set of keys."""
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for run in runs:
        groups.setdefault(tuple(run), []).append(run)
    if len(groups) > 1:
        return {"variants": {f"block-{i}": {"zip": lines} for i, lines in enumerate(groups.values(), 1)}}
    keys, (lines,) = next(iter(groups)), groups.values()
    if not keys:
        return {}
    values = {key: list({json.dumps(line[key]): line[key] for line in lines}.values()) for key in keys}
    free = [key for key in keys if _is_factor(key, lines, values[key])]
    grid = {key: values[key] for key in free}
    rest = {json.dumps(joint): joint for line in lines if (joint := {k: v for k, v in line.items() if k not in free})}
    if len(rest) <= 1 and len(free) == len(keys):
        return {"grid": grid}
    return ({"grid": grid} if grid else {}) | {"zip": list(rest.values())}


def _is_factor(key: str, lines: Sequence[dict[str, Any]], values: Sequence[Any]) -> bool:
    """Whether every value of the key goes with every choice of the others."""
    others = {json.dumps({k: v for k, v in line.items() if k != key}) for line in lines}
    return len({json.dumps(line) for line in lines}) == len(others) * len(values)
