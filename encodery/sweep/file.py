"""The sweep file: which runs, by which metric, on what, and for how long. `plan.py` makes run specs of it."""

import re
from typing import Literal

from pydantic import Field, field_validator

from encodery.options import Options

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

    devices: str = Field(default="all", pattern=r"^(all|cpu(:[1-9][0-9]*)?|[A-Za-z0-9-]+(,[A-Za-z0-9-]+)*)$")
    """all: every GPU that is visible, else the CPU; `0,1` or UUIDs: these GPUs; `cpu:2`: two runs at once on the CPU."""
    per_run: float = Field(default=1, gt=0)
    """Devices of one run: 2 takes two whole ones, 0.5 lets two runs share one."""
    runs_per_device: int = Field(default=1, ge=1)
    """Runs at once on a device."""
    threads: int | Literal["auto"] = "auto"
    """CPU threads of a run; auto: the cores divided by the runs at once."""
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
