"""What `train.precision: bf16` gains on this CPU: a step in fp32 against the same step in bf16.

Both sides are runs of their own in one process, with data, clipping and optimiser, step by step interleaved; each has
the same batches. MLM is the step of petit's pretraining. Only CPUs that multiply bf16 themselves gain (AVX512-BF16,
AMX); `encodery doctor` tells which do.
"""

import argparse
import logging
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import common
import numpy as np
import torch
from common import Spread

import encodery as en

SKIP, WORDS, LONG = 3, 2000, 1 << 20
PRECISIONS = ("fp32", "bf16")


def kinds(args: argparse.Namespace, folder: Path) -> dict[str, dict[str, Any]]:
    """The configs, by what is shown; petit's tasks without data are the synthetic stand-ins."""
    model = common.find_model(args.model)
    found = {f"MiniLM-L6, {task}": common.run_config(model, task) for task in args.tasks}
    found |= {f"petit, {task}": {**common.run_config(model, task), "model": "petit"} for task in args.tasks}
    rng = np.random.default_rng(0)
    texts = [" ".join(f"w{w}" for w in rng.integers(0, WORDS, 300)) for _ in range(200)]
    (folder / "text.txt").write_text("\n\n".join(texts) + "\n")
    corpus = {"name": "corpus", "files": str(folder / "text.txt"), "objective": {"kind": "mlm"}}
    train = {"batch_size": 64, "max_length": 128, "evaluate": "never"}
    return found | {"petit, masked words, 64 × 128": {"model": "petit", "tasks": [corpus], "train": train}}


class Side:
    """A run that is stepped on."""

    def __init__(self, config: dict[str, Any], precision: str, folder: Path):
        train = {**config["train"], "precision": precision, "max_steps": LONG, "keep_at": []}
        self.loop: Iterator[Any] = en.steps({**config, "train": train, "device": "cpu"}, folder / precision)
        self.losses = [next(self.loop).loss for _ in range(SKIP)]

    def round(self, steps: int, now: Any) -> float:
        """Seconds per step."""
        begin = now()
        for _ in range(steps):
            next(self.loop)
        return float((now() - begin) / steps)


def measure(config: dict[str, Any], args: argparse.Namespace) -> dict[str, Any]:
    """Both sides, round by round."""
    with tempfile.TemporaryDirectory() as folder:
        sides = {name: Side(config, name, Path(folder)) for name in PRECISIONS}
        now = common.clock(args.clock)
        rounds = [{name: side.round(args.steps, now) for name, side in sides.items()} for _ in range(args.rounds)]
        for side in sides.values():
            side.loop.close()  # type: ignore[attr-defined]
    # Of the first step alone: weights stored as fp16 often lie halfway between two bf16; the least update moves those.
    gap = abs(sides["fp32"].losses[0] - sides["bf16"].losses[0])
    return {
        "fp32, s": Spread.of([one["fp32"] for one in rounds]),
        "bf16, s": Spread.of([one["bf16"] for one in rounds]),
        "fp32 / bf16": Spread.of([one["fp32"] / one["bf16"] for one in rounds]),
        "difference of the first loss": gap,
    }


def main() -> None:
    """The command."""
    parser = common.options(__doc__, rounds=5, steps=3, tasks=("glue/mrpc", "glue/sst2"))
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(args.threads)
    with tempfile.TemporaryDirectory() as folder:
        found = {name: measure(config, args) for name, config in kinds(args, Path(folder)).items()}
    common.show(f"{args.threads} threads, {args.clock} clock", [{"step": name, **of} for name, of in found.items()])
    common.write("precision", args, {"steps": found})


if __name__ == "__main__":
    main()
