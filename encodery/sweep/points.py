"""Multiplies a block of a sweep out: variants × draws × grid × zip → points, each a list of settings with their places.

A variant overrules grid and zip; seeds and references to stages come later, in plan.py.
"""

import itertools
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from encodery.config.layers import Location
from encodery.core.yaml import Key
from encodery.errors import UserError
from encodery.sweep import search_space
from encodery.sweep.sweep_file import Block, Search, SweepFile

_KEY = re.compile(r"[A-Za-z_][\w-]*(\.[\w-]+)*")
_OF_VARIANT = ("extends", "grid", "zip")
# Short forms under the name that they stand for, so that `method: plain` and `method.kind: plain` are one axis.
_LONG = {"method": "method.kind", "model": "model.name"}
# What decides which other keys there are is laid first.
FIRST = ("tasks", "tasks.name", "tasks.kind", "method.kind", "model.name")


@dataclass(frozen=True)
class Setting:
    """One value for one dotted key."""

    key: str
    value: Any
    location: Location
    required: bool = False  # an error where the method has no such key, while others are left out there


@dataclass(frozen=True)
class Variant:
    """A block of runs: its own ground, settings and axes."""

    name: str | None
    sources: tuple[str, ...]  # what it extends instead of the base
    settings: tuple[Setting, ...]
    axes: tuple[tuple[tuple[Setting, ...], ...], ...]  # factors of the product; each a list of joint choices
    at: Key


def long_key(key: str, value: Any) -> str:
    """`method` with a word is method.kind."""
    return _LONG.get(key, key) if isinstance(value, str) else key


def settings(tree: Mapping[str, Any], at: Key, file: SweepFile) -> tuple[Setting, ...]:
    """Dotted keys and nested mappings alike, one setting per value; kinds first, because they decide on other keys."""
    return overlaid(list(_leaves(tree, (), at, file)))


def _leaves(tree: Mapping[str, Any], above: tuple[str, ...], at: Key, file: SweepFile) -> Iterator[Setting]:
    for name, value in tree.items():
        here, location = (*above, name), file.location((*at, *above, name))
        key = ".".join(here)
        if not _KEY.fullmatch(key):
            raise UserError(f"{location.text}: '{key}' is not a key such as optim.lr.")
        if isinstance(value, dict) and value:
            yield from _leaves(value, here, at, file)
        else:
            yield Setting(long_key(key, value), value, location)


def variants(block: Block, at: Key, file: SweepFile, search: Search | None = None) -> list[Variant]:
    """The blocks of runs, each with its factors; one without a name where none is given."""
    shared = _factors(block.grid, block.zip, at, file)
    drawn = [_drawn(search, file)] if search and search.kind == "random" else []
    if not block.variants:
        return [Variant(None, (), (), (*drawn, *shared.values()), at)]
    return [_variant(name, tree, shared, drawn, (*at, "variants", name), file) for name, tree in block.variants.items()]


Factor = tuple[tuple[Setting, ...], ...]


def _variant(
    name: str, tree: Mapping[str, Any], shared: Mapping[str, Factor], drawn: list[Factor], at: Key, file: SweepFile
) -> Variant:
    extends = tree.get("extends", [])
    sources = [extends] if isinstance(extends, str) else extends
    if not isinstance(sources, list) or not all(isinstance(source, str) for source in sources):
        place = file.location((*at, "extends")).text
        raise UserError(f"{place}: extends: expected a file, recipe:name, or a list of these.")
    grid, lines = tree.get("grid", {}), tree.get("zip", [])
    if not isinstance(grid, dict) or not isinstance(lines, list) or not all(isinstance(x, dict) for x in lines):
        raise UserError(f"{file.location(at).text}: variants.{name}: grid is a mapping and zip a list of mappings.")
    own = settings({key: value for key, value in tree.items() if key not in _OF_VARIANT}, at, file)
    factors = {**shared, **_factors(grid, lines, at, file)}
    own = tuple(replace(setting, required=True) for setting in own)
    return Variant(name, tuple(sources), own, (*drawn, *factors.values()), at)


def _factors(
    grid: Mapping[str, Any], lines: Sequence[Mapping[str, Any]], at: Key, file: SweepFile
) -> dict[str, Factor]:
    """Key → its choices; all lines of zip are one factor."""
    factors: dict[str, Factor] = {}
    for key, given in grid.items():
        location = file.location((*at, "grid", key))
        if not _KEY.fullmatch(key):
            raise UserError(f"{location.text}: grid: '{key}' is not a key such as optim.lr.")
        try:
            choices = search_space.values(given)
        except ValueError as error:
            raise UserError(f"{location.text}: grid.{key}: {error}.") from None
        factors[axis_name(key, choices)] = tuple(
            chosen(key, value, file.location((*at, "grid", key, i)) if isinstance(value, dict) else location)
            for i, value in enumerate(choices)
        )
    _check_apart(factors)
    if lines:
        joint = tuple(settings(line, (*at, "zip", i), file) for i, line in enumerate(lines))
        _check_zip(joint, factors, file.location((*at, "zip")))
        factors["zip"] = joint
    return factors


def axis_name(key: str, choices: Any) -> str:
    """`method` with words, mappings or both is the axis method.kind."""
    words = any(isinstance(value, str | dict) for value in choices) if isinstance(choices, list) else False
    return _LONG.get(key, key) if words else key


def chosen(key: str, value: Any, location: Location) -> tuple[Setting, ...]:
    """What one value of an axis sets: a mapping is laid over the config like a section, its kind first."""
    if not isinstance(value, dict) or not value:
        return (Setting(long_key(key, value), value, location),)
    if wrong := [name for name in value if not _KEY.fullmatch(str(name))]:
        raise UserError(f"{location.text}: {key}: '{wrong[0]}' is not a key such as optim.lr.")
    names = sorted(value, key=lambda name: name != "kind")
    inner = [one for name in names for one in chosen(f"{key}.{name}", value[name], location)]
    return tuple(replace(one, required=True) for one in inner)


def _check_apart(factors: Mapping[str, Factor]) -> None:
    """No key is set by two axes: by a mapping of one, and by another one of its own."""
    by_key: dict[str, str] = {}
    for name, factor in factors.items():
        for one in (one for joint in factor for one in joint):
            if by_key.setdefault(one.key, name) != name:
                raise UserError(f"{one.location.text}: grid: {one.key} is set by two axes; give it in one of them.")


def _check_zip(joint: Factor, grid: Mapping[str, Factor], location: Location) -> None:
    keys = {one.key for one in joint[0]}
    for line in joint:
        if {one.key for one in line} != keys:
            raise UserError(f"{line[0].location.text if line else location.text}: zip: every line sets the same keys.")
    both = sorted(keys & {one.key for factor in grid.values() for choice in factor for one in choice})
    if both:
        raise UserError(f"{location.text}: zip: {both[0]} is an axis of grid too; give it in one of them.")


def _drawn(search: Search, file: SweepFile) -> Factor:
    """The points of a random search: each a function of the search's seed, its number and the key."""
    return tuple(tuple(_draw(search, number, file)) for number in range(search.n))


def _draw(search: Search, number: int, file: SweepFile) -> Iterator[Setting]:
    for key, given in search.space.items():
        share = random.Random(f"{search.seed}/{number}/{key}").random()
        value = search_space.draw(given).at(share)
        yield from chosen(key, value, file.location(("search", "space", key)))


def points(variant: Variant) -> Iterator[tuple[Setting, ...]]:
    """Every combination, the last factor fastest; what the variant itself sets is not taken from the factors."""
    taken = {one.key for one in variant.settings}
    for combination in itertools.product(*variant.axes):
        yield tuple(one for joint in combination for one in joint if not _is_taken(one, taken))


def _is_taken(one: Setting, taken: set[str]) -> bool:
    """Whether a variant sets the key itself, or the kind that a mapping of the axis belongs to."""
    return one.key in taken or (one.required and f"{one.key.rpartition('.')[0]}.kind" in taken)


def overlaid(*parts: Sequence[Setting]) -> tuple[Setting, ...]:
    """Each key once, later parts win, kinds first."""
    merged = {one.key: one for part in parts for one in part}
    return tuple(sorted(merged.values(), key=lambda one: one.key not in FIRST))


def axis_keys(blocks: Sequence[Variant]) -> list[str]:
    """The keys that may vary, in the order in which they are written."""
    keys: dict[str, None] = {}
    for block in blocks:
        keys |= dict.fromkeys(one.key for factor in block.axes for joint in factor for one in joint)
    for block in blocks:
        keys |= dict.fromkeys(one.key for one in block.settings)
    return list(keys)


def seeds(block: Block, first: int) -> list[int]:
    """The seeds of every point; a number is how many, from the base's own on."""
    given = block.seeds
    if given is None:
        return [first]
    numbers = list(range(first, first + given)) if isinstance(given, int) else search_space.values(given)
    wrong = [seed for seed in numbers if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0]
    if not numbers:
        raise UserError(f"seeds: expected at least one seed, not {given}.")
    if wrong:
        raise UserError(f"seeds: expected whole numbers from 0 on, not {wrong[0]}.")
    return numbers
