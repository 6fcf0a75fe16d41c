"""The next step's micro-batches, prepared in a thread while the device works on this one's.

A step is a function of its number, so what is prepared ahead is what would have been made in time, to the bit. What
cannot be used (the run was stopped, or the device ran out of memory and the step is cut anew) is thrown away.
"""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import torch

from encodery.data.batches import Batch
from encodery.data.task_mixing import Stream
from encodery.models.model import Model


def prepare(model: Model, stream: Stream, step: int) -> list[Batch]:
    """The micro-batches of a step, with what their objectives can draw before the pass."""
    return [model.objective(batch.task).prepare(batch) for batch in stream.at(step)]


class Ahead:
    """Gives the micro-batches of one step after the other; with a thread the next ones are begun at once."""

    def __init__(self, model: Model, total: int, thread: bool):
        self.model, self.total = model, total
        self.pool = ThreadPoolExecutor(1, "next-step") if thread else None
        self.next: tuple[int, int, Future[list[Batch]]] | None = None  # token budget, step

    @classmethod
    def of(cls, model: Model, total: int, device: torch.device) -> "Ahead":
        """With a thread where the device is not the CPU itself, whose cores the step has use for."""
        return cls(model, total, device.type != "cpu")

    def at(self, stream: Stream, step: int) -> Sequence[Batch]:
        """The micro-batches of a step."""
        budget, held = stream.batcher.budget, self.next
        self.next = None
        if held is not None and held[:2] == (budget, step):
            micro = held[2].result()
        else:
            micro = prepare(self.model, stream, step)
        if self.pool is not None and step + 1 < self.total:
            self.next = budget, step + 1, self.pool.submit(prepare, self.model, stream, step + 1)
        return micro

    def close(self) -> None:
        """End the thread; what it was making is not wanted any more."""
        if self.pool is not None:
            self.pool.shutdown(wait=True, cancel_futures=True)
