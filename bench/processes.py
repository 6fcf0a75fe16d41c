"""B12: two processes with one thread each, data parallel, against one process with one thread.

Both take the same steps of the same run (equal global batch), one after the other, round by round, in processes of
their own that wait for their turn; each process has a core of its own. Dropout is 0, so that the losses of both sides
can be compared: they are the proof of equal mathematics. What is compared is the time of the same steps.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import common
from common import Spread

STILL = {"dropout": 0.0, "attention_dropout": 0.0, "head_dropout": 0.0}


def main() -> int:
    parser = common.options(__doc__ or "", rounds=5, steps=4, tasks=("glue/rte", "glue/mrpc"))
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--device", default="cpu", help="cpu, or cuda: one device per process")
    args = parser.parse_args()
    if args.worker:
        return work(json.loads(args.worker))
    rows, data = [], {}
    for task in args.tasks:
        found = measure(task, args)
        data[task] = found
        rows.append({"task": task, **{k: str(v) for k, v in found.items()}})
    common.show(f"B12: 2 processes × 1 thread against 1 × 1 (goal ≥ 1.8), {len(os.sched_getaffinity(0))} cores", rows)
    common.write("processes", args, data)
    return 0


class Side:
    """One process or several, which take steps when they are told to."""

    def __init__(self, task: str, args: argparse.Namespace, size: int) -> None:
        cores = sorted(os.sched_getaffinity(0))
        job = {"task": task, "model": str(args.model or ""), "device": args.device}
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        several = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        several["GLOO_SOCKET_IFNAME"] = "lo"
        self.processes = []
        for rank in range(size):
            more = {**several, "RANK": str(rank), "LOCAL_RANK": str(rank)} if size > 1 else {}
            line = json.dumps({**job, "core": cores[rank % len(cores)]})
            words = [sys.executable, __file__, "--worker", line]
            where = {**os.environ, "OMP_NUM_THREADS": "1", **more}
            pipe = subprocess.PIPE
            self.processes.append(subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True, env=where))

    def round(self, steps: int) -> tuple[float, list[float]]:
        """Seconds of these steps, until the last process has them; and their losses."""
        begin = time.perf_counter()
        for one in self.processes:
            print(steps, file=one.stdin, flush=True)
        said = [json.loads(one.stdout.readline()) for one in self.processes]
        return time.perf_counter() - begin, said[0]

    def end(self) -> None:
        for one in self.processes:  # all, before any is waited for: they end together
            one.stdin.close()
        for one in self.processes:
            one.wait()


def measure(task: str, args: argparse.Namespace) -> dict[str, Any]:
    """The ratio of one data set."""
    sides = [Side(task, args, 1), Side(task, args, 2)]
    try:
        for side in sides:
            side.round(2)  # to warm up
        ratios, gap = [], 0.0
        for _ in range(args.rounds):
            (one, ours), (two, theirs) = (side.round(args.steps) for side in sides)
            ratios.append(one / two)
            gap = max(gap, *(abs(a - b) / abs(a) for a, b in zip(ours, theirs, strict=True)))
    finally:
        for side in sides:
            side.end()
    return {"ratio": Spread.of(ratios), "largest difference of a loss": f"{gap:.0e}"}


def work(job: dict[str, Any]) -> int:
    """One of the processes."""
    os.sched_setaffinity(0, {job["core"]})
    import torch

    from encodery import build, config, optim, world
    from encodery.loop import TrainState, train

    torch.set_num_threads(1)
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    world.join()
    tree = common.run_config(common.find_model(Path(job["model"]) if job["model"] else None), job["task"])
    tree["model"] = {**({"name": tree["model"]} if isinstance(tree["model"], str) else tree["model"]), **STILL}
    tree["device"] = job["device"]
    resolved = config.load(tree)
    with world.one_by_one():
        built = build.build(resolved, build.find_inputs(resolved))
    method: Any = resolved.method
    schedule = optim.schedule(resolved.config.optim, 10_000)
    optimizer = build.make_optimizer(built.model, resolved.config)
    loop = train(built.model, method.start(built.model), built.batches, optimizer, schedule, TrainState(1 << 30))
    for line in sys.stdin:
        losses = [next(loop).loss for _ in range(int(line))]
        if job["device"] != "cpu":
            torch.accelerator.synchronize()
        print(json.dumps(losses), file=out, flush=True)
    world.rest()
    return 0


if __name__ == "__main__":
    sys.exit(main())
