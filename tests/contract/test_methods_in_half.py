"""Methods in half precision, as a run has it: the build's autocast, and the loop's scale of the loss for fp16."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from encodery.training import loop
from encodery.training.loop import LossScale, TrainState
from tests.contract.test_methods import LOUD, an_optimizer, built, share, step
from tests.toolbox.models import gradients

TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
NEAR = {"bf16": 0.02, "fp16": 0.004}  # of the gradient; measured: 0.0083 and 0.0012


def state_of(parts: Any, precision: str, steps: int) -> TrainState:
    return TrainState(steps, budget=parts.batcher.budget, scaler=LossScale() if precision == "fp16" else None)


@pytest.mark.slow
@pytest.mark.parametrize("precision", TYPES)
@pytest.mark.parametrize("kind", ["freelb", "smart"])
def test_a_step_in_half_precision_is_nearly_the_whole_one(tmp_path: Path, kind: str, precision: str) -> None:
    parts, running = built(tmp_path, kind, LOUD[kind], precision=precision)
    assert parts.model.autocast_to == TYPES[precision]
    state = state_of(parts, precision, 2)
    parts.model.train()
    loop.gradient(parts.model, running, parts.batches, state, "mean")
    scale = state.scaler.scale if state.scaler else 1.0
    got = {name: one / scale for name, one in gradients(parts.model).items()}
    assert 1e-5 < share(got, step(tmp_path, kind, LOUD[kind])) < NEAR[precision]
    parts.model.zero_grad()
    reports = list(loop.train(parts.model, running, parts.batches, an_optimizer(parts), lambda _: 1.0, state))
    assert [report.skipped for report in reports] == [False, False]
    assert all(math.isfinite(value) for report in reports for value in (report.norm, *report.notes.values()))
    if kind == "smart":  # the mean of past weights answers in half precision too
        assert reports[1].notes["drift"] > 0
