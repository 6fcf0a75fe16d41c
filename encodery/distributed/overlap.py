"""Gradients of several processes, added up while the backward pass runs.

During the pass of a step's last micro-batch each gradient is final when it arrives, so a bucket can travel as soon as
all of its gradients are there; the backend sends it on a stream of its own. All processes send the same buckets in the
same order: those of the last layers first, what brought no gradient in time in the step before last of all. Nothing is
read from the device: tables of embeddings travel whole, as the others do.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from encodery.distributed import comm

WHERE = {"cuda"}  # on CPUs, whose cores the pass itself has use for, gradients are sent after it
ABSENT, LATE, IN_TIME = range(3)  # no gradient here; one of an earlier micro-batch; one of the last pass


@dataclass
class Bucket:
    """Parameters whose gradients travel together."""

    parameters: list[nn.Parameter]
    missing: set[int]  # ids of those whose gradients have not arrived
    flat: Tensor | None = None
    work: Any = None


@dataclass
class Overlap:
    """One for a run; `during` for each step, then `finish` instead of `comm.reduce_gradients`."""

    late: set[str] = field(default_factory=set)  # names of what no process had in time, in the step before
    buckets: list[Bucket] = field(default_factory=list)
    arrived: dict[int, int] = field(default_factory=dict)  # id of a parameter -> ABSENT, LATE, IN_TIME
    sent: int = 0

    @classmethod
    def of(cls, device: torch.device) -> "Overlap | None":
        """One, if there are other processes and a device that sends by itself."""
        return cls() if comm.size() > 1 and device.type in WHERE else None

    @contextmanager
    def during(self, model: nn.Module, passes: int) -> Iterator[None]:
        """Around the passes of a step: in the last of them gradients are sent as they come."""
        self.begin(model)
        handles: list[Any] = []
        seen = 0

        def before(*_: Any) -> None:
            nonlocal seen
            seen += 1
            if seen == passes:
                every = [p for bucket in self.buckets for p in bucket.parameters]
                handles.extend(p.register_post_accumulate_grad_hook(self.take) for p in every)  # type: ignore[no-untyped-call]

        counter = model.register_forward_pre_hook(before)
        try:
            yield
            while self.sent < len(self.buckets):  # before the processes speak of anything else
                self.send()
        finally:
            counter.remove()
            for handle in handles:
                handle.remove()

    def begin(self, model: nn.Module) -> None:
        """Buckets of this step, in the order in which they travel."""
        named = [(n, p) for n, p in model.named_parameters() if p.requires_grad and not comm.sends_rows(p)]
        order = [p for n, p in reversed(named) if n not in self.late] + [p for n, p in named if n in self.late]
        self.buckets = [Bucket(some, {id(p) for p in some}) for some in comm.buckets(order)]
        self.arrived, self.sent = {}, 0

    def take(self, parameter: Tensor) -> None:
        """A gradient is final."""
        self.arrived[id(parameter)] = IN_TIME
        for bucket in self.buckets[self.sent :]:
            bucket.missing.discard(id(parameter))
        while self.sent < len(self.buckets) and not self.buckets[self.sent].missing:
            self.send()

    def send(self) -> None:
        """The next bucket, without waiting for it. What has no gradient here counts as zeros."""
        bucket = self.buckets[self.sent]
        self.sent += 1
        with comm.contact(), torch.no_grad():
            parts = [p.new_zeros(p.numel()) if p.grad is None else p.grad.reshape(-1) for p in bucket.parameters]
            for p in bucket.parameters:
                self.arrived.setdefault(id(p), ABSENT if p.grad is None else LATE)
            bucket.flat = torch.cat(parts) if len(parts) > 1 else parts[0]
            bucket.work = dist.all_reduce(bucket.flat, async_op=True)

    def finish(self, model: nn.Module) -> None:
        """The gradient of the whole step on every process, as `comm.reduce_gradients` gives it."""
        named = {id(p): n for n, p in model.named_parameters()}
        every = [p for bucket in self.buckets for p in bucket.parameters]
        with comm.contact():
            said = comm.gathered(torch.tensor([self.arrived[id(p)] for p in every])).amax(0).tolist() if every else []
            for bucket in self.buckets:
                bucket.work.wait()
        best = dict(zip(map(id, every), said, strict=True))
        for bucket in self.buckets:
            assert bucket.flat is not None
            _give_back(bucket.parameters, bucket.flat, best)
        self.late = {named[id(p)] for p in every if best[id(p)] != IN_TIME}
        self.buckets = []
        comm.reduce_gradients(p for p in model.parameters() if p.requires_grad and comm.sends_rows(p))


def _give_back(parameters: Sequence[nn.Parameter], flat: Tensor, best: dict[int, int]) -> None:
    """The sums become the gradients; what had none anywhere stays without, so that weight decay leaves it alone."""
    for one, part in zip(parameters, torch.split(flat, [p.numel() for p in parameters]), strict=True):
        one.grad = None if best[id(one)] == ABSENT else part.view_as(one)
