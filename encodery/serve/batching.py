"""Requests that wait together are answered together: one thread owns the model, and takes what is there.

While the model works on one batch, the next one gathers by itself. So nothing waits for a timer: a lone request is
answered at once, and many small ones become large batches.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace

from encodery.errors import EncoderyError
from encodery.tasks.base import Answer, Example

AnswerAll = Callable[[Sequence[Example]], list[Answer]]


class Full(Exception):
    """As many requests wait as may wait."""


class Closed(Exception):
    """The server is ending."""


@dataclass(frozen=True)
class Waiting:
    """A request in the queue."""

    examples: Sequence[Example]
    future: "Future[list[Answer]]"


class Batcher:
    """The queue and the thread that answers it."""

    def __init__(self, answer: AnswerAll, batch: int = 64, waiting: int = 256):
        """`batch`: texts that are answered together (a larger request is not cut); `waiting`: requests in the queue."""
        self.answer, self.batch, self.most = answer, batch, waiting
        self.queue: deque[Waiting] = deque()
        self.changed = threading.Condition()
        self.closed = False
        self.batches = self.texts = self.requests = 0  # so far
        self.thread = threading.Thread(target=self._work, name="model", daemon=True)
        self.thread.start()

    def submit(self, examples: Sequence[Example]) -> "Future[list[Answer]]":
        """Answers in the order of the examples, once they are there."""
        future: Future[list[Answer]] = Future()
        with self.changed:
            if self.closed:
                raise Closed
            if len(self.queue) >= self.most:
                raise Full
            self.queue.append(Waiting(examples, future))
            self.changed.notify()
        return future

    def close(self) -> None:
        """Answer what waits, take nothing more, and end the thread."""
        with self.changed:
            self.closed = True
            self.changed.notify()
        self.thread.join()

    def _work(self) -> None:
        while group := self._take():
            self._settle(group)

    def _take(self) -> list[Waiting]:
        """The requests at the head of the queue that make one batch; empty at the end."""
        with self.changed:
            while not self.queue:
                if self.closed:
                    return []
                self.changed.wait()
            group = [self.queue.popleft()]
            size = len(group[0].examples)
            while self.queue and size + len(self.queue[0].examples) <= self.batch:
                group.append(self.queue.popleft())
                size += len(group[-1].examples)
        return [one for one in group if one.future.set_running_or_notify_cancel()] or self._take()

    def _settle(self, group: Sequence[Waiting]) -> None:
        """Answer a batch. If it fails each of its requests is tried alone, so that one cannot spoil the others."""
        joined = [example for one in group for example in one.examples]
        numbered = [replace(example, id=str(i)) for i, example in enumerate(joined)]
        try:
            answers = self.answer(numbered)
        except Exception as error:
            if len(group) > 1:
                for one in group:
                    self._settle([one])
                return
            group[0].future.set_exception(error if isinstance(error, EncoderyError) else Failed(error))
            return
        self.batches, self.requests, self.texts = (
            self.batches + 1, self.requests + len(group), self.texts + len(joined),
        )  # fmt: skip
        begin = 0
        for one in group:
            one.future.set_result(answers[begin : begin + len(one.examples)])
            begin += len(one.examples)


class Failed(Exception):
    """The model could not answer; why is not for strangers."""

    def __init__(self, cause: Exception):
        super().__init__("the model could not answer this request")
        self.__cause__ = cause
