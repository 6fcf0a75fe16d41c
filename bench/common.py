"""What the bench scripts share: options, the things that are measured, tables, JSON."""

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results"
TASKS = ("glue/rte", "glue/mrpc", "glue/sst2", "nli/sick")
MODEL = "models/all-MiniLM-L6-v2-fp16"
# Rows, mean length and spread (of the logarithm) of the synthetic stand-ins, after the real sets.
SHAPES = {
    "glue/rte": (2490, 66, 0.45), "glue/mrpc": (3668, 53, 0.24),
    "glue/sst2": (20000, 13.3, 0.65), "nli/sick": (4439, 22.6, 0.28),
}  # fmt: skip
MINILM = {"num_hidden_layers": 6, "hidden_size": 384, "num_attention_heads": 12, "intermediate_size": 1536}


def options(about: str, **defaults: Any) -> argparse.ArgumentParser:
    """The command line that all scripts have."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--rounds", type=int, default=defaults.get("rounds", 5), help="interleaved rounds")
    parser.add_argument("--steps", type=int, default=defaults.get("steps", 8), help="steps counted in each round")
    known = defaults.get("choices", TASKS)
    parser.add_argument("--tasks", nargs="+", default=list(defaults.get("tasks", TASKS)), choices=known)
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of every side")
    parser.add_argument("--model", type=Path, default=None, help=f"encoder folder; default $ENCODERY_DATA/{MODEL}")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="cpu: for a busy machine, one thread")
    return parser


def find_model(given: Path | None) -> Path | None:
    """The encoder folder, or None: then everything is synthetic, and the table says so."""
    if given:
        return given
    data = os.environ.get("ENCODERY_DATA")
    folder = Path(data) / MODEL if data else None
    return folder if folder and folder.is_dir() else None


def clock(kind: str) -> Callable[[], float]:
    """Wall seconds, or the CPU seconds of all threads of this process."""
    return time.process_time if kind == "cpu" else time.perf_counter


def run_config(model: Path | None, task: str, **train: Any) -> dict[str, Any]:
    """A config of a training run on the task, or on its synthetic stand-in."""
    options = {"batch_size": 32, "max_length": 128, "evaluate": "never", "precision": "fp32", **train}
    if model:
        return {"model": str(model), "tasks": [task], "train": options, "device": "cpu"}
    folder = Path(tempfile.mkdtemp(prefix="encodery-bench-"))
    vocab = synthetic(folder, *SHAPES[task])
    new = {"kind": "bert", "config": MINILM}
    entry = {"kind": "table", "train": str(folder / "train.jsonl"), "name": task.replace("/", "-")}
    entry["dev"] = entry["train"]
    model_options = {"new": new, "tokenizer": str(vocab)}
    return {"model": model_options, "tasks": [entry], "train": options, "device": "cpu"}


def synthetic(folder: Path, rows: int, mean: float, spread: float) -> Path:
    """Random words in texts whose lengths are log-normal; returns the vocabulary."""
    rng = np.random.default_rng(1)
    lengths = np.exp(rng.normal(np.log(mean) - spread**2 / 2, spread, rows)).round().clip(3, 128).astype(int)
    with open(folder / "train.jsonl", "w") as out:
        for n in lengths:
            text = " ".join(f"w{w}" for w in rng.integers(0, 30000, n - 2))
            out.write(json.dumps({"text": text, "label": str(n % 2)}) + "\n")
    vocab = folder / "vocab.txt"
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocab.write_text("\n".join([*special, *(f"w{i}" for i in range(30517))]) + "\n")
    return vocab


@dataclass(frozen=True)
class Spread:
    """The median of several rounds and their range."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Of at least one value."""
        return cls(statistics.median(values), min(values), max(values))

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f}-{self.high:.2f})"


def show(title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """A plain table."""
    cells = [
        [str(k) for k in rows[0]],
        *([f"{v:.3g}" if isinstance(v, float) else str(v) for v in r.values()] for r in rows),
    ]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    print(f"\n{title}")
    for row in cells:
        print("  " + "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip())


def write(name: str, args: argparse.Namespace, data: Mapping[str, Any]) -> None:
    """The figures as JSON, with what they depend on."""
    import torch
    import transformers

    path = getattr(args, "out", None) or RESULTS / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    about = {"torch": torch.__version__, "transformers": transformers.__version__, "machine": platform.machine()}
    about |= {"cores": os.cpu_count(), "load": os.getloadavg(), "options": {k: str(v) for k, v in vars(args).items()}}
    path.write_text(json.dumps({"about": about, **data}, indent=1, default=lambda x: x.__dict__) + "\n")
    print(f"\nwritten: {path}")
