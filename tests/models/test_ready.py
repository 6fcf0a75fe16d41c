"""What training asks of the encoder is asked of an objective's generator too."""

from typing import Any

import pytest
import torch
from torch import nn

from encodery.config.schema import TrainOptions
from encodery.errors import UserError
from encodery.methods.base import seed_dropout
from encodery.models.compiled import layers_of
from encodery.models.encoder import Encoder
from encodery.models.model import Model, make_ready, networks
from tests.objectives.pretraining import asked, batch_of, text_table
from tests.toolbox.models import small_encoder

LENGTHS = [12, 9, 5]


def gradients(model: Model) -> dict[str, torch.Tensor]:
    """Of both losses, with dropout."""
    batch = batch_of(model.train(), text_table(LENGTHS))
    seed_dropout(batch)
    torch.stack(list(model(batch)[1].values())).sum().backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def electra(options: dict[str, Any] | None = None) -> Model:
    return asked("electra", {"generator_size": 0.5} | (options or {}), dropout=0.1)


@pytest.mark.slow
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
def test_the_layers_of_each_network_are_compiled_once(
    options: dict[str, Any], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[nn.Module] = []
    monkeypatch.setattr(nn.Module, "compile", lambda self, **_: compiled.append(self))
    model = electra(options)
    make_ready(model, TrainOptions(compile=True), torch.device("cpu"), "fp32")
    assert compiled == [layer for net in networks(model) for layer in net.encoder.layer]
    assert len({id(one) for one in compiled}) == sum(net.config.num_hidden_layers for net in networks(model))
    assert len(list(networks(model))) == count
    assert all(part.compiled for part in model.modules() if isinstance(part, Encoder))


@pytest.mark.parametrize("kind", ["bert", "albert", "distilbert", "modernbert", "roberta", "electra", "amos"])
def test_the_repeated_layers_of_every_family_are_found(kind: str) -> None:
    encoder = small_encoder(kind)
    found = layers_of(encoder.net)
    assert len(found) == (1 if kind == "albert" else encoder.layers)  # ALBERT's layers are one module
    with pytest.raises(UserError, match=r"train.compile: cannot find the layers of Linear"):
        layers_of(nn.Linear(2, 2))


@pytest.mark.parametrize(("tf32", "wanted"), [(True, "high"), (False, "highest")])
def test_tf32_is_a_key_and_touches_gpus_alone(tf32: bool, wanted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(torch, "set_float32_matmul_precision", said.append)
    model = electra()
    make_ready(model, TrainOptions(tf32=tf32), torch.device("cpu"), "fp32")
    assert said == []
    monkeypatch.setattr(model, "to", lambda _: model)
    make_ready(model, TrainOptions(tf32=tf32), torch.device("cuda"), "fp32")
    assert said == [wanted]
