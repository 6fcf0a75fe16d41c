"""What training asks of the encoder is asked of an objective's generator too."""

from typing import Any

import pytest
import torch
from torch import nn

from encodery.config.schema import TrainOptions
from encodery.methods.base import seed_dropout
from encodery.models.model import Model, make_ready, networks
from tests.objectives.pretraining import asked, batch_of, text_table

LENGTHS = [12, 9, 5]


def gradients(model: Model) -> dict[str, torch.Tensor]:
    """Of both losses, with dropout."""
    batch = batch_of(model.train(), text_table(LENGTHS))
    seed_dropout(batch)
    torch.stack(list(model(batch)[1].values())).sum().backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def electra(options: dict[str, Any] | None = None) -> Model:
    return asked("electra", {"generator_size": 0.5} | (options or {}), dropout=0.1)


def test_checkpointing_reaches_the_generator_and_changes_no_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, less = electra(), electra()
    make_ready(less, TrainOptions(gradient_checkpointing=True), torch.device("cpu"), "fp32")
    generator = less.objective("t").generator.encoder.net
    assert [net.is_gradient_checkpointing for net in (less.encoder.net, generator)] == [True, True]
    passes = []
    generator.encoder.layer[0].attention.register_forward_hook(lambda *_: passes.append(1))
    wanted, found = gradients(plain), gradients(less)
    assert len(passes) == 2  # forward, and again for the gradient
    assert wanted.keys() == found.keys()
    assert all(torch.allclose(found[name], grad, rtol=1e-6, atol=1e-7) for name, grad in wanted.items())
    assert any("generator" in name for name in wanted)


@pytest.mark.parametrize(("options", "count"), [({}, 2), ({"one_network": True}, 1), ({"uniform_generator": True}, 1)])
def test_each_network_is_compiled_once(options: dict[str, Any], count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[nn.Module] = []
    monkeypatch.setattr(nn.Module, "compile", lambda self, **_: compiled.append(self))
    model = electra(options)
    make_ready(model, TrainOptions(compile=True), torch.device("cpu"), "fp32")
    assert compiled == list(networks(model))
    assert len({id(one) for one in compiled}) == count
