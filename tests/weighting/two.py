"""A tiny model with three tasks, and a step of each."""

from typing import Any

import numpy as np
import torch

from encodery.config.components import find
from encodery.data.batches import Batches
from encodery.data.mixes import Mix
from encodery.data.task_mixing import Mixed
from encodery.inference.open_model import objective_modules
from encodery.methods.plain import Plain
from encodery.models.model import Model
from encodery.objectives.classification import Classification
from encodery.training.loop import TrainState, count_all, parts_of
from encodery.weighting.base import ActiveWeighting, Part
from tests.toolbox.models import batcher_for, gradients, random_table, small_encoder

TASKS = {
    "t/labels": Classification(labels=["a", "b", "c"], head="linear", head_dropout=0.0),
    "t/number": Classification(form="regression", head="linear", head_dropout=0.0),
    "t/more": Classification(labels=["x", "y"], head="linear", head_dropout=0.0),
}


def three(mix: Mix | None = None, weights: dict[str, float] | None = None) -> tuple[Model, Mixed]:
    """Model and stream."""
    encoder = small_encoder("bert", "padded")
    model = Model(encoder, objective_modules(encoder, TASKS, None, 1), weights).double()
    lengths = [3, 5, 8, 4, 6, 7, 3, 5]
    tables = [
        random_table(lengths, n, i, form)
        for i, (n, form) in enumerate([(3, "single"), (1, "regression"), (2, "single")])
    ]
    batcher = batcher_for(encoder, "padded")
    streams = [Batches(name, table, np.arange(8), 4, 1, 1, batcher) for name, table in zip(TASKS, tables, strict=True)]
    together: Any = find("mix", "together")()
    return model.train(), Mixed.of(streams, mix or together, 1, 3, None)


def parts(model: Model, stream: Mixed, step: int = 0) -> list[Part]:
    """The parts of a step."""
    micro = stream.at(step)
    return parts_of(stream, micro, *count_all(model, micro), TrainState(100, step), "mean")


def alone(model: Model, part: Part, factor: float = 1.0) -> dict[str, torch.Tensor]:
    """The gradient of one part by itself."""
    model.zero_grad(set_to_none=True)
    Plain()(model, part.micro, part.totals.times(factor))
    found = gradients(model)
    model.zero_grad(set_to_none=True)
    return found


def weighed(weighing: ActiveWeighting, model: Model, stream: Mixed, step: int = 0) -> dict[str, torch.Tensor]:
    """The gradient of a step."""
    model.zero_grad(set_to_none=True)
    weighing(Plain(), model, parts(model, stream, step))
    return gradients(model)


def total(*found: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Gradients added up."""
    whole: dict[str, torch.Tensor] = {}
    for one in found:
        for name, value in one.items():
            whole[name] = whole.get(name, torch.zeros_like(value)) + value
    return whole
