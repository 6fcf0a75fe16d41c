"""What every weighting must keep. Each file of the package is found by itself, so a new one needs no line here."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from encodery.config.components import find, names
from encodery.methods.plain import Plain
from encodery.models.model import Model
from encodery.weighting.base import ActiveWeighting, Weighting
from tests.toolbox.models import gradients
from tests.weighting.two import TASKS, parts, three, weighed

KINDS = names("weighting")


def started(kind: str, model: Model) -> ActiveWeighting:
    options: Any = find("weighting", kind)()
    assert isinstance(options, Weighting)
    return options.start(model, list(TASKS), 1)


def equal(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_it_goes_on_with_what_it_stored(kind: str) -> None:
    model, stream = three()
    straight, first, second = (started(kind, model) for _ in range(3))
    for step in range(4):
        wanted = weighed(straight, model, stream, step)
    for step in range(3):
        weighed(first, model, stream, step)
    second.load({name: value.clone() for name, value in first.tensors().items()})
    assert equal(weighed(second, model, stream, 3), wanted)
    assert equal(straight.tensors(), second.tensors())


@pytest.mark.parametrize("kind", KINDS)
def test_it_gives_every_weight_a_gradient_and_returns_the_losses_as_they_are(kind: str) -> None:
    model, stream = three()
    summed: dict[Any, Tensor] = {}
    for part in parts(model, stream):
        summed |= Plain()(model, part.micro, part.totals)
    model.zero_grad(set_to_none=True)
    terms = started(kind, model)(Plain(), model, parts(model, stream))
    for key, value in summed.items():
        assert float(terms[key]) == pytest.approx(float(value), rel=1e-9), key
    assert not any(value.requires_grad for value in terms.values())
    found = gradients(model)
    assert all(torch.isfinite(value).all() for value in found.values())
    for place in ["encoder.net.encoder.layer.1", *(f"questions.{task.replace('/', '-')}.head" for task in TASKS)]:
        assert any(value.any() for name, value in found.items() if name.startswith(place)), place


@pytest.mark.parametrize("kind", KINDS)
def test_two_of_one_seed_agree_to_the_bit(kind: str) -> None:
    model, stream = three()
    first, second = started(kind, model), started(kind, model)
    assert equal(weighed(first, model, stream), weighed(second, model, stream))


@pytest.mark.parametrize("kind", KINDS)
def test_what_it_learns_is_stored(kind: str) -> None:
    model, _ = three()
    active = started(kind, model)
    for name, learnt in active.learnt().items():
        assert learnt.tensor.requires_grad
        assert learnt.lr > 0
        assert any(torch.equal(learnt.tensor, value) for value in active.tensors().values()), name
