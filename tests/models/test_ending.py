"""A last layer that ends with first tokens: the same answers and gradients as the whole one, with less to compute."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from encodery.models.kernels.first_token import KNOWN, can_end_with_first, last_layer, last_output
from encodery.models.model import Model
from encodery.objectives.parts import heads
from encodery.objectives.parts.heads import HeadKind
from tests.toolbox.models import batcher_for, random_table, small_encoder, small_model

TABLE = random_table([5, 3, 8, 1])
HEADS: tuple[HeadKind, ...] = ("stock", "linear", "mlp_tanh")


def pass_of(model: Model) -> tuple[Tensor, dict[str, Tensor], list[int]]:
    """Logits, gradients, and how many tokens came out of the last attention."""
    sizes: list[int] = []
    encoder = model.encoder
    handle = last_output(encoder).register_forward_hook(lambda _m, _i, out: sizes.append(out.shape[:-1].numel()))
    batch = batcher_for(encoder).batch(TABLE, np.arange(4), "t", 0)
    model.zero_grad()
    outputs, terms = model(batch)
    terms["t", "loss"].backward()
    handle.remove()
    return outputs["logits"], {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}, sizes


@pytest.mark.parametrize("layout", ["packed", "rows"])
@pytest.mark.parametrize("kind", sorted(KNOWN))
def test_equal_to_the_whole_layer(kind: str, layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for head in HEADS:
        model = small_model(small_encoder(kind, layout), head=head).eval().double()
        logits, grads, sizes = pass_of(model)
        with monkeypatch.context() as patched:
            patched.setattr(heads, "can_end_with_first", lambda encoder: False)
            whole, wanted, tokens = pass_of(model)
        assert sizes == [4]
        assert tokens == [17 if layout == "packed" else 32]
        torch.testing.assert_close(logits, whole, rtol=0, atol=1e-12)
        assert grads.keys() == wanted.keys()
        for name, grad in wanted.items():
            torch.testing.assert_close(grads[name], grad, rtol=0, atol=1e-12, msg=name)


def test_no_hook_remains_after_an_exception() -> None:
    model = small_model(small_encoder("bert"))

    def fails(*_: Any) -> None:
        raise ArithmeticError

    model.objective("t").head.register_forward_hook(fails)
    with pytest.raises(ArithmeticError):
        pass_of(model)
    assert not last_output(model.encoder)._forward_pre_hooks


@pytest.mark.parametrize("kind", ["bert", "electra", "amos"])
def test_with_checkpointing_the_last_layer_alone_is_computed_once(kind: str) -> None:
    model = small_model(small_encoder(kind)).double().train()
    _, wanted, _ = pass_of(model)
    model.encoder.net.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    calls: list[int] = []
    outputs = [part for name, part in model.encoder.net.named_modules() if name.endswith("attention.output")]
    for number, part in enumerate(outputs):
        part.register_forward_pre_hook(lambda *_, number=number: calls.append(number))
    _, grads, sizes = pass_of(model)
    assert calls == [*range(len(outputs)), *reversed(range(len(outputs) - 1))]
    assert sizes == [4]
    assert all(torch.equal(grad, wanted[name]) for name, grad in grads.items())
    assert last_layer(model.encoder).gradient_checkpointing


def test_layers_that_are_compiled_stay_whole() -> None:
    encoder = small_encoder("bert")
    assert can_end_with_first(encoder)
    encoder.compiled = True
    assert not can_end_with_first(encoder)
    assert not can_end_with_first(small_encoder("distilbert"))
