"""Reads a sweep file, with the place of every key, so that an error can name file, line and key."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from encodery import yaml_reader
from encodery.check import options
from encodery.errors import UserError
from encodery.layers import Layer, Place
from encodery.paths import as_name, safe_name
from encodery.schema import Config
from encodery.sweep import space
from encodery.sweep.file import Block, Sweep
from encodery.yaml_reader import Key


@dataclass(frozen=True)
class SweepFile:
    """A sweep as it was written: checked, and with the place of every key."""

    sweep: Sweep
    places: Mapping[Key, Place]
    folder: Path  # where its relative paths start
    name: str
    text: str  # what goes into the sweep's folder

    def place(self, at: Key) -> Place:
        """Where a key stands, or the nearest one above it."""
        while at and at not in self.places:
            at = at[:-1]
        return self.places.get(at) or Place(self.name, self.folder)


def read(source: str | None) -> SweepFile:
    """A sweep file, a config file, `recipe:NAME`, or nothing (settings come from the command line)."""
    if source is None or source.startswith("recipe:"):
        text = f"base: {source}\n" if source else ""
        name = as_name((source or "sweep").removeprefix("recipe:"))
        return parse(text, source or "command line", Path.cwd(), name)
    path = Path(source)
    yaml_reader.read_file(path)  # its errors name the file
    return parse(path.read_text(encoding="utf-8-sig"), source, path.resolve().parent, as_name(path.stem))


def parse(text: str, shown: str, folder: Path, name: str) -> SweepFile:
    """A sweep from YAML text; `shown` is what messages call it."""
    found = yaml_reader.read_text(text, shown)
    tree = {} if found.tree is None else found.tree
    if not isinstance(tree, dict):
        raise UserError(f"{shown}:1: a sweep is a mapping such as `base: rte.yaml`.")
    places = {key: Place(f"{shown}:{line}", folder) for key, line in found.lines.items()}
    tree = _fold(tree, (), places)
    for key, place in list(places.items()):  # `search: {tpe: {…}}` is {kind: tpe, …}
        if key[0:1] in (("search",), ("early_stop",)) and len(key) > 2 and key[1] != "space":
            places.setdefault((key[0], *key[2:]), place)
    stages = tree.get("stages")
    if isinstance(stages, dict):
        tree["stages"] = {n: _fold(s, ("stages", n), places) if isinstance(s, dict) else s for n, s in stages.items()}
        for stage in stages:
            safe_name(stage)
    sweep = options(Sweep, Layer(tree, places))
    _check_calls(sweep, places, shown)
    return SweepFile(sweep, places, folder, name, text)


def _fold(tree: Mapping[str, Any], at: Key, places: dict[Key, Place]) -> dict[str, Any]:
    """Settings beside the keys of a sweep become `fixed`, below what stands there already."""
    own = {key: value for key, value in tree.items() if key.partition(".")[0] in Config.model_fields}
    rest = {key: value for key, value in tree.items() if key not in own}
    if own and isinstance(rest.get("fixed", {}), dict):
        rest["fixed"] = own | rest.get("fixed", {})
        for key, place in list(places.items()):
            if key[: len(at)] == at and len(key) > len(at) and key[len(at)] in own:
                places.setdefault((*at, "fixed", *key[len(at) :]), place)
    return rest


def _check_calls(sweep: Sweep, places: Mapping[Key, Place], shown: str) -> None:
    """Every axis is legal; all errors at once."""
    errors = []
    blocks: list[tuple[Key, Block]] = [((), sweep), *((("stages", name), s) for name, s in sweep.stages.items())]
    axes: list[tuple[Key, Any, Any]] = [
        ((*at, "grid", key), given, space.values) for at, block in blocks for key, given in block.grid.items()
    ]
    axes += [(("search", "space", key), given, space.draw) for key, given in sweep.search.space.items()]
    axes += [((*at, "seeds"), block.seeds, space.values) for at, block in blocks if isinstance(block.seeds, str)]
    for at, given, reader in axes:
        try:
            reader(given)
        except ValueError as error:
            errors.append(f"{places[at].text if at in places else shown}: {'.'.join(map(str, at))}: {error}.")
    if errors:
        raise UserError("\n".join(errors))
