"""`train.compile`: the compiled encoder trains as the plain one does, and its folder loads without it."""

from pathlib import Path
from typing import Any

import pytest
from torch import nn

from tests.toolbox.runs import metrics_of, run, settings, weights_of


@pytest.mark.slow
def test_a_compiled_encoder_trains_to_the_same_losses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dynamo traces the whole encoder; its eager backend needs no C++ compiler and keeps the arithmetic.

    Without dropout: a compiled last layer stays whole, and would draw for all of its tokens.
    """
    whole, compiled = nn.Module.compile, []

    def traced(self: nn.Module, **options: Any) -> None:
        compiled.append(self)
        whole(self, backend="eager", **options)

    monkeypatch.setattr(nn.Module, "compile", traced)
    few = {"max_steps": 1, "evaluate": "never"}
    unasked = {"evaluate_on": []}  # answers would be traced again, without gradients
    still = {"dropout": 0.0, "attention_dropout": 0.0, "head_dropout": 0.0}
    plain = run(settings(tmp_path, dev=8, model=still, train=few, task=unasked), tmp_path / "plain")
    asked = settings(tmp_path, model=still, train={**few, "compile": True}, task=unasked)
    traced_run = run(asked, tmp_path / "compiled")
    assert len(compiled) == 1
    losses = [[line["loss"] for line in metrics_of(one) if "loss" in line] for one in (plain, traced_run)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert weights_of(plain).keys() == weights_of(traced_run).keys()
