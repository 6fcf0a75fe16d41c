"""YOPO: cheap ascents through the first layer."""

from typing import Any

import pytest
import torch
from torch import Tensor

from encodery.errors import UserError
from encodery.methods.freelb import FreeLB
from encodery.methods.yopo import YOPO
from encodery.models.first_block import Watch, first_block
from encodery.models.perturb import Shift
from tests.methods.attacks import KINDS, PLACES, Bench, bench
from tests.toolbox.models import furthest

places = pytest.mark.parametrize(("kind", "layout"), PLACES)
ROOMY: dict[str, Any] = {"adv_lr": 0.2, "init_mag": 0.2, "max_norm": 0.35}


@places
@pytest.mark.parametrize("site", ["word", "embedding_output", "normalised"])
def test_with_one_cheap_ascent_it_is_freelb(kind: str, layout: str, site: Any) -> None:
    """By the chain rule; dropout masks are the same in the cheap pass."""
    made = bench(kind, layout, dropout=0.1)
    got, wanted = (made.step(m(site=site, **ROOMY))[0] for m in (lambda **o: YOPO(layer_steps=1, **o), FreeLB))
    assert furthest(got, wanted) < 1e-5


def first_layer(made: Bench, delta: Tensor) -> tuple[Tensor, Tensor]:
    """Output of the first layer, and the loss that follows from it."""
    batch, net = made.micro[0], made.model.encoder.net
    with Shift(delta, "word", False, None).hooked(net):
        all_of_it = net(**batch.inputs, output_hidden_states=True)
    logits = made.model.objective("t").head(all_of_it.last_hidden_state, batch)
    return all_of_it.hidden_states[1], torch.nn.functional.cross_entropy(logits, batch.targets["label"])


@pytest.mark.parametrize("kind", ["bert", "roberta", "distilbert"])
def test_the_cheap_ascents_are_their_formula(kind: str) -> None:
    made = bench(kind)
    seen = made.trace(YOPO(steps=2, layer_steps=2, max_norm=None, adv_lr=0.2, init_mag=0.2))
    assert len(seen) == 4  # a full pass, two cheap ones, a full pass
    start = seen[0].clone().requires_grad_()
    hidden, loss = first_layer(made, start)
    (p,) = torch.autograd.grad(loss, hidden)
    now = start.detach()
    for _ in range(2):
        now = now.requires_grad_()
        (grad,) = torch.autograd.grad((p * first_layer(made, now)[0]).sum(), now)
        now = (now + 0.2 * grad / made.norms(grad)[:, None, None]).float().detach()
    assert torch.equal(seen[1], seen[0])
    assert torch.allclose(seen[3], now, atol=1e-5)


def test_cheap_passes_end_after_the_first_layer() -> None:
    made, calls = bench(), [0, 0]
    layers = made.model.encoder.net.encoder.layer

    def counted(i: int) -> Any:
        def hook(*_: object) -> None:
            calls[i] += 1

        return layers[i].register_forward_hook(hook)

    handles = [counted(i) for i in (0, 1)]
    made.step(YOPO(steps=3, layer_steps=4, log_attack=0))
    for handle in handles:
        handle.remove()
    assert calls == [3 + 2 * 4, 3]


def test_A4_every_cheap_ascent_stays_in_the_ball() -> None:
    made = bench()
    seen = made.trace(YOPO(steps=3, layer_steps=3, **ROOMY))
    assert all(float(made.norms(one).max()) <= 0.35 * (1 + 1e-5) for one in seen[2:])
    assert float(made.norms(seen[-1]).max()) > 0.3


@pytest.mark.slow
def test_gradient_checkpointing_changes_nothing() -> None:
    made = bench(dropout=0.1)
    wanted = made.step(YOPO(**ROOMY))[0]
    made.model.encoder.net.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    assert furthest(made.step(YOPO(**ROOMY))[0], wanted) < 1e-6


def test_frozen_encoders_are_perturbed_all_the_same() -> None:
    made = bench()
    for parameter in made.model.encoder.parameters():
        parameter.requires_grad_(False)
    seen = made.trace(YOPO(**ROOMY))
    assert float(made.norms(seen[-1]).max()) > 0.3
    assert made.step(YOPO(**ROOMY))[0].keys() == made.plain().keys()


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_block_is_found_and_the_watch_leaves_no_hook(kind: str) -> None:
    encoder = bench(kind).model.encoder
    block = first_block(encoder.net)
    with Watch(encoder) as watch:
        assert block._forward_hooks
        with pytest.raises(RuntimeError, match="no pass"):
            _ = watch.output
    assert not block._forward_hooks
    assert not encoder._forward_pre_hooks
    assert not encoder._forward_hooks


def test_an_encoder_without_known_blocks_is_an_error() -> None:
    with pytest.raises(UserError, match="first layer"):
        first_block(torch.nn.Linear(2, 2))


def test_without_a_gradient_there_is_no_slope() -> None:
    made = bench()
    with Watch(made.model.encoder) as watch, torch.no_grad():
        made.model(made.micro[0])
        with pytest.raises(RuntimeError, match="no gradient"):
            watch.slope()


def test_compiled_layers_are_refused() -> None:
    made = bench()
    made.model.encoder.compiled = True
    with pytest.raises(UserError, match=r"train\.compile: method yopo looks into the first layer"):
        YOPO().require(made.model)
