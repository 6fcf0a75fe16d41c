"""B1-B4: a fine-tuning step on real lengths, ours (packed, uniformly random batches) against transformers' Trainer.

The peers are Trainer (a) padded to 128, (b) with dynamic padding, (c) with train_sampling_strategy="group_by_length",
on the same rows, weights, threads and arithmetic, interleaved, in a process of its own. A step is everything between
the ends of two steps: data, forward, backward, clipping, optimiser. Batches differ in size, so that a few steps are a
noisy sample of an epoch; therefore each side's seconds are divided by the cells (tokens with padding) it computed and
multiplied by the cells of its whole epoch. (c) yields its batches sorted: a sample over all lengths is measured.
"""

import argparse
import logging
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import common
import numpy as np
import torch
from common import Spread
from peer import SKIP, Epoch, Worker
from transformers import AutoModelForSequenceClassification

from encodery.config import load
from encodery.data.batches import MicroBatcher
from encodery.training import build, optim
from encodery.training.loop import TrainState, train


@dataclass
class Ours:
    """Encodery's own loop, exactly as a run calls it."""

    built: build.Built
    resolved: load.Resolved
    state: TrainState = field(default_factory=lambda: TrainState(1 << 30))

    def __post_init__(self) -> None:
        options = self.resolved.config
        schedule = optim.schedule(options.optim, 10_000)
        optimizer = build.make_optimizer(self.built.model, options)
        method: Any = self.resolved.method.start(self.built.model)  # type: ignore[attr-defined]
        self.loop = train(
            self.built.model, method, self.built.batches, optimizer, schedule, self.state, options.optim.clip
        )

    def cells(self) -> float:
        """Cells per example of an epoch."""
        return float(np.mean(self.built.batches.table.lengths))

    def round(self, steps: int, now: Any) -> float:
        """Seconds per cell."""
        for _ in range(SKIP):
            next(self.loop)
        begin = now()
        cells = sum(next(self.loop).cells for _ in range(steps))
        return float((now() - begin) / cells)


def largest_differences(built: build.Built, folder: Path) -> dict[str, float]:
    """Loss and gradients (by the largest one) of the same 32 examples, packed and stock padded, without dropout."""
    stock = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32)
    table, rows = built.batches.table, built.batches.rows_at(0)
    built.model.eval(), stock.eval()
    (batch,) = built.batcher.split(table, rows, built.task.name, 0)
    terms = built.model(batch)[1]
    ours = sum(terms.values()) / len(rows)
    ours.backward()
    plain = MicroBatcher("padded", built.batcher.form, 1 << 30).batch(table, rows, built.task.name, 0)
    theirs = stock(**plain.inputs, labels=plain.targets["label"]).loss
    theirs.backward()
    mine = {id(p): p for p in built.model.parameters()}
    own = dict(built.model.objective(built.task.name).head.stock.named_parameters())
    assert {id(p) for p in own.values()} == set(mine)
    gaps = [float((own[n].grad - p.grad).abs().max()) for n, p in stock.named_parameters()]
    largest = max(float(p.grad.abs().max()) for p in stock.parameters())
    built.model.zero_grad(), stock.zero_grad()
    return {"loss": abs(float(ours) - float(theirs)), "gradient": max(gaps) / largest}


def matmul_rate(config: Any, tokens: int, now: Any, times: int = 5) -> float:
    """FLOP/s of torch.matmul at the model's shapes: four width × width products and the two of the feed-forward."""
    d, f = config.hidden_size, config.intermediate_size
    shapes = [(d, d)] * 4 + [(d, f), (f, d)]
    pairs = [(torch.randn(tokens, a), torch.randn(a, b)) for a, b in shapes]
    for x, w in pairs:
        torch.matmul(x, w)
    begin = now()
    for _ in range(times):
        for x, w in pairs:
            torch.matmul(x, w)
    return float(times * sum(2 * tokens * a * b for a, b in shapes) / (now() - begin))


def useful_flops(config: Any, lengths: np.ndarray) -> float:
    """FLOPs per real token of forward and backward: linear layers, and attention's two products at the real lengths.

    What follows the last layer's attention is counted for first tokens alone: no other one is read.
    """
    d, f = config.hidden_size, config.intermediate_size
    before, after = 2 * 3 * d * d, 2 * (d * d + 2 * d * f)
    attention = 2 * 2 * d * float((lengths.astype(float) ** 2).sum() / lengths.sum())
    layers = config.num_hidden_layers
    return 3 * (layers * (before + attention) + (layers - 1 + len(lengths) / float(lengths.sum())) * after)


def rounds(
    args: argparse.Namespace, ours: Ours, worker: Worker, epochs: dict[Any, Epoch]
) -> tuple[dict[str, list[float]], list[float]]:
    """Seconds per example of every side, and our share of the rate of matrix products, round by round."""
    now, net = common.clock(args.clock), ours.built.model.encoder.net.config
    lengths = np.asarray(ours.built.batches.table.lengths)
    found: dict[str, list[float]] = {name: [] for name in ("ours", *epochs)}
    share: list[float] = []
    for _ in range(args.rounds):
        mine = ours.round(args.steps, now)
        found["ours"].append(mine * ours.cells())
        share.append(useful_flops(net, lengths) / mine / matmul_rate(net, round(32 * lengths.mean()), now))
        for kind, epoch in epochs.items():
            steps = max(2, args.steps // 4) if kind == "padded" else args.steps  # padded ones are all alike
            found[kind].append(worker.round(kind, steps) * epoch.cells())
    return found, share


def measure(task: str, args: argparse.Namespace, model: Path | None) -> dict[str, Any]:
    """All figures of one data set."""
    resolved = load.load(common.run_config(model, task))
    built = build.build(resolved, build.find_inputs(resolved))
    table = built.batches.table
    epochs = {kind: Epoch(kind, np.asarray(table.lengths)) for kind in args.peers}
    with tempfile.TemporaryDirectory() as folder:
        built.model.save(Path(folder) / "model", built.tokenizer, built.card)
        gap = largest_differences(built, Path(folder) / "model")
        if max(gap.values()) > 1e-5:
            raise SystemExit(f"{task}: packed and padded differ: {gap}")
        worker = Worker(Path(folder) / "model", table.folder, args.clock, args.threads)
        found, share = rounds(args, Ours(built, resolved), worker, epochs)
        worker.stop()
    lengths = np.asarray(table.lengths)
    ratios = {k: Spread.of([a / b for a, b in zip(found[k], found["ours"], strict=True)]) for k in epochs}
    return {
        "task": task, "rows": len(lengths), "mean": float(lengths.mean()), "gap": gap, "ratios": ratios,
        "share": Spread.of([100 * s for s in share]), "seconds_per_example": found,
        "token_ratios": {k: p.cells() / float(lengths.mean()) for k, p in epochs.items()},
    }  # fmt: skip


NAMES = {"padded": "B1 padded to 128", "dynamic": "B2 dynamic padding", "grouped": "B3 group_by_length"}


def lines(result: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Rows of the printed table."""
    for kind, ratio in result["ratios"].items():
        tokens = result["token_ratios"][kind]
        goal = 1.0 if kind == "grouped" else 0.9 * tokens
        met = "yes" if ratio.median >= goal else "no"
        yield {
            "set": result["task"], "peer": NAMES[kind], "times faster": ratio, "token ratio": tokens,
            "goal": f">= {goal:.2f}", "met": met,
        }  # fmt: skip
    share = result["share"]
    yield {
        "set": result["task"], "peer": "B4 matrix products, %", "times faster": share, "token ratio": "",
        "goal": ">= 70", "met": "yes" if share.median >= 70 else "no",
    }  # fmt: skip


def main(argv: Sequence[str] | None = None) -> None:
    parser = common.options(__doc__ or "")
    parser.add_argument("--peers", nargs="*", default=list(NAMES), choices=list(NAMES))
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    model = common.find_model(args.model)
    source = f"encoder {model.name}, real rows" if model else "SYNTHETIC lengths, random encoder of MiniLM-L6's size"
    results = []
    for task in args.tasks:
        results.append(measure(task, args, model))
        gap = results[-1]["gap"]
        title = f"{task}: {source}; equal to padded: loss {gap['loss']:.0e}, gradients {gap['gradient']:.0e}"
        common.show(f"{title}; {args.threads} thread(s), {args.clock} time", list(lines(results[-1])))
    common.write("steps", args, {"source": source, "results": results})


if __name__ == "__main__":
    main()
