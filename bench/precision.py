"""What `train.precision: bf16` and `predict --precision bf16` gain on this CPU, against the same in fp32.

Both sides of a step are runs of their own in one process, with data, clipping and optimiser, step by step interleaved;
each has the same batches. MLM is the step of petit's pretraining. Answers are those of a model after one step to the
rows of dev, tokens included, in turns. Only CPUs that multiply bf16 themselves gain (AVX512-BF16,
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
from encodery.config import load

SKIP, WORDS, LONG, ANSWERS = 3, 2000, 1 << 20, 256
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


def answers(config: dict[str, Any], args: argparse.Namespace) -> dict[str, Any]:
    """Both precisions answer the same rows of dev, round by round."""
    with tempfile.TemporaryDirectory() as folder:
        entry = {"name": one} if isinstance(one := config["tasks"][0], str) else one
        train = {**config["train"], "max_steps": 1, "save": "end"}
        run = en.train({**config, "tasks": [entry], "train": train, "device": "cpu"}, folder + "/run")
        sides = {name: en.load(run, "cpu", precision=name) for name in PRECISIONS}
        own = load.load(run.path).tasks[0][0]
        rows, now = own.examples("dev")[:ANSWERS], common.clock(args.clock)
        first = {name: model.outputs(rows, own) for name, model in sides.items()}
        rounds = [{name: _seconds(model, rows, own, now) for name, model in sides.items()} for _ in range(args.rounds)]
    pairs = zip(first["fp32"], first["bf16"], strict=True)
    return {
        "fp32, s": Spread.of([one["fp32"] for one in rounds]),
        "bf16, s": Spread.of([one["bf16"] for one in rounds]),
        "fp32 / bf16": Spread.of([one["fp32"] / one["bf16"] for one in rounds]),
        "largest difference of a logit": max(np.abs(np.subtract(a["logits"], b["logits"])).max() for a, b in pairs),
    }


def _seconds(model: Any, rows: Any, task: Any, now: Any) -> float:
    begin = now()
    model.outputs(rows, task)
    return float(now() - begin)


def main() -> None:
    """The command."""
    parser = common.options(__doc__, rounds=5, steps=3, tasks=("glue/mrpc", "glue/sst2"))
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(args.threads)
    with tempfile.TemporaryDirectory() as folder:
        configs = kinds(args, Path(folder))
        found = {name: measure(config, args) for name, config in configs.items()}
        told = {name: answers(config, args) for name, config in configs.items() if "masked" not in name}
    common.show(f"{args.threads} threads, {args.clock} clock", [{"step": name, **of} for name, of in found.items()])
    common.show(f"{ANSWERS} rows of dev", [{"answers": name, **of} for name, of in told.items()])
    common.write("precision", args, {"steps": found, "answers": told})


if __name__ == "__main__":
    main()
