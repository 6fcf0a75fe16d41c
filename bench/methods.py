"""B6: the step of every method against the plain step, on the same batches; FreeLB with K = 3 should take 2.9× or less.

A step is everything between the ends of two steps: data, passes, clipping, optimiser. All methods share one model and
one optimiser; each is measured beside plain steps of its own, on the same batches, step by step interleaved (several
short rounds: on a busy machine the noise of one step is larger than what is looked for). `freelb naive` is ours
without the shared word embeddings, so that every pass writes the dense gradient of the whole table. Before timing, at
dropout 0, our FreeLB's gradients are compared with those of a FreeLB written out below for the stock padded model.
"""

import argparse
import logging
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import common
import torch
from common import Spread
from torch import Tensor
from transformers import AutoModelForSequenceClassification

from encodery.config import load
from encodery.data.batches import MicroBatcher
from encodery.methods import _perturbation, freelb
from encodery.methods.base import Totals
from encodery.models.perturb import Words
from encodery.training import build, optim
from encodery.training.loop import StepReport, TrainState, count, train

SKIP = 2  # first steps of each side, not counted
GOAL = 2.9


class Apart(Words):
    """Word embeddings that are not shared."""

    def leaf(self, ids: Tensor, rows: Tensor) -> Tensor:
        """What was looked up."""
        return rows


class Naive(freelb.FreeLB):
    """FreeLB whose passes share nothing."""

    def one(self, *given: Any) -> Any:
        """One micro-batch."""
        shared, _perturbation.Words = _perturbation.Words, Apart  # type: ignore[misc]
        try:
            return super().one(*given)
        finally:
            _perturbation.Words = shared  # type: ignore[misc]


def written_out(stock: Any, inputs: dict[str, Tensor], labels: Tensor, delta: Tensor, method: freelb.FreeLB) -> float:
    """FreeLB as its paper has it, on a padded batch, from a given start: gradients add up; returns the mean loss."""
    total = 0.0
    for k in range(method.steps):
        here = delta.detach().requires_grad_()
        hook = stock.get_input_embeddings().register_forward_hook(lambda *given, here=here: given[2] + here)
        loss = stock(**inputs, labels=labels).loss / method.steps
        hook.remove()
        loss.backward()
        total += float(loss)
        if k + 1 < method.steps:
            grad = here.grad.double()
            moved = here.detach().double() + method.adv_lr * grad / grad.flatten(1).norm(dim=1)[:, None, None]
            sizes = moved.flatten(1).norm(dim=1)[:, None, None]
            delta = (moved * (method.max_norm / sizes).clamp(max=1)).float()
    return total


def largest_differences(built: build.Built, folder: Path, method: freelb.FreeLB) -> dict[str, float]:
    """Loss and gradients (by the largest one) of one step of 32 examples, ours packed and theirs padded."""
    stock = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()
    model, table, rows = built.model.eval(), built.batches.table, built.batches.rows_at(0)
    micro = built.batches.at(0)
    totals = Totals(count(model, micro), 1.0, float(len(rows)))
    ours = sum(float(v) for (task, _), v in method(model, micro, totals).items() if task) / len(rows)
    (batch,) = micro
    start, mask = batch.rows(batch.layout.from_tokens(method.space(model, batch).draw(method.init_mag)))
    plain = MicroBatcher("padded", built.batcher.form, 1 << 30).batch(table, batch.ids.numpy(), built.task.name, 0)
    theirs = written_out(stock, plain.inputs, plain.targets["label"], start * mask[..., None], method)
    own = dict(model.objective(built.task.name).head.stock.named_parameters())
    gaps = [float((own[name].grad - p.grad).abs().max()) for name, p in stock.named_parameters()]
    largest = max(float(p.grad.abs().max()) for p in stock.parameters())
    model.zero_grad()
    return {"loss": abs(ours - theirs), "gradient": max(gaps) / largest}


class Side:
    """A method's own way through the batches."""

    def __init__(self, built: build.Built, optimizer: Any, options: Any, method: Any):
        schedule = optim.schedule(options.optim, 10_000)
        running, state = method.start(built.model), TrainState(1 << 30)
        self.loop: Iterator[StepReport] = train(
            built.model, running, built.batches, optimizer, schedule, state, options.optim.clip
        )

        for _ in range(SKIP):
            next(self.loop)

    def round(self, steps: int, now: Any) -> float:
        """Seconds per step."""
        begin = now()
        for _ in range(steps):
            next(self.loop)
        return float((now() - begin) / steps)


def methods(names: Sequence[str]) -> dict[str, Any]:
    """Each with its defaults."""
    found = {}
    for name in names:
        kind = freelb.FreeLB if name.startswith("freelb") else load.find("methods", name)
        found[name] = (Naive if name == "freelb naive" else kind)()
    return found


def measure(task: str, args: argparse.Namespace, model: Path | None) -> dict[str, Any]:
    """Ratios of all methods on one data set."""
    resolved = load.load(common.run_config(model, task))
    built = build.build(resolved, build.find_inputs(resolved))
    wanted = methods(args.methods)
    with tempfile.TemporaryDirectory() as folder:
        built.model.save(Path(folder) / "model", built.tokenizer, built.card)
        gap = largest_differences(built, Path(folder) / "model", freelb.FreeLB())
    if max(gap.values()) > 1e-5:
        raise SystemExit(f"{task}: FreeLB differs from the one written out: {gap}")
    optimizer, now = build.make_optimizer(built.model, resolved.config), common.clock(args.clock)
    plain = methods(["plain"])["plain"]
    pairs = {
        name: [Side(built, optimizer, resolved.config, one) for one in (plain, method)]
        for name, method in wanted.items()
    }
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in wanted}
    for _ in range(args.rounds):
        for name, (base, side) in pairs.items():
            seconds[name].append((base.round(args.steps, now), side.round(args.steps, now)))
    ratios = {name: Spread.of([b / a for a, b in each]) for name, each in seconds.items()}
    return {"task": task, "gap": gap, "ratios": ratios, "seconds_per_step": seconds}


def lines(result: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Rows of the printed table."""
    for name, ratio in result["ratios"].items():
        goal = name == "freelb"
        met = ("yes" if ratio.median <= GOAL else "no") if goal else ""
        yield {
            "set": result["task"],
            "method": name,
            "times plain": ratio,
            "goal": f"<= {GOAL}" if goal else "",
            "met": met,
        }


def main(argv: Sequence[str] | None = None) -> None:
    parser = common.options(__doc__ or "", tasks=("glue/mrpc", "glue/sst2"), rounds=15, steps=1)
    every = ["freelb", "freelb naive", *(name for name in load.names("methods") if name not in ("plain", "freelb"))]
    parser.add_argument("--methods", nargs="+", default=every, choices=every)
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
        title = (
            f"{task}: {source}; equal to FreeLB written out: loss {gap['loss']:.0e}, gradients {gap['gradient']:.0e}"
        )
        common.show(f"{title}; {args.threads} thread(s), {args.clock} time", list(lines(results[-1])))
    common.write("methods", args, {"source": source, "results": results})


if __name__ == "__main__":
    main()
