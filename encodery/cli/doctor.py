"""Check this machine: versions, devices, data, caches, the hub, extras; what is missing, and what to do.

Exits with 1 if ENCODERY_DATA or GLUE_DIR does not name a folder.
"""

import argparse
import os
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from encodery.cli.parsing import Parser
from encodery.core.extras import install

if TYPE_CHECKING:
    import torch

FOLDERS = ("ENCODERY_DATA", "GLUE_DIR")
_EXTRA = re.compile(r"(?P<name>[\w.-]+).*;.*extra == ['\"](?P<extra>[\w-]+)['\"].*")


def arguments(parser: Parser) -> None:
    parser.examples("encodery doctor")


def run(args: argparse.Namespace, rest: list[str]) -> int:
    rows = [*_versions(), *_devices(), *_places(), *_network(), *_extras()]
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:{width}}  {value}")
    wrong = [name for name in FOLDERS if not _usable(os.environ.get(name))]
    for name in wrong:
        print(f"{name}: {os.environ[name]} is not a folder; correct it, or unset it to use the hub", file=sys.stderr)
    args.next = "encodery train reviews.csv  # or encodery demo"
    return 1 if wrong else 0


def _usable(folder: str | None) -> bool:
    """Whether a folder is there, or none is named."""
    return not folder or Path(folder).expanduser().is_dir()


def _versions() -> list[tuple[str, str]]:
    from encodery.core.environment import environment

    found = environment()
    return [("python", str(found["python"])), *((k, v) for k, v in found["packages"].items())]


def _devices() -> list[tuple[str, str]]:
    import torch

    from encodery.inference.open_model import cpu_multiplies_bf16

    faster = "; multiplies bf16 itself: try --train.precision bf16" if cpu_multiplies_bf16() else ""
    rows = [("cpu", f"{os.cpu_count()} cores, torch uses {torch.get_num_threads()} threads{faster}")]
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if accelerator is None:
        return [*rows, ("accelerator", "none: training runs on the CPU in fp32"), *_attention(torch.device("cpu"))]
    names = f"{torch.accelerator.device_count()} × {accelerator.type}"
    if accelerator.type == "cuda":
        names += f" ({torch.cuda.get_device_name()}, bf16: {torch.cuda.is_bf16_supported()})"
    return [*rows, ("accelerator", names), *_attention(torch.device(accelerator.type))]


def _attention(device: "torch.device") -> list[tuple[str, str]]:
    """Which back ends compute attention of the packed layout here, with heads of the usual 64 numbers."""
    import torch

    from encodery.models.packed import Call, capability_of, choose

    if device.type != "cuda":
        return [("attention", "groups: sequences of similar length, padded to each other")]
    half = torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    plain = Call(device.type, capability_of(device), half, 64)
    asked = {"half precision": plain, "with dropout": replace(plain, dropout=True)}
    asked |= {"with a window": replace(plain, window=True), "fp32": replace(plain, dtype=torch.float32)}
    return [("attention", ", ".join(f"{choose(call).backend} ({name})" for name, call in asked.items()))]


def _places() -> list[tuple[str, str]]:
    from encodery.core.files import cache_root

    rows = []
    for name in FOLDERS:
        value = os.environ.get(name)
        there = "" if _usable(value) else " (no such folder)"
        rows.append((name, f"{value}{there}" if value else "not set"))
    cache = cache_root()
    size = sum(f.stat().st_size for f in cache.rglob("*") if f.is_file()) if cache.is_dir() else 0
    rows.append(("cache", f"{cache} ({size / 1e6:,.0f} MB)"))
    return [*rows, ("disk", f"{shutil.disk_usage(Path.cwd()).free / 1e9:,.1f} GB free here")]


def _network() -> list[tuple[str, str]]:
    from encodery.errors import UserError
    from encodery.models.locate import require_hub

    try:
        require_hub("the hub")
    except UserError as error:
        return [("hub", f"not reachable: give folders for models and data ({str(error).split('(')[-1].split(')')[0]})")]
    return [("hub", "reachable")]


def _extras() -> list[tuple[str, str]]:
    """Every extra of the installed package, and which of its packages are missing."""
    from importlib.metadata import PackageNotFoundError, requires, version

    try:
        wanted = [_EXTRA.fullmatch(line) for line in requires("encodery") or ()]
    except PackageNotFoundError:
        return [("extras", "unknown: this copy of encodery is not installed (pip install .)")]
    packages: dict[str, list[str]] = {}
    for match in filter(None, wanted):
        packages.setdefault(match["extra"], []).append(match["name"])

    def here(name: str) -> bool:
        try:
            return bool(version(name))
        except PackageNotFoundError:
            return False

    rows = []
    for extra, names in packages.items():
        missing = [name for name in names if not here(name)]
        how = f"missing {', '.join(missing)}: {install(extra)}"
        rows.append((f"extra {extra}", how if missing else f"installed ({', '.join(names)})"))
    return rows
