"""The loop: a generator of step reports. Printing, evaluating and saving belong to whoever consumes it."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from encodery.config.schema import TOKEN_BUDGET
from encodery.data.batches import Batch, describe
from encodery.data.task_mixing import Stream
from encodery.distributed import comm
from encodery.distributed.overlap import Overlap
from encodery.errors import AFTER_ALARM, RunFailed, UserError
from encodery.methods.base import ActiveMethod, Totals, Updating, backward, losses_of, notes_of
from encodery.methods.plain import Plain
from encodery.models import flops
from encodery.models.model import Model, Terms, prepare
from encodery.training.ahead import Ahead
from encodery.training.optim import Optimizer, clip, norm_of
from encodery.weighting.base import ActiveWeighting, Part
from encodery.weighting.constant import Constant

CONSTANT: ActiveWeighting = Constant()
SAME: Mapping[str, float] = {}
EXAMPLES = ""  # among counts, in place of a task: the examples of the task that follows
MOST_OVERFLOWS = 20  # fp16 steps skipped in a row before the run gives up


@dataclass
class LossScale:
    """fp16: the loss is multiplied so that small gradients survive; an overflow skips the step and lowers the scale."""

    scale: float = 65536.0
    good: int = 0
    in_a_row: int = 0
    skipped: int = 0

    def update(self, overflow: bool) -> None:
        """Lower after an overflow, raise after 2,000 good steps."""
        if overflow:
            self.scale, self.good = max(self.scale / 2, 1.0), 0
            self.in_a_row, self.skipped = self.in_a_row + 1, self.skipped + 1
            return
        self.good, self.in_a_row = self.good + 1, 0
        if self.good == 2000:
            self.scale, self.good = self.scale * 2, 0


@dataclass
class TrainState:
    """Where training stands; with weights and optimiser it is everything a checkpoint needs."""

    total: int
    step: int = 0
    budget: int = TOKEN_BUDGET  # tokens of a micro-batch; falls when the device runs out of memory
    scaler: LossScale | None = None
    losses: list[float] = field(default_factory=list)  # the latest ones, for means and the collapse alarm
    task_losses: dict[str, list[float]] = field(default_factory=dict)  # the same of each task, where there are several
    best: dict[str, Any] | None = None  # {"step", "score"} of the best evaluation so far
    best_of: dict[str, dict[str, Any]] = field(default_factory=dict)  # the same for each task
    waited: int = 0  # evaluations since then
    owes_evaluation: bool = False  # a signal came before the dev set was scored
    stopped_early: bool = False
    elapsed: float = 0.0  # seconds spent in steps
    flops: float = 0.0  # of all steps, where the objective's cost is known

    def remember(self, loss: float, keep: int = 100) -> None:
        """Keep the latest losses."""
        self.losses = [*self.losses[1 - keep :], loss]

    def remember_tasks(self, means: Mapping[str, float], keep: int = 100) -> None:
        """Keep the latest losses of each task."""
        for task, loss in means.items():
            self.task_losses[task] = [*self.task_losses.get(task, [])[1 - keep :], loss]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def read(cls, plain: dict[str, Any]) -> "TrainState":
        scaler = plain.get("scaler")
        return cls(**{**plain, "scaler": LossScale(**scaler) if scaler else None})


@dataclass(frozen=True)
class StepReport:
    """What one step did."""

    step: int  # steps done
    loss: float
    terms: dict[str, float]  # "task/term" -> mean
    norm: float
    rate: float
    tokens: int
    cells: int
    sequences: int
    seconds: float
    skipped: bool = False
    notes: dict[str, float] = field(default_factory=dict)  # what the method adds for metrics.jsonl

    def wait(self) -> None:
        """Wait for the step's numbers, where they are still on a device; a step that was not finite ends the run."""


class PendingReport(StepReport):
    """A step whose loss, terms, norm and notes are still on the device: asking for one of them waits for all."""

    def __init__(self, ledger: "Ledger", **known: Any) -> None:
        vars(self).update(known, skipped=False, ledger=ledger)

    def __getattr__(self, name: str) -> Any:
        if name not in ("loss", "terms", "norm", "notes"):
            raise AttributeError(name)
        self.wait()
        return vars(self)[name]

    def wait(self) -> None:
        vars(self)["ledger"].read()


@dataclass
class Ledger:
    """The numbers of steps since somebody last looked, on the device; all of them are read in one copy.

    `bad` is 1 from the first step on whose losses or norm are not finite: no later update changes anything, so at
    the look the weights are those before that step. Several processes hold each its own losses, agree on `bad` at each
    step, on their devices, and look together: then the losses are added up, by the hosts.
    """

    model: Model
    batches: Stream
    state: TrainState
    bad: Tensor
    pending: list[tuple[PendingReport, Tensor, Terms, Mapping[tuple[str, str], float]]] = field(default_factory=list)
    seconds_waited: float = 0.0  # a step, at the last look

    def hold(self, terms: Terms, norm: Tensor) -> Tensor:
        """Whether this update must not happen, as the optimiser's kernel asks for it."""
        each = torch.stack([norm.double(), *(value.double() for value in losses_of(terms).values())])
        odd = comm.sum_(1.0 - each.isfinite().all().float())
        self.bad = torch.maximum(self.bad, odd.clamp(max=1.0))  # the kernel asks whether it is 1
        return self.bad

    def add(self, report: PendingReport, norm: Tensor, whole: Terms, counts: Mapping[tuple[str, str], float]) -> None:
        self.pending.append((report, norm, whole, counts))

    def read(self) -> None:
        """Read everything, remember the losses, and end the run where a step was not finite."""
        if not self.pending:
            return
        begin, pending = time.perf_counter(), self.pending
        self.pending = []
        parts = [
            [norm.double().view(1), *(v.double().view(-1).to(norm.device) for v in whole.values())]
            for _, norm, whole, _ in pending
        ]
        numbers = iter(torch.cat([value for part in parts for value in part]).tolist())
        norms, local = list[float](), list[Terms]()
        for _, _, whole, _ in pending:
            norms.append(next(numbers))
            local.append({k: wide([next(numbers) for _ in range(v.numel())]).view(v.shape) for k, v in whole.items()})
        steps = comm.add_terms_each(local)
        waited = time.perf_counter() - begin
        self.seconds_waited, self.state.elapsed = waited / len(pending), self.state.elapsed + waited
        for (report, _, _, counts), norm, read in zip(pending, norms, steps, strict=True):
            terms = losses_of(read)
            means = {"/".join(key): float(value) / counts[key] for key, value in terms.items()}
            vars(report).update(loss=sum(means.values()), terms=means, norm=norm, notes=notes_of(read))
            if not all(map(math.isfinite, [norm, *means.values()])):
                micro = self.batches.with_budget(self.state.budget).at(report.step - 1)
                require_finite(self.model, terms, norm, report.step, micro, self.batches)
            self.state.remember(report.loss)
            if len(self.model.names) > 1:
                self.state.remember_tasks(by_task(terms, counts))


def wide(numbers: Sequence[float]) -> Tensor:
    """Numbers of the host, as they are."""
    return torch.tensor(numbers, dtype=torch.float64)


def train(
    model: Model,
    method: ActiveMethod,
    batches: Stream,
    optimizer: Optimizer,
    schedule: Callable[[int], float],
    state: TrainState,
    clip_norm: float = 1.0,
    reduction: Literal["mean", "sum"] = "mean",
    weighting: ActiveWeighting = CONSTANT,
    rates: Mapping[str, float] = SAME,
    ahead: bool | None = None,
) -> Iterator[StepReport]:
    """Take steps until `state.total`; the state is up to date whenever a report is yielded.

    `rates` holds the factors of tasks whose learning rate differs; `ahead` says whether a thread prepares the next step
    (by default not on CPUs).
    """
    device = next(one for one in model.parameters() if one.requires_grad).device
    overlap = Overlap.of(device) if comm.size() > 1 else None
    update = Update(model, batches, optimizer, schedule, state, clip_norm, rates, overlap)
    threaded = device.type != "cpu" if ahead is None else ahead  # a CPU's cores are busy with the step itself
    coming = Ahead(model, state.total) if threaded else None
    try:
        yield from _steps(model, method, batches, update, coming, reduction, weighting)
    finally:
        if coming is not None:
            coming.close()


def _steps(
    model: Model, method: ActiveMethod, batches: Stream, update: "Update", coming: Ahead | None, reduction: str,
    weighting: ActiveWeighting,
) -> Iterator[StepReport]:  # fmt: skip
    optimizer, schedule, state = update.optimizer, update.schedule, update.state
    if isinstance(method, Updating):  # FreeAT alone: several updates in a step
        method.update = update.early
    ledger = update.ledger(method)
    model.train()
    while state.step < state.total:
        begin = time.perf_counter()
        micro, counts, local = gradient(
            model, method, batches, state, reduction, weighting, coming, update.overlap
        )  # fmt: skip
        if ledger is not None:
            rate = optimizer.options.lr * schedule(state.step)
            update.reduce()
            length = update.on_device(ledger, local)
            state.step += 1
            yield finished(ledger, method, micro, counts, local, length, rate, begin)
            continue
        whole = comm.add_terms(local)
        terms, notes = losses_of(whole), notes_of(whole)
        update.reduce()
        norm, skipped = update(terms, micro)
        rate = optimizer.options.lr * schedule(state.step)
        state.step += 1
        means = {"/".join(key): float(value) / counts[key] for key, value in terms.items()}
        loss = sum(means.values())
        if not skipped:
            state.remember(loss)
            if len(model.names) > 1:
                state.remember_tasks(by_task(terms, counts))
        seconds = time.perf_counter() - begin
        state.elapsed += seconds
        sizes = whole_step(model, micro, method)
        state.flops += sizes.pop("flops")
        done: dict[str, Any] = {name: int(value) for name, value in sizes.items()}
        yield StepReport(state.step, loss, means, norm, rate, **done, seconds=seconds, skipped=skipped, notes=notes)


def finished(
    ledger: Ledger, method: ActiveMethod, micro: Sequence[Batch], counts: Mapping[tuple[str, str], float], terms: Terms,
    norm: Tensor, rate: float, begin: float,
) -> PendingReport:  # fmt: skip
    """The report of a step whose numbers have not arrived; its seconds hold its share of the last wait."""
    seconds = time.perf_counter() - begin
    ledger.state.elapsed += seconds
    sizes = whole_step(ledger.model, micro, method)
    ledger.state.flops += sizes.pop("flops")
    done: dict[str, Any] = {name: int(value) for name, value in sizes.items()}
    report = PendingReport(ledger, step=ledger.state.step, rate=rate, **done, seconds=seconds + ledger.seconds_waited)
    ledger.add(report, norm, terms, counts)
    return report


def whole_step(model: Model, micro: Sequence[Batch], method: ActiveMethod) -> dict[str, float]:
    """Sequences, tokens, cells and FLOPs of the step, over all processes."""
    plain = isinstance(method, Plain)
    mine = {**describe(micro), "flops": sum(cost_of(model, batch, plain) for batch in micro)}
    said = comm.gather(mine)
    return {name: sum(one[name] for one in said) for name in mine}


def by_task(terms: Terms, counts: Mapping[tuple[str, str], float]) -> dict[str, float]:
    """The mean loss of each task of a step."""
    found: dict[str, float] = {}
    for key, value in terms.items():
        found[key[0]] = found.get(key[0], 0.0) + float(value) / counts[key]
    return found


def cost_of(model: Model, batch: Batch, plain: bool = True) -> float:
    """FLOPs of a micro-batch in a plain step; 0 where they are not known, as with labels in other steps."""
    objective, config, lengths = model.objective(batch.task), model.encoder.net.config, batch.layout.host_lengths
    return flops.step(objective, config, lengths, batch.step) or (flops.labelled(config, lengths) if plain else 0.0)


@dataclass(frozen=True)
class Update:
    """What happens to a gradient: it is checked, clipped, applied and forgotten."""

    model: Model
    batches: Stream
    optimizer: Optimizer
    schedule: Callable[[int], float]
    state: TrainState
    clip_norm: float
    rates: Mapping[str, float] = field(default_factory=dict)
    overlap: Overlap | None = None  # where gradients travel during the backward pass

    def __call__(self, terms: Terms, micro: Sequence[Batch]) -> tuple[float, bool]:
        """The update that ends a step: its gradient norm, and whether fp16 overflowed and it was skipped."""
        scale, norm = self.scale, clip(self.parameters, 0.0)
        skipped = overflowed(norm, self.state)
        if not skipped:
            norm = self.apply(terms, micro, norm, scale)
        self.optimizer.zero_grad()
        return norm, skipped

    def reduce(self) -> None:
        """The gradient of all processes, on each of them."""
        if self.overlap is not None and self.overlap.buckets:
            self.overlap.finish(self.model)
        else:
            comm.reduce_gradients(self.parameters)

    def early(self, terms: Terms, micro: Sequence[Batch]) -> bool:
        """An update inside a step; False leaves an overflow in .grad, since scales change between steps only."""
        comm.reduce_gradients(self.parameters)
        norm = clip(self.parameters, 0.0)
        if self.state.scaler and not math.isfinite(norm):
            return False
        self.apply(comm.add_terms(terms), micro, norm, self.scale)
        self.optimizer.zero_grad()
        return True

    def apply(self, terms: Terms, micro: Sequence[Batch], norm: float, scale: float) -> float:
        """Move the weights, if everything is finite; the gradient's true norm."""
        require_finite(self.model, terms, norm, self.state.step + 1, micro, self.batches)
        norm = rescale(self.parameters, norm, self.clip_norm, scale)
        self.optimizer.step(self.schedule(self.state.step), self.shared_rate())
        return norm

    def ledger(self, method: ActiveMethod) -> Ledger | None:
        """Where numbers wait to be read, on devices that the host can run ahead of.

        Not where the host must decide within a step (fp16's scale, updates inside a step), where the optimiser's rule
        cannot be held back by the device, or where the model is sharded.
        """
        device = next(iter(self.parameters)).device
        decides = self.state.scaler is not None or isinstance(method, Updating) or self.model.sharded
        if device.type != "cuda" or decides or not self.optimizer.can_hold:
            return None
        return Ledger(self.model, self.batches, self.state, torch.zeros((), device=device))

    def on_device(self, ledger: Ledger, terms: Terms) -> Tensor:
        """The update that ends a step, without waiting for anything: the gradient's norm, on the device."""
        norm = norm_of(self.parameters)
        if self.clip_norm:
            factor = (self.clip_norm / (norm + 1e-6)).clamp(max=1.0)
            torch._foreach_mul_([p.grad for p in self.parameters if p.grad is not None], factor)
        self.optimizer.step(self.schedule(self.state.step), self.shared_rate(), ledger.hold(terms, norm))
        self.optimizer.zero_grad()
        return norm

    def shared_rate(self) -> float:
        """The encoder's factor: that of the step's task, or the mean of those of its tasks, by their shares."""
        shares = self.batches.tasks_at(self.state.step)
        if not any(task in self.rates for task in shares):
            return 1.0
        return sum(self.rates.get(task, 1.0) * share for task, share in shares.items()) / sum(shares.values())

    @cached_property
    def parameters(self) -> list[torch.nn.Parameter]:
        """What is trained; collected once, because the walk over all modules takes as long as the optimiser's step."""
        return [p for p in self.model.parameters() if p.requires_grad]

    @property
    def scale(self) -> float:
        """What the loss was multiplied with."""
        return self.state.scaler.scale if self.state.scaler else 1.0


def gradient(
    model: Model,
    method: ActiveMethod,
    batches: Stream,
    state: TrainState,
    reduction: str,
    weighting: ActiveWeighting = CONSTANT,
    coming: Ahead | None = None,
    overlap: Overlap | None = None,
) -> tuple[Sequence[Batch], dict[tuple[str, str], float], Terms]:
    """Gradient of one step; where the device runs out of memory, again with smaller micro-batches."""
    counts: dict[tuple[str, str], float] = {}
    while True:
        stream = batches.with_budget(state.budget)
        micro = coming.at(stream, state.step) if coming else prepare(model, stream.at(state.step))
        if not counts:  # however the step is cut, they are the same
            counts, examples = count_all(model, micro)
        parts = parts_of(stream, micro, counts, examples, state, reduction)
        passes = max(comm.gather(len(micro))) if model.sharded else len(micro)
        collectives = comm.collectives()
        alone = len(parts) == 1 and isinstance(method, Plain) and isinstance(weighting, Constant) and not model.sharded
        try:
            with overlap.during(model, len(micro)) if overlap is not None and alone else nullcontext():
                terms = weighting(method, model, parts)
            idle(model, parts[0], passes - len(micro))
            return micro, counts, terms
        except (torch.OutOfMemoryError, RuntimeError) as error:
            if not out_of_memory(error):
                raise
            if isinstance(method, Updating) and method.updated:  # the step cannot be begun again
                raise RunFailed("out of memory after an update within the step; lower train.token_budget") from None
            if comm.collectives() != collectives:  # nor can it here: the other processes have gone on
                raise RunFailed("out of memory in the middle of a step; lower train.token_budget") from None
            largest = max(int(b.inputs["input_ids"].numel()) for b in micro)
            if all(b.examples == 1 for b in micro):
                raise RunFailed("out of memory with a single sequence; lower train.max_length") from None
            state.budget = max(min(state.budget, largest) // 2, 1)
        model.zero_grad(set_to_none=True)


def idle(model: Model, part: Part, passes: int) -> None:
    """Passes without weight, as many as this process has fewer than the others: a sharded model is gathered by all."""
    for _ in range(passes):
        row = int(part.source.rows_at(part.totals.step)[0])
        backward(model, part.micro[-1] if part.micro else part.source.alone(row), part.totals.times(0.0))


def parts_of(
    stream: Stream, micro: Sequence[Batch], counts: Mapping[tuple[str, str], float], examples: Mapping[str, float],
    state: TrainState, reduction: str,
) -> list[Part]:  # fmt: skip
    """A step's micro-batches task by task, each with its own totals; the same tasks in every process."""
    parts, scale = [], state.scaler.scale if state.scaler else 1.0
    for task, share in stream.tasks_at(state.step).items():
        own = [batch for batch in micro if batch.task == task]
        mine = {key: value for key, value in counts.items() if key[0] == task}
        divisors, number = (dict.fromkeys(mine, 1.0), 1.0) if reduction == "sum" else (mine, examples[task])
        totals = Totals(divisors, scale, number, state.step)
        parts.append(Part(task, own, totals, mine, stream.stream(task), share))
    return parts


def out_of_memory(error: BaseException) -> bool:
    """CUDA has a class for it, other devices a sentence."""
    said = any(words in str(error) for words in ("out of memory", "can't allocate memory"))
    return said or isinstance(error, torch.OutOfMemoryError)


def count_all(model: Model, micro: Sequence[Batch]) -> tuple[dict[tuple[str, str], float], dict[str, float]]:
    """What each term counts over the step of all processes, and each task's examples."""
    mine: dict[tuple[str, str], Any] = {k: float(v) for k, v in count(model, micro).items()}
    for batch in micro:
        mine[EXAMPLES, batch.task] = mine.get((EXAMPLES, batch.task), 0.0) + float(batch.examples)
    whole: dict[tuple[str, str], Any] = comm.add_up(mine)
    examples = {task: whole.pop((kind, task)) for kind, task in list(whole) if kind == EXAMPLES}
    return whole, examples


def count(model: Model, micro: Sequence[Batch]) -> dict[tuple[str, str], float]:
    """What each term counts over these micro-batches: the divisor, known before the first backward."""
    counts: dict[tuple[str, str], float] = {}
    for batch in micro:
        for name, value in model.objective(batch.task).counts(batch.host).items():
            counts[batch.task, name] = counts.get((batch.task, name), 0.0) + value
    return {key: max(value, 1e-12) for key, value in counts.items()}


def overflowed(norm: float, state: TrainState) -> bool:
    """fp16 only: a gradient that is not finite skips the step; twenty in a row end the run."""
    if state.scaler is None:
        return False
    overflow = not math.isfinite(norm)
    state.scaler.update(overflow)
    if state.scaler.in_a_row >= MOST_OVERFLOWS:
        raise RunFailed(
            f"step {state.step + 1}: {MOST_OVERFLOWS} fp16 overflows in a row; use precision bf16 or fp32; "
            f"{AFTER_ALARM}"
        )
    return overflow


def require_finite(model: Model, terms: Terms, norm: float, step: int, micro: Sequence[Batch], batches: Stream) -> None:
    """A NaN or infinity ends the run before the weights are touched (R6)."""
    bad = [f"loss {'/'.join(key)}" for key, value in terms.items() if not math.isfinite(float(value))]
    if not bad and math.isfinite(norm):
        return
    what = ", ".join(bad) or "the gradient norm"
    ids = [id for some in comm.gather(batches.example_ids(guilty(model, micro, batches))) for id in some]
    shown = ", ".join(ids[:8]) + (f" and {len(ids) - 8} more" if len(ids) > 8 else "")
    tasks = ", ".join(sorted({task for some in comm.gather([b.task for b in micro]) for task in some}))
    raise RunFailed(
        f"step {step}: {what} is not finite; task {tasks}, examples {shown}. The weights were not touched; "
        f"lower optim.lr or look at these examples; {AFTER_ALARM}"
    )


@torch.no_grad()
def guilty(model: Model, micro: Sequence[Batch], batches: Stream) -> Sequence[Batch]:
    """The sequences whose loss is not finite even alone; all of the step, where no single one is to blame."""
    alone = [batches.stream(batch.task).alone(int(row)) for batch in micro for row in batch.ids]
    found = [one for one in alone if not all(math.isfinite(float(value)) for value in model(one)[1].values())]
    return found or micro


def rescale(parameters: Sequence[torch.nn.Parameter], norm: float, limit: float, scale: float) -> float:
    """Take the fp16 scale out of the gradient and clip it, in one multiplication; returns the true norm."""
    true = norm / scale
    factor = min(1.0, limit / (true + 1e-6)) / scale if limit else 1.0 / scale
    if factor != 1.0:
        grads = [p.grad for p in parameters if p.grad is not None]
        torch._foreach_mul_(grads, factor)
    return true


def steps_in_all(batches: Stream, epochs: float, max_steps: int | None) -> int:
    """How many steps a run takes."""
    if max_steps is not None:
        return max_steps
    total = math.ceil(batches.steps_per_epoch * epochs - 1e-9)
    if total < 1:
        raise UserError("train.epochs: less than one step")
    return total
