"""B14: peak memory of training against the size of the data set and the token budget; each run in its own process.

Tables are tokenised beforehand by a run that is not counted, so that the peak is that of training. What may grow with
the data set are the rows as text (read for the identity of the run) and a few bytes per row; the memory-mapped token
table counts as resident only while its pages are used, so anonymous memory is reported beside the resident peak.
"""

import argparse
import json
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import common

SIZES = (1000, 10_000, 67_349)
BUDGETS = (2048, 8192)


def child(task: str, rows: int, budget: int, steps: int, model: Path | None, batch: int) -> None:
    """Train a few steps and print the peak, in megabytes: after building, and at the end."""
    import torch

    from encodery import build, config, optim
    from encodery.loop import TrainState, train

    torch.set_num_threads(1)
    tree = common.run_config(model, task, token_budget=budget, batch_size=batch)
    entry = tree["tasks"][0] if isinstance(tree["tasks"][0], dict) else {"name": task}
    resolved = config.load({**tree, "tasks": [{**entry, "count": rows}]})
    built = build.build(resolved, build.find_inputs(resolved))
    ready, method = peak(), resolved.method
    optimizer, schedule = (
        build.make_optimizer(built.model, resolved.config),
        optim.schedule(resolved.config.optim, 1000),
    )
    for _ in train(built.model, method, built.batches, optimizer, schedule, TrainState(steps, budget=budget)):
        pass
    print(json.dumps({"built MB": ready, "peak MB": peak(), "anonymous MB": anonymous()}))


def peak() -> int:
    """Largest resident set of this process so far, in megabytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit >> 20


def anonymous() -> int | None:
    """Memory that is not a mapped file, now, in megabytes; None where the system does not say."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) >> 10 for line in lines if line.startswith("RssAnon")), None)


def measure(args: Any, rows: int, budget: int) -> dict[str, Any]:
    """One run in a fresh process."""
    words = ["--child", str(rows), str(budget), "--steps", str(args.steps), "--batch", str(args.batch)]
    words += ["--model", str(args.model)] if args.model else []
    done = subprocess.run(
        [sys.executable, __file__, *words, "--tasks", args.tasks[0]], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {"set": args.tasks[0], "rows": rows, "token budget": budget, **figures}


def main(argv: Sequence[str] | None = None) -> None:
    parser = common.options(__doc__ or "", tasks=("glue/sst2",), steps=6)
    parser.add_argument("--batch", type=int, default=512, help="examples in a step: more than a budget holds")
    parser.add_argument("--child", nargs=2, type=int, metavar=("ROWS", "BUDGET"), help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    model = common.find_model(args.model)
    if args.child:
        child(args.tasks[0], *args.child, args.steps, model, args.batch)
        return
    measure(args, SIZES[-1], BUDGETS[0])  # makes the token table
    pairs = [(rows, BUDGETS[0]) for rows in SIZES] + [(SIZES[0], budget) for budget in BUDGETS[1:]]
    rows = [measure(args, *pair) for pair in pairs]
    title = "B14: peak memory of training; goal: the rows do not matter, the token budget does"
    common.show(title if model else f"{title} (SYNTHETIC data and encoder)", rows)
    common.write("memory", args, {"results": rows})


if __name__ == "__main__":
    main()
