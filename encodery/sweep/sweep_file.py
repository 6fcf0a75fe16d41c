"""The keys of a sweep file: which runs, by which metric, on what, and for how long.

A config is a sweep of one run: settings at the top of the file lie on its base, and grid, seeds and the rest multiply.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from encodery.config.layers import Layer, Location
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
    """Where the runs of a sweep run."""

    devices: str = Field(default="all", pattern=r"^(all|cpu(:[1-9][0-9]*)?|[A-Za-z0-9:-]+(,[A-Za-z0-9:-]+)*)$")
    """all: every GPU that is visible, else the CPU; cuda: every GPU, and an error without one; `0,1` or UUIDs: these
    GPUs; `cpu:2`: two runs at once on CPU."""
    per_run: float = Field(default=1, gt=0)
    """Devices of one run: 2 takes two whole ones, 0.5 lets two runs share one."""
    runs_per_device: int = Field(default=1, ge=1)
    """Runs at once on a device."""
    threads: int | Literal["auto"] = "auto"
    """CPU threads of a run; auto: the cores divided by the runs at once, on a cluster the CPUs that a job asks for."""
    min_free_memory: str | None = None
    """A GPU with less free memory than this, such as 4GB, gets no new run."""

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
    """When a run is given up, and when it is tried again."""

    timeout: str | None = None
    """Longest time of one attempt, such as 2h; then it is asked to stop, and killed after the grace."""
    retries: int = Field(default=1, ge=0)
    """Further attempts after a failure."""
    retry_on: list[Literal["oom", "crash", "timeout"]] = ["oom", "crash"]
    """Which endings are tried again. A wrong setting never is."""
    on_oom: Literal["halve_token_budget", "fail"] = "halve_token_budget"
    """After a run was out of memory: half of train.token_budget (smaller micro-batches, the same gradient), or fail."""
    grace: str = "30s"
    """Time between the request to stop and the kill."""

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
    """Which runs: one base, and what multiplies."""

    base: str | list[str] = []
    """Config files or recipe:NAME that all runs start from; `extends` is the same."""
    extends: str | list[str] = []
    """As base."""
    fixed: dict[str, Any] = {}
    """Settings of all runs by dotted key; settings may also be at the top of the file, as in a config."""
    grid: dict[str, list[Any] | str] = {}
    """Dotted key to its values: every combination is a run. [1, 2], range(1, 6, 2), log(1e-5, 1e-3, 5), linspace(…)."""
    zip: list[dict[str, Any]] = []
    """Each line sets several keys at once; multiplies with grid."""
    variants: dict[str, dict[str, Any]] = {}
    """Name to settings: blocks of runs, at least two, each multiplied by grid and zip, which it overrules. A variant
    may have its own extends (it takes the place of base), grid and zip; {} is the block unchanged."""
    exclude: list[dict[str, Any]] = []
    """Runs that match all keys of an entry are left out; `variant` is a key too."""
    seeds: int | list[int] | str | None = None
    """[1, 2, 3], range(1, 4), or how many; default: the base's one seed."""

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
    """A part of a sweep that may wait for another."""

    needs: str | list[str] = []
    """Stages that must be done before. `model: stage:NAME` (or model.init_from) is then every run of that stage."""

    @property
    def before(self) -> list[str]:
        """The stages that this one needs."""
        return [self.needs] if isinstance(self.needs, str) else list(self.needs)


class Search(Options):
    """How the points are chosen."""

    kind: Literal["grid", "random", "tpe"] = "grid"
    """grid: all; random: n draws (times grid, if there is one); tpe: n trials that learn from each other (Optuna)."""
    n: int = Field(default=20, ge=1)
    """Points to try, each with all seeds."""
    space: dict[str, list[Any] | str] = {}
    """Dotted key to loguniform(a, b), uniform(a, b), int(a, b), choice(a, b, …) or a list."""
    seed: int = Field(default=0, ge=0)
    """Randomness of the draws."""
    startup: int = Field(default=10, ge=0)
    """tpe: this many trials are drawn at random first."""

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
    """The number by which runs are compared."""

    name: str | None = None
    """Such as accuracy; default: the task's main metric."""
    mode: Literal["auto", "max", "min"] = "auto"
    """Which is better; auto: as the metric has it, so the lowest loss and the highest accuracy."""
    at: str = Field(default="last", pattern=r"^(last|best|step:[1-9][0-9]*)$")
    """last: the score that the run reports; best: of all evaluations during training; step:N: at that step."""
    split: str | None = None
    """Split that is scored; default: the run's first."""

    def looks_for(self, name: str) -> Literal["max", "min"]:
        """Which values of this metric are the better ones."""
        return direction(name, "metric.name") if self.mode == "auto" else self.mode

    @field_validator("name")
    @classmethod
    def _without_prefix(cls, given: str | None) -> str | None:
        return given.removeprefix("eval.") if given else given


class EarlyStop(Options):
    """Which running runs are not worth going on (through Optuna). Runs are compared at equal steps only."""

    rule: Literal["median", "asha"]
    """median: worse than the median of the finished runs at the same step; asha: successive halving."""
    after: int = Field(default=0, ge=0)
    """median: no run is stopped before this step."""
    every: int = Field(default=100, ge=1)
    """median: steps between two comparisons."""
    startup: int = Field(default=5, ge=1)
    """median: this many runs finish first."""
    eta: int = Field(default=3, ge=2)
    """asha: one of this many continues at each rung."""
    min: int = Field(default=100, ge=1)
    """asha: step of the first rung; the next are eta times later each."""
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
    """A sweep file, whole."""

    search: Search = Search()
    """grid, random or tpe."""
    metric: Metric = Metric()
    """By what `best`, a search and early stopping compare."""
    resources: Resources = Resources()
    """Where the runs run."""
    limits: Limits = Limits()
    """When a run is given up."""
    early_stop: EarlyStop | None = None
    """Which runs are ended early."""
    stages: dict[str, Stage] = {}
    """Name to block; a stage may need earlier ones. The file's own settings and base are below those of each stage."""

    @model_validator(mode="after")
    def _fits(self) -> "Sweep":
        multiplies = [name for name in ("grid", "zip", "variants") if getattr(self, name)]
        if self.search.kind == "tpe" and (multiplies or self.stages):
            raise ValueError(f"search: tpe replaces {', '.join(multiplies) or 'stages'}: use search.space")
        if self.stages and (multiplies or self.search.kind != "grid" or self.exclude or self.seeds is not None):
            raise ValueError("stages: grid, zip, variants, exclude, seeds and search belong inside the stages here")
        if self.early_stop and self.metric.name is None:
            raise ValueError("early_stop: set the metric: {name: …} that it compares")
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

    def location(self, at: Key) -> Location:
        """Where a key stands, or the nearest one above it."""
        while at and at not in self.places:
            at = at[:-1]
        return self.places.get(at) or Location(self.name, self.folder)


def read(source: str | None) -> SweepFile:
    """A sweep file, a config file, `recipe:NAME`, or nothing (settings come from the command line)."""
    if source is None or source.startswith("recipe:"):
        text = f"base: {source}\n" if source else ""
        name = as_name((source or "sweep").removeprefix("recipe:"))
        return parse(text, source or "command line", Path.cwd(), name)
    path = Path(source)
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
