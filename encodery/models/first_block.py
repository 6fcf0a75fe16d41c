"""A watch on an encoder's first block: what it gives out, the gradient there, and passes that end with it."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import torch
from torch import Tensor, nn

from encodery.errors import UserError
from encodery.models.encoder import Encoder

BLOCKS = re.compile(r"(^|\.)(layers?|albert_layer_groups)$")


class _Enough(Exception):
    """Ends a pass after the first block, whatever called the encoder."""


class Watch:
    """Inside `with`, `output` is what the first block gave out in the latest pass, with the gradient that came back.

    Passes are those through the encoder's door: a generator that uses the same network is not watched.
    """

    def __init__(self, encoder: Encoder):
        self.encoder, self.stop, self.inside = encoder, False, False
        self.seen: Tensor | None = None

    def __enter__(self) -> Self:
        block = first_block(self.encoder.net)
        self.handles = [
            self.encoder.register_forward_pre_hook(self._begin),
            self.encoder.register_forward_hook(self._leave, always_call=True),
            block.register_forward_hook(self._end),
        ]
        return self

    def __exit__(self, *_: object) -> None:
        self.seen = None
        for handle in self.handles:
            handle.remove()

    def _begin(self, door: nn.Module, _inputs: Any) -> None:
        if door is self.encoder:  # not its copy, which has the same hooks
            self.seen, self.inside = None, True

    def _leave(self, *_: Any) -> None:
        self.inside = False

    def _end(self, _module: Any, _inputs: Any, output: Any) -> None:
        # ALBERT calls one block many times, checkpointing again in the backward pass
        if not self.inside or self.seen is not None:
            return
        self.seen = output[0] if isinstance(output, tuple) else output
        if self.stop:
            raise _Enough
        if self.seen.requires_grad:
            self.seen.retain_grad()

    @property
    def output(self) -> Tensor:
        """Of the first block in the latest pass."""
        if self.seen is None:
            raise RuntimeError("no pass has gone through the first block")
        return self.seen

    def slope(self) -> Tensor:
        """The gradient that came back to the first block, in float32."""
        grad = self.output.grad
        if grad is None:
            raise RuntimeError("no gradient came back to the first block")
        return grad.detach().to(torch.float32)

    @contextmanager
    def only_first(self) -> Iterator[None]:
        """A pass in here ends after the first block."""
        self.stop = True
        try:
            yield
        except _Enough:
            pass
        finally:
            self.stop = False


def first_block(net: nn.Module) -> nn.Module:
    """The first layer of an encoder."""
    for name, module in net.named_modules():
        if isinstance(module, nn.ModuleList) and BLOCKS.search(name):
            return module[0]
    raise UserError(f"method.kind: yopo cannot find the first layer of {type(net).__name__}")
