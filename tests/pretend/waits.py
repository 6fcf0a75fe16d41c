"""How often a step waits for its device, and what a step that is not finite leaves behind: on the pretend GPU."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def begun(tree: dict[str, Any]) -> tuple[Any, Any]:
    """A run that is built, and the generator of its steps."""
    from encodery.distributed import comm
    from encodery.training import build
    from encodery.training.loop import train
    from tests.toolbox.runs import resolve

    comm.join()
    resolved = resolve(tree)
    with comm.one_by_one():
        made = build.build(resolved, build.find_inputs(resolved))
    options = resolved.config.train
    steps = train(
        made.model, made.method, made.batches, made.optimizer, made.schedule, made.state, resolved.config.optim.clip,
        options.loss_reduction, made.weighting, made.rates,
    )  # fmt: skip
    return made, steps


def per_step(tree: dict[str, Any]) -> dict[str, Any]:
    """The waits of each step of a run as the loop takes it, and of the look at the end."""
    import pretend_device

    made, steps = begun(tree)
    found, unpinned, reports = [], [], []
    for _ in range(made.state.total):
        pretend_device.waits.clear()
        pretend_device.unpinned.clear()
        reports.append(next(steps))
        found.append(dict(pretend_device.waits))
        unpinned.append(dict(pretend_device.unpinned))
    pretend_device.waits.clear()
    losses = [report.loss for report in reports]
    look = dict(pretend_device.waits)
    return {"steps": found, "unpinned": unpinned, "look": look, "losses": losses, "remembered": made.state.losses}


def with_tables(tree: dict[str, Any]) -> dict[str, Any]:
    """The same where the word embeddings of a toy are as large as those that CPUs send row by row."""
    from encodery.distributed import comm

    comm.TABLE = 8
    return per_step(tree)


def by_the_clock(tree: dict[str, Any], out: str, due: list[int]) -> list[int]:
    """The same where the clock of each process says after another step that a checkpoint is due."""
    from encodery.config.schema import Every
    from encodery.distributed import comm

    real = Every.due
    Every.due = lambda self, step: step == due[comm.rank()]  # type: ignore[method-assign]
    try:
        return in_session(tree, out)
    finally:
        Every.due = real  # type: ignore[method-assign]


def in_session(tree: dict[str, Any], out: str) -> list[int]:
    """The waits between one step and the next, in a whole run with its session."""
    from pathlib import Path

    import pretend_device

    from tests.toolbox.runs import run

    found = []

    def count(_: Any) -> None:
        found.append(sum(pretend_device.waits.values()))
        pretend_device.waits.clear()

    run(tree, Path(out), watch=count)
    return found


@contextmanager
def spoilt(at: int, rank: int = 0) -> Iterator[None]:
    """Inside, the losses of step `at` are not numbers in one process."""
    import torch

    from encodery.distributed import comm
    from encodery.models.model import Model

    terms = Model.terms

    def bad(self: Any, outputs: Any, batch: Any) -> Any:
        here = batch.step == at - 1 and comm.rank() == rank and not torch.is_inference_mode_enabled()
        factor = float("nan") if here else 1.0
        return {key: value * factor for key, value in terms(self, outputs, batch).items()}

    Model.terms = bad  # type: ignore[method-assign]
    try:
        yield
    finally:
        Model.terms = terms  # type: ignore[method-assign]


def poisoned_session(tree: dict[str, Any], out: str, at: int) -> dict[str, Any]:
    """A whole run in which the loss of step `at` is not a number: how it ends, and what it has saved."""
    from pathlib import Path

    from encodery.errors import RunFailed
    from encodery.training import checkpoint
    from tests.toolbox.runs import run

    seen = []
    with spoilt(at):
        try:
            run(tree, Path(out), watch=lambda report: seen.append(report.step))
            message = ""
        except RunFailed as error:
            message = str(error)
    return {"steps": seen[-1], "message": message, "saved": sorted(checkpoint.steps(Path(out) / "checkpoints"))}


def poisoned(tree: dict[str, Any], at: int, rank: int = 0) -> dict[str, Any]:
    """A run in which the loss of step `at` is not a number in one process, looked at after the last step only."""
    import torch

    from encodery.errors import RunFailed

    made, steps = begun(tree)

    def everything() -> dict[str, Any]:
        tensors = {**made.model.state_dict(), **made.optimizer.tensors()}
        return {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}

    with spoilt(at, rank):
        kept = []
        for _ in range(made.state.total):
            report = next(steps)
            kept.append(everything())
        try:
            report.wait()
            message = ""
        except RunFailed as error:
            message = str(error)
    same = [all(torch.equal(a, b) for a, b in zip(x.values(), kept[at - 2].values(), strict=True)) for x in kept]
    ids = made.batches.example_ids(made.batches.at(at - 1))
    return {"same": same, "message": message, "ids": ids}


def kernels_of(tree: dict[str, Any]) -> dict[str, Any]:
    """Which attention kernels a step called, and the waits of three steps."""
    from tests.pretend import kernels

    kernels.calls.clear()
    found = per_step(tree)
    return {**found, "kernels": sorted(set(kernels.calls))}
