"""Perturbations of embeddings: what is added, where, and for how long the hook that adds it stands."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor

from encodery.errors import UserError
from encodery.models.kernels.dropout import Draws

Site = Literal["word", "embedding_output", "normalised"]
TINY = 1e-7  # added to a token's variance before its root


class Words:
    """Word embeddings that several passes share, so that the gradient of the table is written once for all of them.

    That gradient is dense, as large as the vocabulary: with short texts a good part of a backward pass. Passes that
    have the same dropout masks share what was drawn for them, too.
    """

    def __init__(self) -> None:
        self.draws = Draws()
        self.leaves: list[tuple[Tensor, Tensor, Tensor]] = []  # ids, rows of the table, the leaf that passes use

    def leaf(self, ids: Tensor, rows: Tensor) -> Tensor:
        """What a pass uses in place of the rows it looked up; its gradient adds up here."""
        if not rows.requires_grad:
            return rows
        for known, _, leaf in self.leaves:
            if known is ids or (ids.device.type == "cpu" and torch.equal(known, ids)):  # elsewhere a wait costs more
                return leaf
        self.leaves.append((ids, rows, rows.detach().requires_grad_()))
        return self.leaves[-1][2]

    def settle(self) -> None:
        """Hand what has been gathered on to the table."""
        for _, rows, leaf in self.leaves:
            if leaf.grad is not None:
                rows.backward(leaf.grad)  # type: ignore[no-untyped-call]
        self.leaves.clear()


class Shift:
    """A perturbation, and the hook that adds it."""

    def __init__(self, values: Tensor, site: Site, detach: bool, words: Words | None):
        self.values, self.site, self.detach, self.words = values, site, detach, words

    def add(self, output: Tensor, unit: Tensor | None = None) -> Tensor:
        """The embeddings with the perturbation, which is counted in `unit`."""
        if output.shape != self.values.shape:  # else it might be broadcast in silence
            raise RuntimeError(f"perturbation {tuple(self.values.shape)} for embeddings {tuple(output.shape)}")
        values = self.values.to(output.dtype)
        return (output.detach() if self.detach else output) + (values if unit is None else unit * values)

    def hook(self, _module: Any, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
        """In place of the module's output."""
        shared = self.words is not None and self.site == "word" and len(inputs) == 1
        return self.add(self.words.leaf(inputs[0], output) if shared and self.words else output)

    def before(self, _module: Any, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """In place of a norm's input: perturbed in units of each token's own standard deviation.

        Under the norm that is the same as to normalise, perturb, and go on; and without a perturbation nothing changes.
        """
        spread = (inputs[0].var(-1, unbiased=False, keepdim=True) + TINY).sqrt()
        return (self.add(inputs[0], spread.detach() if self.detach else spread), *inputs[1:])

    @contextmanager
    def hooked(self, net: Any) -> Iterator[None]:
        """The hook stands during one pass."""
        if self.site == "normalised":
            handle = embedding_norm(net).register_forward_pre_hook(self.before)
        else:
            handle = site_module(net, self.site).register_forward_hook(self.hook)
        try:
            yield
        finally:
            handle.remove()


def site_module(net: Any, site: Site) -> Any:
    """The module whose output is perturbed."""
    module = net.get_input_embeddings() if site == "word" else getattr(net, "embeddings", None)
    if module is None:
        raise UserError(f"method.site: {site} is not supported for {net.config.model_type}; use word")
    return module


def embedding_norm(net: Any) -> Any:
    """The norm that ends the embedding layer."""
    layer = site_module(net, "normalised")
    for name in ("LayerNorm", "norm"):
        if getattr(layer, name, None) is not None:
            return getattr(layer, name)
    raise UserError(f"method.site: {net.config.model_type} has no layer norm after its embeddings; use word")
