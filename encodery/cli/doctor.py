"""Look at this machine: versions, devices, data, caches, the hub; says what is missing and what to do."""

import argparse
import os
import shutil
from pathlib import Path

from encodery.cli.parsing import Parser


def arguments(parser: Parser) -> None:
    """Nothing to say."""
    parser.examples("encodery doctor")


def run(args: argparse.Namespace, rest: list[str]) -> int:
    """Print one line per thing looked at."""
    rows = [*_versions(), *_devices(), *_places(), *_network(), *_extras()]
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:{width}}  {value}")
    return 0


def _versions() -> list[tuple[str, str]]:
    from encodery.environment import environment

    found = environment()
    return [("python", str(found["python"])), *((k, v) for k, v in found["packages"].items())]


def _devices() -> list[tuple[str, str]]:
    import torch

    rows = [("cpu", f"{os.cpu_count()} cores, torch uses {torch.get_num_threads()} threads")]
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if accelerator is None:
        return [*rows, ("accelerator", "none: training runs on the CPU in fp32")]
    names = f"{torch.accelerator.device_count()} × {accelerator.type}"
    if accelerator.type == "cuda":
        names += f" ({torch.cuda.get_device_name()}, bf16: {torch.cuda.is_bf16_supported()})"
    return [*rows, ("accelerator", names)]


def _places() -> list[tuple[str, str]]:
    from encodery.files import cache_root

    rows = []
    for name in ("ENCODERY_DATA", "GLUE_DIR"):
        value = os.environ.get(name)
        there = "" if not value or Path(value).is_dir() else " (no such folder)"
        rows.append((name, f"{value}{there}" if value else "not set"))
    cache = cache_root()
    size = sum(f.stat().st_size for f in cache.rglob("*") if f.is_file()) if cache.is_dir() else 0
    rows.append(("cache", f"{cache} ({size / 1e6:,.0f} MB)"))
    return [*rows, ("disk", f"{shutil.disk_usage(Path.cwd()).free / 1e9:,.1f} GB free here")]


def _network() -> list[tuple[str, str]]:
    from encodery.errors import UserError
    from encodery.models.hub import require_hub

    try:
        require_hub("the hub")
    except UserError as error:
        return [("hub", f"not reachable: give folders for models and data ({str(error).split('(')[-1].split(')')[0]})")]
    return [("hub", "reachable")]


def _extras() -> list[tuple[str, str]]:
    from importlib.util import find_spec

    return [("extra lora", "peft is installed" if find_spec("peft") else "pip install 'encodery[lora]'")]
