"""The next step's micro-batches, prepared in a thread while the device works on this one's.

A step is a function of its number, so what is prepared ahead is what would have been made in time, to the bit. What
cannot be used (the run was stopped, or the device ran out of memory and the step is cut anew) is thrown away.
"""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from encodery.data.batches import Batch
from encodery.data.task_mixing import Stream
from encodery.models.model import Model, prepare


class Ahead:
    """Gives the micro-batches of one step after the other; the next ones are begun at once."""

    def __init__(self, model: Model, total: int):
        self.model, self.total = model, total
        self.pool = ThreadPoolExecutor(1, "next-step")
        self.next: tuple[int, int, Future[list[Batch]]] | None = None  # token budget, step

    def at(self, stream: Stream, step: int) -> Sequence[Batch]:
        """The micro-batches of a step."""
        budget, held = stream.batcher.budget, self.next
        self.next = None
        expected = held is not None and held[:2] == (budget, step)
        micro = held[2].result() if held and expected else self.make(stream, step)
        if step + 1 < self.total:
            self.next = budget, step + 1, self.pool.submit(self.make, stream, step + 1)
        return micro

    def make(self, stream: Stream, step: int) -> list[Batch]:
        return prepare(self.model, stream.at(step))

    def close(self) -> None:
        """End the thread; what it was making is not wanted any more."""
        self.pool.shutdown(wait=True, cancel_futures=True)
