"""The keys of a sweep file: which runs, by which metric, on what, and for how long.

A config is a sweep of one run: settings at the top of the file lie on its base, and grid, seeds and the rest multiply.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from encodery.config.layers import Layer, Location
from encodery.config.load import is_data
from encodery.config.schema import Config
from encodery.config.validate import options
from encodery.core import yaml
from encodery.core.files import as_name, check_name
from encodery.core.options import Options
from encodery.core.yaml import Key
from encodery.errors import UserError
from encodery.sweep import search_space
from encodery.tasks.forms.metric_table import direction

_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_BYTES = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def seconds(text: str) -> float:
    """`90s`, `30m`, `2h` or `1d` in seconds."""
    return _amount(text, _SECONDS, "a time such as 90s, 30m, 2h or 1d")


def size(text: str) -> float:
    """`4GB` or `500MB` in bytes."""
    return _amount(text, _BYTES, "a size such as 500MB or 4GB")


def _amount(text: str, units: dict[str, int], expected: str) -> float:
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([A-Za-z]*)", text.strip())
    if not match or match[2] not in units:
        raise ValueError(f"expected {expected}")
    return float(match[1]) * units[match[2]]


class Resources(Options):
    """Devices for the runs of a sweep."""

    devices: str = Field(default="all", pattern=r"^(all|cpu(:[1-9][0-9]*)?|[A-Za-z0-9:-]+(,[A-Za-z0-9:-]+)*)$")
    """all: every visible GPU, else the CPU; cuda: every GPU, or an error if there is none; `0,1` or UUIDs: these GPUs;
    `cpu:2`: two runs at once on the CPU."""
    per_run: float = Field(default=1, gt=0)
    """Devices per run: 2 gives a run two devices, 0.5 lets two runs share one."""
    runs_per_device: int = Field(default=1, ge=1)
    """Runs at once on each device."""
    threads: int | Literal["auto"] = "auto"
    """CPU threads per run. auto: the number of cores divided by the number of runs at once, or on a cluster the CPUs
    that a job requests."""
    min_free_memory: str | None = None
    """Start no run on a GPU with less free memory than this, such as 4GB."""

    @field_validator("devices", mode="before")
    @classmethod
    def _one_text(cls, given: object) -> object:
        """`0` and `[0, 1]` are what people write for `"0"` and `"0,1"`."""
        if isinstance(given, list):
            return ",".join(map(str, given))
        return str(given) if isinstance(given, int) and not isinstance(given, bool) else given

    @field_validator("per_run")
    @classmethod
    def _whole_devices(cls, given: float) -> float:
        if given > 1 and given != int(given):
            raise ValueError("expected a whole number of devices, or a part of one")
        return given

    @field_validator("threads")
    @classmethod
    def _some_threads(cls, given: int | str) -> int | str:
        if isinstance(given, int) and given < 1:
            raise ValueError("expected auto or at least 1")
        return given

    @field_validator("min_free_memory")
    @classmethod
    def _is_size(cls, given: str | None) -> str | None:
        if given is not None:
            size(given)
        return given

    @property
    def free_bytes(self) -> float:
        """`min_free_memory` in bytes."""
        return size(self.min_free_memory) if self.min_free_memory else 0.0


class Limits(Options):
    """When a run is stopped, and when it is retried."""

    timeout: str | None = None
    """Maximum time of an attempt, such as 2h. The run is then asked to stop, and killed after the grace period."""
    retries: int = Field(default=1, ge=0)
    """Number of retries after a failure."""
    retry_on: list[Literal["oom", "crash", "timeout"]] = ["oom", "crash"]
    """Which failures to retry. An invalid setting is never retried."""
    on_oom: Literal["halve_token_budget", "fail"] = "halve_token_budget"
    """When a run is out of memory: halve train.token_budget (smaller micro-batches, the same gradient), or fail."""
    grace: str = "30s"
    """Grace period between the request to stop and the kill."""

    @field_validator("timeout", "grace")
    @classmethod
    def _is_time(cls, given: str | None) -> str | None:
        if given is not None:
            seconds(given)
        return given

    @property
    def timeout_seconds(self) -> float | None:
        """`timeout` in seconds."""
        return seconds(self.timeout) if self.timeout else None

    @property
    def grace_seconds(self) -> float:
        """`grace` in seconds."""
        return seconds(self.grace)


class Block(Options):
    """Runs of a sweep: a base config and what to vary."""

    base: str | list[str] = []
    """Config files or recipe:NAME that all runs start from. `extends` means the same."""
    extends: str | list[str] = []
    """The same as base."""
    fixed: dict[str, Any] = {}
    """Settings of all runs by dotted key. Settings may also be at the top level of the file, as in a config."""
    grid: dict[str, Any] = {}  # its values are checked by search_space, which says it in one sentence
    """Maps a dotted key to its values: [1, 2], range(1, 6, 2), log(1e-5, 1e-3, 5), linspace(…). Every combination is a
    run."""
    zip: list[dict[str, Any]] = []
    """A list of entries that set several keys at once. Combined with every point of grid."""
    variants: dict[str, dict[str, Any]] = {}
    """Maps a name to settings: at least two groups of runs, each combined with grid and zip, which it overrides. A
    variant may have its own extends (which replaces base), grid and zip. {} changes nothing."""
    exclude: list[dict[str, Any]] = []
    """Leave out runs that match all keys of an entry. `variant` is a key too."""
    seeds: int | list[int] | str | None = None
    """[1, 2, 3], range(1, 4), or a number of seeds. Default: the seed of the base."""

    @field_validator("base", "extends", mode="before")
    @classmethod
    def _names(cls, given: object) -> object:
        """One sentence where pydantic has one for a text and one for a list."""
        if not isinstance(given, str | list):
            raise ValueError("expected a config file, recipe:NAME or a list of these; write settings at the top level")
        return given

    @model_validator(mode="after")
    def _one_base(self) -> "Block":
        if self.base and self.extends:
            raise ValueError("base and extends are the same: give one")
        if len(self.variants) == 1:
            name = next(iter(self.variants))
            raise ValueError(f"variants: {name} alone is what fixed is for; add `main: {{}}` for the runs without it")
        return self

    @property
    def sources(self) -> list[str]:
        """Files and recipes below this block."""
        named = self.base or self.extends
        return [named] if isinstance(named, str) else list(named)


class Stage(Block):
    """A part of a sweep that may depend on other parts."""

    needs: str | list[str] = []
    """Stages that must finish first. `model: stage:NAME` (or model.init_from) then means every run of that stage."""

    @property
    def before(self) -> list[str]:
        """The stages that this one needs."""
        return [self.needs] if isinstance(self.needs, str) else list(self.needs)


class Search(Options):
    """How points are chosen."""

    kind: Literal["grid", "random", "tpe"] = "grid"
    """grid: all points; random: n draws (for each point of grid, if there is one); tpe: n trials that learn from
    earlier ones (Optuna)."""
    n: int = Field(default=20, ge=1)
    """Number of points, each run with all seeds."""
    space: dict[str, Any] = {}  # as of grid
    """Maps a dotted key to loguniform(a, b), uniform(a, b), int(a, b), choice(a, b, …) or a list."""
    seed: int = Field(default=0, ge=0)
    """Seed of the draws."""
    startup: int = Field(default=10, ge=0)
    """tpe: number of random trials at the start."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, given: Any) -> Any:
        return _short_form(given, "kind")

    @model_validator(mode="after")
    def _some_space(self) -> "Search":
        if self.kind == "grid" and self.space:
            raise ValueError("search: a space is for random and tpe; a grid belongs under grid")
        if self.kind != "grid" and not self.space:
            raise ValueError(f"search: {self.kind} needs a space to draw from")
        return self


class Metric(Options):
    """The metric that runs are compared by."""

    name: str | None = None
    """Name of the metric, such as accuracy. Default: the task's main metric."""
    mode: Literal["auto", "max", "min"] = "auto"
    """Which values are better. auto: depends on the metric, such as low for a loss and high for accuracy."""
    at: str = Field(default="last", pattern=r"^(last|best|step:[1-9][0-9]*)$")
    """last: the final score of the run; best: the best evaluation during training; step:N: the evaluation at that
    step."""
    split: str | None = None
    """Split to compare on. Default: the run's first."""

    def looks_for(self, name: str) -> Literal["max", "min"]:
        """Which values of this metric are the better ones."""
        return direction(name, "metric.name") if self.mode == "auto" else self.mode

    @field_validator("name")
    @classmethod
    def _without_prefix(cls, given: str | None) -> str | None:
        return given.removeprefix("eval.") if given else given


class EarlyStop(Options):
    """Stops unpromising runs early (Optuna). Runs are compared at equal steps only."""

    rule: Literal["median", "asha"]
    """median: stop a run that is worse than the median of the finished runs at the same step; asha: asynchronous
    successive halving."""
    after: int = Field(default=0, ge=0)
    """median: stop no run before this step."""
    every: int = Field(default=100, ge=1)
    """median: steps between two comparisons."""
    startup: int = Field(default=5, ge=1)
    """median: stop no run before this many runs have finished."""
    eta: int = Field(default=3, ge=2)
    """asha: at each rung, one run in this many continues."""
    min: int = Field(default=100, ge=1)
    """asha: step of the first rung. Each further rung is eta times later."""
    max: int | None = Field(default=None, ge=1)
    """asha: step of the last rung."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, given: Any) -> Any:
        return _short_form(given, "rule")

    def compares_at(self, step: int) -> bool:
        """Whether runs are compared at this step."""
        if self.rule == "median":
            return step >= self.after and step % self.every == 0
        rung = self.min
        while rung < step:
            rung *= self.eta
        return rung == step and (self.max is None or step <= self.max)

    @property
    def unit(self) -> int:
        """Every step at which runs are compared is a multiple of this."""
        return self.every if self.rule == "median" else self.min


def _short_form(given: Any, key: str) -> Any:
    """`tpe` is {kind: tpe}, and {tpe: {n: 5}} is {kind: tpe, n: 5}."""
    if isinstance(given, str):
        return {key: given}
    if isinstance(given, dict) and len(given) == 1 and isinstance(inner := next(iter(given.values())), dict):
        name = next(iter(given))
        return given if name == "space" else {key: name, **inner}
    return given


class Sweep(Block):
    """A sweep file."""

    search: Search = Search()
    """grid, random or tpe."""
    metric: Metric = Metric()
    """Metric for `best`, searches and early stopping."""
    resources: Resources = Resources()
    """Devices for the runs."""
    limits: Limits = Limits()
    """Timeouts and retries."""
    early_stop: EarlyStop | None = None
    """Early stopping of unpromising runs."""
    stages: dict[str, Stage] = {}
    """Maps a name to a block of runs, which may depend on earlier stages. The settings of a stage override those of the
    file."""

    @model_validator(mode="after")
    def _fits(self) -> "Sweep":
        multiplies = [name for name in ("grid", "zip", "variants") if getattr(self, name)]
        if self.search.kind == "tpe" and (multiplies or self.stages):
            raise ValueError(f"search: tpe replaces {', '.join(multiplies) or 'stages'}: use search.space")
        if self.stages and (multiplies or self.search.kind != "grid" or self.exclude or self.seeds is not None):
            raise ValueError("stages: grid, zip, variants, exclude, seeds and search belong inside the stages here")
        return self


# Reads a sweep file, with the place of every key, so that an error can name file, line and key.


@dataclass(frozen=True)
class SweepFile:
    """A sweep as it was written: checked, and with the place of every key."""

    sweep: Sweep
    places: Mapping[Key, Location]
    folder: Path  # where its relative paths start
    name: str
    text: str  # what goes into the sweep's folder
    data: str | None = None  # the data file that was given in place of a sweep file

    def location(self, at: Key) -> Location:
        """Where a key stands, or the nearest one above it."""
        while at and at not in self.places:
            at = at[:-1]
        return self.places.get(at) or Location(self.name, self.folder)


def read(source: str | None) -> SweepFile:
    """A sweep file, a config file, `recipe:NAME`, a data file, or nothing (settings come from the command line)."""
    if source is None or source.startswith("recipe:"):
        text = f"base: {source}\n" if source else ""
        name = as_name((source or "sweep").removeprefix("recipe:"))
        return parse(text, source or "command line", Path.cwd(), name)
    path = Path(source)
    if is_data(path, Sweep.model_fields):
        return replace(parse(yaml.write({"tasks": source}), source, Path.cwd(), as_name(path.stem)), data=source)
    yaml.read_file(path)  # its errors name the file
    return parse(path.read_text(encoding="utf-8-sig"), source, path.resolve().parent, as_name(path.stem))


def parse(text: str, shown: str, folder: Path, name: str) -> SweepFile:
    """A sweep from YAML text; `shown` is what messages call it."""
    parsed = yaml.read_text(text, shown)
    tree = {} if parsed.tree is None else parsed.tree
    if not isinstance(tree, dict):
        raise UserError(f"{shown}:1: a sweep is a mapping such as `base: rte.yaml`.")
    places = {key: Location(f"{shown}:{line}", folder) for key, line in parsed.lines.items()}
    tree = _fold(tree, (), places)
    for key, place in list(places.items()):  # `search: {tpe: {…}}` is {kind: tpe, …}
        if key[0:1] in (("search",), ("early_stop",)) and len(key) > 2 and key[1] != "space":
            places.setdefault((key[0], *key[2:]), place)
    stages = tree.get("stages")
    if isinstance(stages, dict):
        tree["stages"] = {n: _fold(s, ("stages", n), places) if isinstance(s, dict) else s for n, s in stages.items()}
        for stage in stages:
            check_name(stage)
    sweep = options(Sweep, Layer(tree, places))
    _check_calls(sweep, places, shown)
    return SweepFile(sweep, places, folder, name, text)


def _fold(tree: Mapping[str, Any], at: Key, places: dict[Key, Location]) -> dict[str, Any]:
    """Settings beside the keys of a sweep become `fixed`, below what stands there already."""
    own = {key: value for key, value in tree.items() if key.partition(".")[0] in Config.model_fields}
    rest = {key: value for key, value in tree.items() if key not in own}
    if own and isinstance(rest.get("fixed", {}), dict):
        rest["fixed"] = own | rest.get("fixed", {})
        for key, place in list(places.items()):
            if key[: len(at)] == at and len(key) > len(at) and key[len(at)] in own:
                places.setdefault((*at, "fixed", *key[len(at) :]), place)
    return rest


def _check_calls(sweep: Sweep, places: Mapping[Key, Location], shown: str) -> None:
    """Every axis is legal; all errors at once."""
    errors = []
    blocks: list[tuple[Key, Block]] = [((), sweep), *((("stages", name), s) for name, s in sweep.stages.items())]
    axes: list[tuple[Key, Any, Any]] = [
        ((*at, "grid", key), given, search_space.values) for at, block in blocks for key, given in block.grid.items()
    ]
    axes += [(("search", "space", key), given, search_space.draw) for key, given in sweep.search.space.items()]
    axes += [((*at, "seeds"), block.seeds, search_space.values) for at, block in blocks if isinstance(block.seeds, str)]
    for at, given, reader in axes:
        try:
            reader(given)
        except ValueError as error:
            errors.append(f"{places[at].text if at in places else shown}: {'.'.join(map(str, at))}: {error}.")
    if errors:
        raise UserError("\n".join(errors))
