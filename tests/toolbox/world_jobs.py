"""What the processes of tests/distributed/test_comm.py do; also called with one process, for comparison."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from encodery.config.schema import TOKEN_BUDGET
from encodery.core.progress import Progress
from encodery.distributed import comm
from encodery.errors import EncoderyError
from encodery.models import fsdp
from encodery.models.model import Model
from encodery.training import build, optim
from encodery.training.loop import StepReport, TrainState, train
from encodery.training.run import train_run
from tests.toolbox.runs import resolve

STEPS = 20


def measure(trees: dict[str, dict[str, Any]], out: str, wide: bool = False) -> None:
    """The steps of each config; the first gradient, the weights, the rows of each step and the last report, by rank."""
    comm.join()
    for name, tree in trees.items():
        comm.TABLE = 4096 if name == "classification" else 8  # the others send rows of the word embeddings
        found = steps_of(tree, wide)
        save_file(found, Path(out) / f"{name}-{comm.rank()}.safetensors")
    comm.end_run()


def steps_of(tree: dict[str, Any], wide: bool) -> dict[str, torch.Tensor]:
    resolved = resolve(tree)
    with comm.one_by_one():
        built = build.build(resolved, build.find_inputs(resolved))
    if wide:
        built.model.double()
    options: Any = resolved.config.optim
    optimizer = build.make_optimizer(built.model, resolved.config)
    found: dict[str, torch.Tensor] = {}
    step = optimizer.step

    def remember(*factors: float) -> None:
        if not found:
            named = built.model.named_parameters()
            found.update(fsdp.gathered({f"grad/{n}": p.grad.clone() for n, p in named if p.grad is not None}))
        step(*factors)

    optimizer.step = remember  # type: ignore[method-assign]
    method: Any = resolved.method
    running = method.start(built.model)
    count = int(tree["train"]["max_steps"])
    rate = optim.schedule(options, count)
    weighting: Any = resolved.weighting
    weighing = weighting.start(built.model, list(built.model.names), 1)
    state = TrainState(count, budget=resolved.config.train.token_budget or TOKEN_BUDGET)
    steps = train(built.model, running, built.batches, optimizer, rate, state, options.clip, weighting=weighing)
    reports = list(steps)
    found |= fsdp.gathered({f"weight/{n}": p.detach().clone() for n, p in built.model.named_parameters()})
    assert built.model.sharded == (resolved.config.train.shard and comm.size() > 1)
    if not built.task.labelled:
        require_tied(built.model, built.task.name)
    tasks = [data.name for data in built.tasks_data]
    for i in range(count):
        ids = [10_000 * tasks.index(batch.task) + id for batch in built.batches.at(i) for id in batch.ids.tolist()]
        found[f"rows/{i}"] = torch.tensor(ids, dtype=torch.int64)
    return found | {"report": numbers(reports[0])}


def require_tied(model: Any, task: str) -> None:
    """P1: generator and discriminator hold the same embeddings, spread or not; and the same word matrix."""
    generator = model.objective(task).generator
    theirs = dict(generator.encoder.net.embeddings.named_parameters())
    ours = dict(model.encoder.net.embeddings.named_parameters())
    assert ours.keys() == theirs.keys()
    assert all(ours[name] is theirs[name] for name in ours)
    assert model.encoder.net.get_input_embeddings().weight is generator.words


def numbers(report: StepReport) -> torch.Tensor:
    """All that metrics.jsonl would say of a step, but for the clock."""
    sizes = [report.loss, report.norm, report.tokens, report.cells, report.sequences]
    return torch.tensor([*sizes, *(v for _, v in sorted(report.notes.items()))], dtype=torch.float64)


def run_all(trees: dict[str, dict[str, Any]], out: str) -> None:
    """One run of each config; how many passes without dropout this process made in each of them, in passes-<rank>."""
    passes, real = [0], Model.outputs

    def counted(model: Model, batch: Any) -> Any:
        passes[0] += not model.training
        return real(model, batch)

    Model.outputs = counted  # type: ignore[method-assign]
    found = {}
    for name, tree in trees.items():
        passes[0] = 0
        train_run(resolve(tree), Path(out) / name, progress=Progress(quiet=True))
        found[name] = passes[0]
    Model.outputs = real  # type: ignore[method-assign]
    (Path(out) / f"passes-{comm.rank()}").write_text(json.dumps(found))


def run_until(tree: dict[str, Any], out: str, at: int, rank: int, number: int) -> int:
    """A run in which one process gets a signal after some step (0: never); the exit code."""

    def watch(report: StepReport) -> None:
        if report.step == at and comm.rank() == rank:
            os.kill(os.getpid(), number)

    try:
        train_run(resolve(tree), out, progress=Progress(quiet=True), watch=watch)
    except EncoderyError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


NOTHING = signal.SIGCONT
