"""Importance sampling (Katharopoulos and Fleuret 2018, arXiv 1803.00942): rows with large gradients more often.

score    s_i = ‖∂loss / ∂z_i‖₂ at the logits, which bounds the gradient's norm up to a constant; for one label it is
         ‖softmax(z_i) − onehot(y_i)‖₂
draw     b of B = presample · b uniform rows, with replacement, p_i = s_i / Σ s
weight   w_i = 1 / (B · p_i): the expected gradient is the uniform one
switch   τ = 1 / √(1 − Σ (g − 1/n)² / Σ g²), g = s / Σ s, smoothed; on where τ > (B + 3b) / (3b), else plain training
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from encodery.data import rng
from encodery.data.batches import Batch
from encodery.distributed import comm
from encodery.errors import UserError
from encodery.methods.base import ActiveMethod, Method, Presampling, Totals, add, backward, note, step_of
from encodery.models.model import Model, Outputs, Terms

MOST_NEWS = 10  # switches that are logged one by one


class Importance(Method):
    """Importance sampling: draws rows by the size of their gradient and weights them so that the expected gradient
    stays the same, once that reduces the variance enough."""

    draws_rows = True

    presample: int = Field(default=3, ge=2)
    """Rows to score for each row to train on."""
    threshold: float | None = Field(default=None, ge=0)
    """Variance reduction τ above which sampling is switched on; 0: always. Default: (B + 3b) / (3b), which is 2 for
    presample 3. τ is the root mean square of the scores divided by their mean, and exceeds 2 only at high accuracy
    (docs/data-selection.md)."""
    momentum: float = Field(default=0.9, ge=0, lt=1)
    """Momentum of the running average of τ."""
    exponent: float = Field(default=1.0, gt=0, le=1)
    """Exponent of the weights. 1 is unbiased; smaller values favour hard rows."""
    smoothing: float = Field(default=0.0, ge=0)
    """Fraction of the mean score to add to every score."""
    dropout: bool = False
    """Keep dropout on when scoring."""

    def start(self, model: Model) -> ActiveMethod:
        """What holds the smoothed τ."""
        for objective in model.questions.values():
            options = getattr(objective, "options", None)
            if getattr(options, "form", None) is None or getattr(options, "pool", None):
                raise UserError(
                    "method.kind: importance needs a task with one label or number per text, read in one window"
                )
        return Sampling(self)

    def __call__(self, model: Model, micro: Sequence[Batch], totals: Totals) -> Terms:
        """Its state lives in what `start` gives."""
        raise TypeError("importance sampling has state: use what start() gives")


@dataclass
class Tally:
    """When and how often sampling was on."""

    step: int = 0  # the last one that was counted
    steps: int = 0
    on: int = 0
    first: int = 0  # step at which it was on
    last: int = 0
    switches: int = 0
    top: float = 0.0  # highest smoothed τ
    limit: float = 0.0  # which it had to pass

    def add(self, step: int, on: bool, tau: float, limit: float) -> None:
        self.switches += on != (self.on > 0 and self.last == self.step)
        if on:
            self.on, self.first, self.last = self.on + 1, self.first or step, step
        self.step, self.steps = step, self.steps + 1
        self.top, self.limit = max(self.top, tau), limit

    def __str__(self) -> str:
        if not self.on:
            return (
                f"WARNING: importance sampling was never on in {self.steps:,} steps (highest τ {self.top:.2f}, needed "
                f"{self.limit:.2f}): this is plain training; lower method.threshold, or draw by saved scores"
            )
        return (
            f"importance sampling was on in {self.on:,} of {self.steps:,} steps ({100 * self.on / self.steps:.1f} %), "
            f"first at step {self.first:,}, last at {self.last:,}; highest τ {self.top:.2f}"
        )


class Sampling(Presampling):
    """Importance sampling at work."""

    def __init__(self, options: Importance):
        super().__init__()
        self.options, self.taus, self.task = options, dict[str, float](), ""  # τ of each task, and whose step this is
        self.tallies: dict[str, Tally] = {}
        self.news: list[str] = []

    @property
    def tau(self) -> float:
        """The smoothed τ of the task at hand."""
        return self.taus.get(self.task, 0.0)

    def __call__(self, model: Model, micro: Sequence[Batch], totals: Totals) -> Terms:
        """All micro-batches of the step: plain, or of rows that are drawn by their scores."""
        size = sum(comm.gather(sum(batch.examples for batch in micro)))
        self.task = micro[0].task if self.source is None else self.source.task  # a process may have no rows
        before, on = self.tau, self.tau > self.limit(size)
        self.count(step_of(micro, totals) + 1, on, before, self.limit(size))
        found = self.drawn(model, micro, totals, size) if on else self.plain(model, micro, totals)
        add(found, note("tau", torch.tensor(before), 1.0))
        add(found, note("on", torch.tensor(float(on)), 1.0))
        return found

    def count(self, step: int, on: bool, tau: float, limit: float) -> None:
        """Keep the tally, and tell where sampling is switched; a step that is begun again counts once."""
        tally = self.tallies.setdefault(self.task, Tally())
        if step == tally.step:
            return
        if on != (tally.on > 0 and tally.last == tally.step) and tally.switches < MOST_NEWS:
            sign = f"> {limit:.2f}" if on else f"≤ {limit:.2f}"
            more = "" if tally.switches + 1 < MOST_NEWS else "; further switches are counted, not logged"
            self.news.append(f"importance sampling {'on' if on else 'off'} for {self.task} (τ {tau:.2f} {sign}){more}")
        tally.add(step, on, tau, limit)

    def messages(self) -> list[str]:
        """Where it was switched on or off."""
        found, self.news = self.news, []
        return found

    def summary(self) -> list[str]:
        """How often it was on, task by task."""
        several = len(self.tallies) > 1
        return [str(tally) + (f" [{task}]" if several else "") for task, tally in self.tallies.items()]

    def limit(self, size: int) -> float:
        """The τ from which drawing pays: B passes forward more must save as many rows."""
        given = self.options.threshold
        if given is not None:
            return given if given > 0 else -1.0
        return (self.options.presample * size + 3 * size) / (3 * size)

    def plain(self, model: Model, micro: Sequence[Batch], totals: Totals) -> Terms:
        """Uniform rows; their scores say whether drawing would pay."""
        summed: Terms = {}
        scores = []
        for batch in micro:
            outputs, terms = backward(model, batch, totals)
            scores.append(score(model, outputs, batch))
            add(summed, terms)
        mine = torch.cat(scores).tolist() if scores else []
        self.learn(torch.tensor([value for some in comm.gather(mine) for value in some], dtype=torch.float64))
        return summed

    def drawn(self, model: Model, micro: Sequence[Batch], totals: Totals, size: int) -> Terms:
        """Score a large uniform batch, draw from it, train on what was drawn."""
        assert self.source is not None
        step = step_of(micro, totals)
        rows = self.source.uniform_rows(step, self.options.presample * size)
        scores = self.scores(model, rows, step)
        self.learn(scores)
        uniform = rng.uniform(rng.key(self.source.seed, "importance", step), np.arange(size), 1)[:, 0]
        chosen, weights = draw(scores, torch.from_numpy(uniform), self.options.exponent, self.options.smoothing)
        places, where = np.unique(chosen.numpy(), return_inverse=True)
        joint = np.bincount(where, weights=weights.numpy())  # a row that is drawn twice goes through once
        by_row = dict(zip(rows[places].tolist(), joint.tolist(), strict=True))
        summed: Terms = {}
        for batch in self.source.of_rows(rows[places], step):
            mine = torch.tensor([by_row[row] for row in batch.ids.tolist()], device=batch.layout.lengths.device)
            own = mine.float() if batch.weights is None else batch.weights * mine
            add(summed, backward(model, replace(batch, weights=own), totals)[1])
        return summed

    @torch.no_grad()
    def scores(self, model: Model, rows: np.ndarray, step: int) -> Tensor:
        """Of table rows, in their order; nothing that watches training passes sees these."""
        assert self.source is not None
        values = torch.zeros(len(rows), dtype=torch.float64)
        index = {row: i for i, row in enumerate(rows.tolist())}
        watch, model.watch = model.watch, None
        model.train(self.options.dropout)
        try:
            for batch in self.source.of_rows(rows, step):
                values[[index[row] for row in batch.ids.tolist()]] = score(model, model.outputs(batch), batch)
        finally:
            model.train()
            model.watch = watch
        return comm.sum_(values)  # each process has scored its share

    def learn(self, scores: Tensor) -> None:
        self.taus[self.task] = self.options.momentum * self.tau + (1 - self.options.momentum) * reduction(scores)

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint must hold."""
        taus = {f"tau.{task}": torch.tensor([tau], dtype=torch.float64) for task, tau in self.taus.items()}
        return taus | {
            f"tally.{task}": torch.tensor(astuple(tally), dtype=torch.float64) for task, tally in self.tallies.items()
        }

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        of = {
            kind: {name.removeprefix(kind): value.tolist() for name, value in tensors.items() if name.startswith(kind)}
            for kind in ("tau.", "tally.")
        }
        self.taus = {task: float(value[0]) for task, value in of["tau."].items()}
        self.tallies = {task: Tally(*map(int, v[:6]), *v[6:]) for task, v in of["tally."].items()}


def score(model: Model, outputs: Outputs, batch: Batch) -> Tensor:
    """The norm of the loss's gradient at the logits of each sequence, 0 where the label is hidden."""
    with torch.enable_grad():
        logits = outputs["logits"].detach().requires_grad_()
        losses = model.objective(batch.task).losses({"logits": logits}, replace(batch, weights=None))
        slope = torch.autograd.grad(torch.stack(list(losses.values())).sum(), logits)[0]
    found: Tensor = torch.linalg.vector_norm(slope.double(), dim=1).cpu()
    return found


def reduction(scores: Tensor) -> float:
    """τ: 1 for equal scores, larger the more a few rows outweigh the others."""
    total = float(scores.sum())
    if total <= 0:
        return 1.0
    shares = scores / total
    gap = float((shares - 1 / len(shares)).square().sum() / shares.square().sum())
    return 1 / math.sqrt(max(1 - gap, 1e-12))


def draw(scores: Tensor, uniform: Tensor, exponent: float = 1.0, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
    """Positions drawn with replacement, as many as there are numbers in [0, 1), and the weight of each."""
    smooth = scores + smoothing * scores.mean()
    if float(smooth.sum()) <= 0:
        smooth = torch.ones_like(scores)
    chances = smooth / smooth.sum()
    chosen = torch.searchsorted(chances.cumsum(0), uniform.double(), right=True).clamp(max=len(scores) - 1)
    weights = 1 / (len(scores) * chances[chosen])
    if exponent == 1.0:
        return chosen, weights
    soft = weights**exponent  # rescaled so that the drawn rows together weigh in the same
    return chosen, soft * (weights * smooth[chosen]).sum() / (soft * smooth[chosen]).sum()
