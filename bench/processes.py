"""B12: two processes with one thread each, data parallel, against one process with one thread.

All sides take the same steps of the same run (equal global batch), one after the other, round by round, in processes of
their own that wait for their turn; each process has a core of its own. Dropout is 0, so that the losses of the first
steps can be compared: they are the proof of equal mathematics.

The ceiling is what the machine leaves: two runs that know nothing of each other, one on each core at the same time,
against one of them alone. They share memory and caches and whatever else the cores share, but say nothing.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import common
import numpy as np
from common import Spread

STILL = {"dropout": 0.0, "attention_dropout": 0.0, "head_dropout": 0.0}
PRETRAINING = "electra-small"
WORKLOADS = (*common.TASKS, PRETRAINING)
PROOF = 2  # steps whose losses are compared; they warm up too


def main() -> int:
    parser = common.options(__doc__ or "", rounds=5, steps=3, tasks=("glue/mrpc", PRETRAINING), choices=WORKLOADS)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--device", default="cpu", help="cpu, or cuda: one device per process")
    args = parser.parse_args()
    if args.worker:
        return work(json.loads(args.worker))
    rows, data = [], {}
    for task in args.tasks:
        with tempfile.TemporaryDirectory() as folder:
            write_text(Path(folder))
            found = measure(task, args, folder)
        data[task] = found
        rows.append({"task": task, **{k: str(v) for k, v in found.items()}})
    common.show(f"B12: 2 processes × 1 thread against 1 × 1 (goal ≥ 1.8), {len(os.sched_getaffinity(0))} cores", rows)
    common.write("processes", args, data)
    return 0


class Side:
    """One process or several that train together, which take steps when they are told to."""

    def __init__(self, task: str, args: argparse.Namespace, folder: str, size: int, first: int = 0) -> None:
        cores = sorted(os.sched_getaffinity(0))
        job = {"task": task, "model": str(args.model or ""), "device": args.device, "folder": folder}
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        several = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        several["GLOO_SOCKET_IFNAME"] = "lo"
        self.processes = []
        for rank in range(size):
            more = {**several, "RANK": str(rank), "LOCAL_RANK": str(rank)} if size > 1 else {}
            line = json.dumps({**job, "core": cores[(first + rank) % len(cores)]})
            words = [sys.executable, __file__, "--worker", line]
            where = {**os.environ, "OMP_NUM_THREADS": "1", **more}
            pipe = subprocess.PIPE
            self.processes.append(subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True, env=where))

    def begin(self, step: int, steps: int) -> None:
        """Take these steps."""
        for one in self.processes:
            print(step, steps, file=one.stdin, flush=True)

    def done(self) -> dict[str, Any]:
        """What the first process says when the last one has them."""
        first, *_ = [json.loads(one.stdout.readline()) for one in self.processes]
        return dict(first)

    def end(self) -> None:
        for one in self.processes:  # all, before any is waited for: they end together
            one.stdin.close()
        for one in self.processes:
            one.wait()


def seconds(sides: list[Side], step: int, steps: int) -> tuple[float, list[dict[str, Any]]]:
    """Until the last of these sides, at the same time, has taken its steps; and what they say."""
    begin = time.perf_counter()
    for side in sides:
        side.begin(step, steps)
    said = [side.done() for side in sides]
    return time.perf_counter() - begin, said


def measure(task: str, args: argparse.Namespace, folder: str) -> dict[str, Any]:
    """The ratio of one workload and its ceiling. The one process alone changes its core from round to round."""
    singles = [Side(task, args, folder, 1, core) for core in range(2)]
    pair = Side(task, args, folder, 2)
    sides = [*singles, pair]
    try:
        proof = [seconds([side], 0, PROOF)[1][0]["losses"] for side in sides]
        gap = max(abs(a - b) / abs(a) for other in proof[1:] for a, b in zip(proof[0], other, strict=True))
        rounds = [one_round(singles, pair, PROOF + i * args.steps, args.steps, i % 2) for i in range(args.rounds)]
    finally:
        for side in sides:
            side.end()
    found = {name: Spread.of([one[name] for one in rounds]) for name in rounds[0]}
    return {**found, "largest difference of a loss": f"{gap:.0e}"}


def one_round(singles: list[Side], pair: Side, step: int, steps: int, which: int) -> dict[str, float]:
    """The same steps: by one process, by two runs at once, by two processes together."""
    one, _ = seconds([singles[which]], step, steps)
    both, _ = seconds(singles, step, steps)
    two, (said,) = seconds([pair], step, steps)
    return {
        "ratio": one / two, "ceiling": 2 * one / both, "of the ceiling": both / two / 2,
        "step of one, s": one / steps, "talk and waiting": said["talk"] / two,
    }  # fmt: skip


def tree_of(job: dict[str, Any]) -> dict[str, Any]:
    """The config of a workload."""
    if job["task"] == PRETRAINING:
        return {**pretraining(Path(job["folder"])), "device": job["device"]}
    tree = common.run_config(common.find_model(Path(job["model"]) if job["model"] else None), job["task"])
    tree["model"] = {**({"name": tree["model"]} if isinstance(tree["model"], str) else tree["model"]), **STILL}
    return {**tree, "device": job["device"]}


def write_text(folder: Path) -> None:
    """A vocabulary, and documents of random words: one block each."""
    common.synthetic(folder, 1, 10, 0.1)
    rng = np.random.default_rng(2)
    texts = (" ".join(f"w{w}" for w in rng.integers(0, 30000, 126)) for _ in range(32 * 40))
    (folder / "text.txt").write_text("\n\n".join(texts) + "\n")


def pretraining(folder: Path) -> dict[str, Any]:
    """ELECTRA-small on random words, 32 × 128 tokens a step."""
    return {
        "model": {"new": {"kind": "electra", "size": "small"}, "tokenizer": str(folder / "vocab.txt"), **STILL},
        "tasks": [{"name": "corpus", "files": str(folder / "text.txt"), "objective": {"kind": "electra"}}],
        "train": {"batch_size": 32, "max_length": 128, "evaluate": "never", "precision": "fp32", "max_steps": 10_000},
    }


@contextmanager
def clocked(world: Any) -> Iterator[list[float]]:
    """Inside, the seconds that a process spends with the others, waiting included, add up in the list."""
    spent, contact = [0.0], world.contact

    @contextmanager
    def timed() -> Iterator[None]:
        begin = time.perf_counter()
        with contact():
            yield
        spent[0] += time.perf_counter() - begin

    world.contact = timed
    yield spent
    world.contact = contact


def work(job: dict[str, Any]) -> int:
    """One of the processes."""
    os.sched_setaffinity(0, {job["core"]})
    import torch

    from encodery.config import load
    from encodery.distributed import comm
    from encodery.training import build, optim
    from encodery.training.loop import TrainState, train

    torch.set_num_threads(1)
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    comm.join()
    resolved = load.load(tree_of(job))
    with comm.one_by_one():
        built = build.build(resolved, build.find_inputs(resolved))
    method: Any = resolved.method
    schedule = optim.schedule(resolved.config.optim, 10_000)
    optimizer = build.make_optimizer(built.model, resolved.config)
    state = TrainState(1 << 30)
    loop = train(built.model, method.start(built.model), built.batches, optimizer, schedule, state)
    with clocked(comm) as spent:
        for line in sys.stdin:
            state.step, steps = map(int, line.split())
            spent[0] = 0.0
            losses = [next(loop).loss for _ in range(steps)]
            if job["device"] != "cpu":
                torch.accelerator.synchronize()
            print(json.dumps({"losses": losses, "talk": spent[0]}), file=out, flush=True)
    comm.end_run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
