"""GraNd (Paul, Ganguli and Dziugaite 2021): the norm of the loss's gradient at the weights, row by row.

last  at the last layer W·h + b: ‖softmax(z) − onehot(y)‖₂ · √(‖h‖² + 1), without any backward pass
all   at all weights, by a backward pass for each row (slow)

At fresh weights it did not replicate in later work; give runs that are some way trained (`runs/x@25%`).
"""

from typing import Literal

import numpy as np
import torch
from torch import nn

from encodery.data.batches import Batch, in_order
from encodery.errors import UserError
from encodery.inference.classifier import CHUNK, Classifier, open_classifier
from encodery.methods.base import losses_of
from encodery.selectors.base import Numbers, Pool, Ranked, Selector
from encodery.tasks.base import Example


class Grand(Selector):
    """Rows with the largest gradient first, averaged over several models."""

    needs = ("models",)

    weights: Literal["last", "all"] = "last"
    """Gradient to measure. last: of the last layer; all: of all weights (one backward pass per row)."""

    def __call__(self, pool: Pool, count: int) -> Ranked:
        if not pool.models:
            raise UserError("select: grand needs trained models: name runs (or runs/x@25%) in runs")
        scores = np.mean([self.norms(open_classifier(name, "cpu"), pool) for name in pool.models], 0)
        return Ranked(pool.sorted(scores), scores)

    def norms(self, model: Classifier, pool: Pool) -> Numbers:
        """One number for each row of the pool."""
        if set(model.labels) != set(pool.label_names):
            raise UserError(f"select: {model.source} has other labels than the pool ({', '.join(model.labels)})")
        model.model.eval()
        norms = np.empty(len(pool))
        for begin in range(0, len(pool), CHUNK):
            part = pool.examples[begin : begin + CHUNK]
            norms[begin : begin + len(part)] = norms_of(model, part, self.weights)
        return norms


def norms_of(model: Classifier, examples: list[Example], weights: str) -> Numbers:
    """Gradient norms of examples, in their order."""
    from encodery.analysis.attack import labelled

    table = labelled(model, model.head, examples)
    norms = np.empty(len(examples))
    if weights == "last":
        for batch in in_order(table, model.batcher, model.head.name):
            norms[batch.ids.numpy()] = last_layer(model, batch)
        return norms
    for row in range(len(examples)):
        batch = model.batcher.batch(table, np.array([row]), model.head.name, 0)
        model.model.zero_grad(set_to_none=True)
        torch.stack(list(losses_of(model.model(batch)[1]).values())).sum().backward()  # type: ignore[no-untyped-call]
        squares = [p.grad.double().square().sum() for p in model.model.parameters() if p.grad is not None]
        norms[row] = float(torch.stack(squares).sum().sqrt())
    model.model.zero_grad(set_to_none=True)
    return norms


@torch.no_grad()
def last_layer(model: Classifier, batch: Batch) -> Numbers:
    """In closed form, from what the last layer is given and what it gives out."""
    seen: list[torch.Tensor] = []
    last = last_linear(model)
    handle = last.register_forward_hook(lambda _m, given, _o: seen.append(given[0].double()))
    try:
        logits = model.model.outputs(batch)["logits"].double()
    finally:
        handle.remove()
    error = logits.softmax(1)
    error[torch.arange(len(error)), batch.targets["label"]] -= 1.0
    size = seen[-1].reshape(len(error), -1).square().sum(1) + (last.bias is not None)
    return np.asarray((error.norm(dim=1) * size.sqrt()).cpu())


def last_linear(model: Classifier) -> nn.Linear:
    """The layer that makes the logits."""
    head = model.model.objective(model.head.name).head
    found = [m for m in head.modules() if isinstance(m, nn.Linear) and m.out_features == len(model.labels)]
    if len(found) != 1:
        raise UserError(f"select: {model.source} has no single last layer; use weights: all")
    return found[0]
