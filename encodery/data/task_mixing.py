"""The training stream of several tasks: which batch of which task a step sees is a function of (seed, step)."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from encodery.data.batches import Batch, Batches, MicroBatcher
from encodery.data.mixes import Mix, Numbers, Size

Draw = tuple[int, int]  # number of a task, and which of its batches


class Orders:
    """The epochs of a mix, made when they are asked for: nothing is stored, nothing replayed row by row."""

    def __init__(self, mix: Mix, sizes: Sequence[Size], epochs: float, seed: int):
        self.mix, self.sizes, self.epochs, self.seed = mix, sizes, epochs, seed
        self.length = mix.length(sizes)
        self.before = [np.zeros(len(sizes), np.int64)]  # batches of each task that earlier epochs had
        self.latest: tuple[int, Numbers] = (-1, np.zeros(0, np.int64))

    def epoch(self, number: int) -> Numbers:
        """The tasks of an epoch's batches; the latest one is kept. Several threads may ask: each gets what it made."""
        kept, order = self.latest
        if kept != number:
            order = self.mix.order(self.sizes, number, self.epochs, self.seed)
            self.latest = number, order
        return order

    def done(self, number: int) -> Numbers:
        """How many batches of each task came before an epoch."""
        before = self.before  # another thread may make it longer too: a longer one takes its place, none is changed
        while len(before) <= number:
            drawn = np.bincount(self.epoch(len(before) - 1), minlength=len(self.sizes))
            before = [*before, before[-1] + drawn]
        self.before = before
        return before[number]

    def draws(self, epoch: int, begin: int, count: int) -> list[Draw]:
        """The batches at some places of an epoch."""
        done = np.zeros(len(self.sizes), np.int64) if self.mix.neighbours else self.done(epoch)
        order = self.epoch(epoch)
        seen = done + np.bincount(order[:begin], minlength=len(self.sizes))
        drawn = []
        for task in order[begin : begin + count].tolist():
            drawn.append((task, int(seen[task])))
            seen[task] += 1
        return drawn


@dataclass(frozen=True)
class Mixed:
    """Several tasks' streams as one. A batch holds one task; a step holds as many batches as the mix says."""

    streams: Sequence[Batches]
    orders: Orders

    @classmethod
    def of(cls, streams: Sequence[Batches], mix: Mix, seed: int, epochs: float, max_steps: int | None) -> "Mixed":
        """Streams of different tasks, mixed; epochs are needed where a mix changes with them."""
        sizes = [Size(s.task, len(s.rows), s.steps_per_epoch) for s in streams]
        mix.check([size.name for size in sizes])
        if max_steps is not None:
            epochs = max_steps * mix.in_step(len(sizes)) / mix.length(sizes)
        own = [
            replace(s, own=f" {s.drawn_as or s.task}" if len(streams) > 1 else "", neighbours=mix.neighbours)
            for s in streams
        ]
        return cls(own, Orders(mix, sizes, epochs, seed))

    @property
    def in_step(self) -> int:
        """Batches of a step."""
        return self.orders.mix.in_step(len(self.streams))

    @property
    def steps_per_epoch(self) -> int:
        """Steps of one pass; the last one may hold fewer batches."""
        return -(-self.orders.length // self.in_step)

    @property
    def batcher(self) -> MicroBatcher:
        """The same for all tasks."""
        return self.streams[0].batcher

    def with_budget(self, budget: int) -> "Mixed":
        if budget == self.batcher.budget:
            return self
        return replace(self, streams=[stream.with_budget(budget) for stream in self.streams])

    def stream(self, task: str) -> Batches:
        return next(stream for stream in self.streams if stream.task == task)

    def drawn(self, step: int) -> list[Draw]:
        """Which batches a step holds."""
        epoch, place = divmod(step, self.steps_per_epoch)
        return self.orders.draws(epoch, place * self.in_step, self.in_step)

    def tasks_at(self, step: int) -> dict[str, float]:
        """The tasks of a step, and how much each counts."""
        drawn = self.drawn(step)
        often = Counter(task for task, _ in drawn)
        return {self.streams[t].task: 1.0 if self.orders.mix.summed else n / len(drawn) for t, n in often.items()}

    def at(self, step: int) -> list[Batch]:
        """The micro-batches of a step."""
        drawn = enumerate(self.drawn(step))
        return [batch for place, (task, number) in drawn for batch in self.streams[task].nth(number, step, place)]

    def example_ids(self, micro: Sequence[Batch]) -> list[str]:
        return [id for batch in micro for id in self.stream(batch.task).example_ids([batch])]


Stream = Batches | Mixed
