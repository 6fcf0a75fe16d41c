"""VAT, ALUM, SiFT and R4F, each against its formula written anew."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from encodery.errors import UserError
from encodery.methods.alum import Alum
from encodery.methods.base import notes_of
from encodery.methods.r3f import R3F
from encodery.methods.r4f import R4F, limit
from encodery.methods.sift import Sift
from encodery.methods.smart import Smart
from encodery.methods.vat import VAT
from encodery.objectives.base import ObjectiveModule
from encodery.tasks.base import HIDDEN
from tests.methods.attacks import KINDS, PLACES, bench, kl, logits
from tests.toolbox.models import furthest, gradients

places = pytest.mark.parametrize(("kind", "layout"), PLACES)
LOUD: dict[str, Any] = {"adv_lr": 0.1, "init_mag": 0.1, "max_norm": 0.3, "norm": "l2"}


# VAT


@places
def test_vat_is_its_formula(kind: str, layout: str) -> None:
    made = bench(kind, layout)
    with made.spied() as seen:
        got, terms = made.step(VAT(weight=3.0, epsilon=0.5, xi=0.1))
    assert len(seen) == 2
    assert torch.allclose(made.norms(seen[0]), torch.tensor(0.1, dtype=torch.float64), rtol=1e-5)
    assert torch.allclose(made.norms(seen[1]), torch.tensor(0.5, dtype=torch.float64), rtol=1e-5)
    made.model.zero_grad()
    probe = seen[0].clone().requires_grad_()
    (grad,) = torch.autograd.grad(kl(logits(made, None).detach(), logits(made, probe)), probe)
    flat, wanted = made.micro[0].tokens(seen[1]), made.micro[0].tokens(grad)
    lengths = made.norms(grad)[made.micro[0].layout.sequence_of_token][:, None]
    assert torch.allclose(flat, (0.5 * wanted / lengths).float(), atol=2e-3)  # answers that hardly differ: rounding
    clean = logits(made, None)
    loss = nn.functional.cross_entropy(clean, made.micro[0].targets["label"])
    apart = kl(clean.detach(), logits(made, seen[1]))
    (loss + 3.0 * apart).backward()  # type: ignore[no-untyped-call]
    assert furthest(got, gradients(made.model)) < 1e-5
    assert notes_of(terms)["distance"] == pytest.approx(apart.item(), rel=1e-3)


def test_vat_needs_no_labels() -> None:
    made = bench()
    batch = made.micro[0]
    made.micro = [replace(batch, targets={"label": torch.full_like(batch.targets["label"], HIDDEN)})]
    assert max(float(one.abs().max()) for one in made.plain().values()) == 0
    got, terms = made.step(VAT(epsilon=0.5))
    assert max(float(one.abs().max()) for one in got.values()) > 1e-3
    assert notes_of(terms)["distance"] > 0


def test_more_power_steps_find_a_worse_direction() -> None:
    made = bench()
    one, five = (notes_of(made.step(VAT(epsilon=0.05, power_steps=n))[1])["distance"] for n in (1, 5))
    assert five > one
    random = float(kl(logits(made, None), logits(made, made.trace(VAT(xi=0.05))[0])))
    assert one > 1.5 * random


def test_A9_vat_is_finite_where_nothing_changes() -> None:
    made = bench()
    made.micro = [replace(made.micro[0], weights=torch.tensor([0.0] + [1.0] * 7))]
    seen = made.trace(VAT())
    assert torch.isfinite(seen[1]).all()
    assert not seen[1][0].any()


# ALUM


@places
def test_alum_is_smart_without_its_moving_mean(kind: str, layout: str) -> None:
    made = bench(kind, layout, dropout=0.1)
    running = Alum(weight=2.0, **LOUD).start(made.model)
    got = made.step(running)[0]
    smart = Smart(weight=2.0, proximal_weight=0.0, **LOUD).start(made.model)
    assert all(torch.equal(one, got[name]) for name, one in made.step(smart)[0].items())
    assert running.tensors() == {}


def test_alum_is_its_formula() -> None:
    made = bench()
    with made.spied() as seen:
        got, _ = made.step(Alum(weight=2.0, **LOUD))
    made.model.zero_grad()
    clean, other = logits(made, None), logits(made, seen[1])
    loss = nn.functional.cross_entropy(clean, made.micro[0].targets["label"])
    (loss + 2.0 * (kl(clean, other) + kl(other, clean))).backward()  # type: ignore[no-untyped-call]
    assert furthest(got, gradients(made.model)) < 1e-5


# SiFT


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("detach", [False, True])
def test_the_site_normalised_is_a_norm_without_weights_before_the_norm(kind: str, detach: bool) -> None:
    """Literally: normalise, add, go on; both ways through the encoder's own norm."""
    made = bench(kind)
    net, batch = made.model.encoder.net, made.micro[0]
    norm = getattr(net.embeddings, "LayerNorm", None) or net.embeddings.norm
    norm.eps = 1e-12
    width = made.model.encoder.site_width("normalised")
    torch.manual_seed(3)
    delta = torch.randn(*batch.inputs["input_ids"].shape, width) * 0.3
    got = logits(made, delta, "normalised", detach)

    def literal(_module: Any, inputs: tuple[Tensor, ...]) -> tuple[Tensor]:
        given = inputs[0].detach() if detach else inputs[0]
        return (nn.functional.layer_norm(given, (width,), eps=1e-7) + delta,)

    handle = norm.register_forward_pre_hook(literal)
    wanted = logits(made, None)
    handle.remove()
    assert torch.allclose(got, wanted, atol=1e-4)
    assert not torch.allclose(got, logits(made, None), atol=1e-3)
    assert torch.equal(logits(made, torch.zeros_like(delta), "normalised"), logits(made, None))


@pytest.mark.parametrize("kind", KINDS)
def test_A16_the_perturbed_branch_of_sift_gives_the_embeddings_nothing(kind: str) -> None:
    made = bench(kind)
    with made.spied() as seen:
        made.step(Sift())
    made.model.zero_grad(set_to_none=True)
    logits(made, seen[1], "normalised", Sift.detach).sum().backward()  # type: ignore[no-untyped-call]
    assert made.model.encoder.net.get_input_embeddings().weight.grad is None
    assert gradients(made.model)


@places
def test_sift_is_its_formula(kind: str, layout: str) -> None:
    made = bench(kind, layout)
    with made.spied() as seen:
        got, terms = made.step(Sift(weight=4.0, init_mag=0.3, adv_lr=0.2))
    made.model.zero_grad()
    probe = seen[0].clone().requires_grad_()
    fixed, there = logits(made, None).detach(), logits(made, probe, "normalised", True)
    (grad,) = torch.autograd.grad(kl(fixed, there) + kl(there, fixed), probe)
    step = 0.2 * grad / grad.abs().amax(2, keepdim=True).clamp(min=1e-30)
    assert torch.allclose(seen[1], seen[0] + step, atol=1e-4)
    clean, other = logits(made, None), logits(made, seen[1], "normalised", True)
    loss = nn.functional.cross_entropy(clean, made.micro[0].targets["label"])
    apart = kl(clean, other) + kl(other, clean)
    (loss + 4.0 * apart).backward()  # type: ignore[no-untyped-call]
    assert furthest(got, gradients(made.model)) < 1e-5
    assert notes_of(terms)["distance"] == pytest.approx(apart.item(), rel=1e-3)


def test_sift_starts_without_tails_and_steps_token_by_token() -> None:
    made = bench("albert", lengths=[40] * 20, more={"embedding_size": 48})
    seen = made.trace(Sift(init_mag=0.01, adv_lr=1e-4))
    assert float(seen[0].abs().max()) == pytest.approx(0.02)
    assert float((seen[0].abs() >= 0.02 * (1 - 1e-6)).float().mean()) == pytest.approx(0.0455, abs=0.01)
    assert torch.allclose((seen[1] - seen[0]).abs().amax(2), torch.tensor(1e-4), rtol=1e-2)


def test_sift_perturbs_large_and_small_embeddings_alike() -> None:
    """The reason to normalise: embeddings ten times as large, and the answer moves as much as before."""
    made = bench()
    delta = made.trace(Sift(init_mag=0.3))[1]
    net = made.model.encoder.net
    net.embeddings.LayerNorm.eps = 1e-12
    before = logits(made, delta, "normalised")
    with torch.no_grad():
        for table in (part for part in net.embeddings.modules() if isinstance(part, nn.Embedding)):
            table.weight.mul_(10)
    assert torch.allclose(logits(made, delta, "normalised"), before, atol=1e-4)


def test_the_log_counts_normalised_perturbations_against_normalised_embeddings() -> None:
    made = bench()
    with made.spied() as seen:
        notes = notes_of(made.step(Sift(init_mag=0.3, log_attack=1))[1])
    lengths = made.micro[0].layout.lengths
    wanted = (made.norms(seen[1]) / (lengths * 16).sqrt()).mean()  # norm √16 a token
    assert notes["delta_per_embedding_norm"] == pytest.approx(float(wanted), rel=1e-4)
    assert "delta_per_neighbour_distance" not in notes


def test_an_encoder_without_a_norm_of_embeddings_is_refused() -> None:
    made = bench()
    made.model.encoder.net.embeddings.LayerNorm = None
    with pytest.raises(UserError, match="no layer norm"):
        made.step(Sift())


# R4F


def steepness(layer: nn.Linear) -> float:
    return float(torch.linalg.svdvals(layer.weight.detach().double())[0])


@places
def test_r4f_scales_a_steep_head_back_and_is_r3f_there(kind: str, layout: str) -> None:
    made = bench(kind, layout, dropout=0.1)
    (layer,) = made.model.objective("t").last_layers()
    assert layer.out_features == 3
    with torch.no_grad():
        layer.weight.mul_(5 / steepness(layer))
    steep = layer.weight.detach().clone()
    options: dict[str, Any] = {"weight": 2.0, "eps": 0.1}
    made.model.zero_grad()
    method = R4F(head_norm=0.5, **options)
    with torch.no_grad():
        layer.weight.copy_(steep)
    limit(layer, 0.5)
    assert steepness(layer) == pytest.approx(0.5, rel=1e-5)
    assert torch.allclose(layer.weight, steep / 10, rtol=1e-5)
    wanted = made.step(R3F(**options))[0]
    assert furthest(made.step(method)[0], wanted) < 1e-6
    free = made.step(R4F(head_norm=None, **options))[0]
    assert all(torch.equal(one, wanted[name]) for name, one in free.items())


def test_r4f_moves_the_weights_themselves_and_only_when_they_are_too_steep() -> None:
    made = bench()
    model, (layer,) = made.model.train(), made.model.objective("t").last_layers()
    with torch.no_grad():
        layer.weight.mul_(5 / steepness(layer))
    others = {n: p.detach().clone() for n, p in model.named_parameters() if p is not layer.weight}
    from encodery.methods.base import Totals
    from encodery.training.loop import count

    totals = Totals(count(model, made.micro), 1.0, 8.0)
    R4F(start_step=1)(model, made.micro, totals)
    assert steepness(layer) == pytest.approx(5.0, rel=1e-5)
    R4F()(model, made.micro, totals)
    assert steepness(layer) == pytest.approx(1.0, rel=1e-5)
    once = layer.weight.detach().clone()
    R4F()(model, made.micro, totals)
    assert torch.equal(layer.weight, once)
    assert all(torch.equal(p, others[n]) for n, p in model.named_parameters() if n in others)


def test_r4f_needs_a_linear_layer() -> None:
    made = bench()
    made.model.questions["t"] = ObjectiveModule()
    with pytest.raises(UserError, match="linear layer"):
        R4F().start(made.model)


# What they share


@pytest.mark.parametrize("form", ["single", "multilabel", "regression"])
def test_two_sides_of_the_divergence_make_the_distance(form: str) -> None:
    made = bench(form=form)
    torch.manual_seed(0)
    a, b = ({"logits": torch.randn(8, 1 if form == "regression" else 3)} for _ in range(2))
    question, batch = made.model.objective("t"), made.micro[0]
    one, two = question.divergence(a, b, batch), question.divergence(b, a, batch)
    assert torch.allclose(one + two, question.distance(a, b, batch), rtol=1e-4)
    assert (one > 0).all()
    assert torch.allclose(question.divergence(a, a, batch), torch.zeros(8), atol=1e-6)
    if form == "single":
        assert float(one.mean()) == pytest.approx(float(kl(a["logits"], b["logits"])), rel=1e-5)
