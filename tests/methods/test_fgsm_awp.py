"""FGSM and AWP, each against its formula written anew."""

import pytest
import torch

from encodery.methods.awp import AWP
from encodery.methods.base import notes_of
from encodery.methods.fgsm import FGSM
from tests.methods.attacks import PLACES, Bench, Gradients, bench, slope
from tests.toolbox.models import furthest

places = pytest.mark.parametrize(("kind", "layout"), PLACES)


@places
def test_A26_fgsm_moves_every_number_by_epsilon_uphill(kind: str, layout: str) -> None:
    made = bench(kind, layout)
    with made.spied() as seen:
        got, terms = made.step(FGSM(epsilon=0.01))
    signs = slope(made).sign()
    assert not seen[0].any()
    assert float((seen[1] == 0.01 * signs).float().mean()) > 0.99  # where the slope is rounding alone, signs may differ
    assert float(seen[1].abs().max()) == pytest.approx(0.01)
    notes = notes_of(terms)
    assert notes["loss_adv"] > notes["loss_clean"]
    with made.model.encoder.perturbed(seen[1]):
        hard = made.plain()
    plain = made.plain()
    assert furthest(got, {name: (plain[name] + hard[name]) / 2 for name in plain}) < 1e-6


def test_A6_fgsm_leaves_padding_alone() -> None:
    made = bench()
    padding = made.micro[0].inputs["attention_mask"] == 0
    assert not made.trace(FGSM(epsilon=1.0))[1][padding].any()


def test_fgsm_without_the_clean_loss_trains_on_the_hard_one_alone() -> None:
    made = bench(dropout=0.1)
    with made.spied() as seen:
        got, _ = made.step(FGSM(epsilon=0.05, clean_weight=0.0))
    with made.model.encoder.perturbed(seen[1]):
        assert furthest(got, made.plain()) < 1e-6


def pushed(made: Bench, gamma: float) -> Gradients:
    """The gradient where AWP's formula says; the weights are put back."""
    first = made.plain()
    before = {name: p.detach().clone() for name, p in made.model.named_parameters()}
    with torch.no_grad():
        for name, weight in made.model.named_parameters():
            if name in first and weight.ndim > 1:
                wish = gamma * weight.norm() * first[name] / first[name].norm().clamp(min=1e-30)
                weight.add_(torch.minimum(torch.maximum(wish, -gamma * weight.abs()), gamma * weight.abs()))
    wanted = made.plain()
    with torch.no_grad():
        for name, weight in made.model.named_parameters():
            weight.copy_(before[name])
    return wanted


@places
def test_awp_is_its_formula(kind: str, layout: str) -> None:
    made = bench(kind, layout, dropout=0.1)
    before = {name: p.detach().clone() for name, p in made.model.named_parameters()}
    got, terms = made.step(AWP(gamma=0.05))
    assert furthest(got, pushed(made, 0.05)) < 1e-5
    assert furthest(got, made.plain()) > 1e-4
    assert all(torch.equal(p, before[name]) for name, p in made.model.named_parameters())
    notes = notes_of(terms)
    assert notes["loss_adv"] > notes["loss_clean"]


def test_awp_bounds_every_number_and_every_matrix() -> None:
    torch.manual_seed(0)
    weight, grad = torch.randn(8, 5), torch.randn(8, 5) * 1e-20
    push = AWP(gamma=0.1).push(weight, grad)
    assert (push.abs() <= 0.1 * weight.abs() * (1 + 1e-6)).all()
    assert float(push.norm()) <= 0.1 * float(weight.norm())
    assert ((push * grad) >= 0).all()
    assert not AWP(gamma=0.1).push(weight, torch.zeros(8, 5)).any()


def test_awp_moves_no_bias() -> None:
    made = bench()
    seen: list[torch.Tensor] = []
    bias = made.model.encoder.net.embeddings.LayerNorm.bias

    def look(*_: object) -> None:
        seen.append(bias.detach().clone())

    handle = made.model.objective("t").register_forward_pre_hook(look)
    made.step(AWP(gamma=0.5))
    handle.remove()
    assert len(seen) == 2
    assert torch.equal(seen[0], seen[1])


def test_awp_does_not_mind_the_scale_or_the_cuts_and_starts_when_told() -> None:
    made, cut = bench(step=1), bench(step=1, most=3)
    whole = made.step(AWP(gamma=0.05))[0]
    assert furthest(whole, cut.step(AWP(gamma=0.05))[0]) < 1e-6
    scaled = {name: one / 1024 for name, one in made.step(AWP(gamma=0.05), scale=1024.0)[0].items()}
    assert furthest(whole, scaled) < 1e-6
    assert furthest(made.step(AWP(gamma=0.05, start_step=2))[0], made.plain()) == 0
