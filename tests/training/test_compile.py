"""`train.compile`: compiled layers train as plain ones do, see perturbations, and say when they are compiled again."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from encodery.errors import UserError
from encodery.runs.directory import RunDir
from tests.toolbox.runs import metrics_of, run, settings, weights_of

STILL = {"dropout": 0.0, "attention_dropout": 0.0, "head_dropout": 0.0}


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[nn.Module]:
    """What was compiled. Dynamo traces; its eager backend needs no C++ compiler and keeps the arithmetic."""
    whole, found = nn.Module.compile, list[nn.Module]()

    def traced(self: nn.Module, **options: Any) -> None:
        found.append(self)
        whole(self, backend="eager", **options)

    monkeypatch.setattr(nn.Module, "compile", traced)
    return found


def losses_of(one: RunDir) -> list[float]:
    return [line["loss"] for line in metrics_of(one) if "loss" in line]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["plain", "freelb"])
def test_compiled_layers_train_to_the_same_losses(tmp_path: Path, compiled: list[nn.Module], method: str) -> None:
    """Without dropout: a compiled last layer stays whole, and would draw for all of its tokens.

    With FreeLB the perturbation is added to embeddings, which are not compiled: it is seen.
    """
    few = {"max_steps": 3, "evaluate": "never"}
    unasked = {"evaluate_on": []}  # answers would be traced again, without gradients
    with_method = {"kind": method, **({"adv_lr": 0.5, "log_attack": 0} if method == "freelb" else {})}
    tree = settings(tmp_path, dev=8, model=STILL, train=few, task=unasked, method=with_method)
    plain = run(tree, tmp_path / "plain")
    asked = settings(tmp_path, model=STILL, train={**few, "compile": True}, task=unasked, method=with_method)
    traced = run(asked, tmp_path / "compiled")
    assert len(compiled) == 2  # the layers, and nothing else
    assert losses_of(plain) == pytest.approx(losses_of(traced), rel=1e-5)
    assert weights_of(plain).keys() == weights_of(traced).keys()
    said = [line for line in (traced.path / "log.txt").read_text().splitlines() if "compiled" in line]
    assert "step 1  compiled" in said[0]
    assert len(said) <= 2  # other lengths are no reason to compile again and again


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler, which inductor needs on a CPU")
def test_inductor_compiles_once_for_all_lengths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The backend that people get: real kernels, the losses of plain layers, and nothing compiled after two steps."""
    monkeypatch.setattr("torch._inductor.config.compile_threads", 1)  # no pool of processes that import torch
    few = {"max_steps": 5, "evaluate": "never"}
    unasked = {"evaluate_on": []}
    plain = run(settings(tmp_path, dev=8, model=STILL, train=few, task=unasked), tmp_path / "plain")
    asked = settings(tmp_path, model=STILL, train={**few, "compile": True}, task=unasked)
    compiled = run(asked, tmp_path / "compiled")
    assert losses_of(plain) == pytest.approx(losses_of(compiled), rel=1e-5)
    said = [line for line in (compiled.path / "log.txt").read_text().splitlines() if "  compiled " in line]
    assert "step 1  compiled" in said[0]
    assert all("step 1  " in line or "step 2  " in line for line in said)


@pytest.mark.slow
def test_a_method_that_looks_into_the_first_layer_is_refused(tmp_path: Path, compiled: list[nn.Module]) -> None:
    tree = settings(tmp_path, train={"max_steps": 1, "compile": True}, method={"kind": "yopo"})
    with pytest.raises(UserError, match=r"train.compile: method yopo looks into the first layer"):
        run(tree, tmp_path / "run")
