"""R3F and R4F: their gradients against the formula, with a hook that is written anew here."""

import pytest
import torch
from torch import Tensor, nn

from encodery.methods.base import notes_of
from encodery.methods.r3f import R3F
from encodery.methods.r4f import R4F
from tests.methods.attacks import PLACES, Bench, Gradients, bench, kl, logits
from tests.toolbox.models import furthest, gradients

places = pytest.mark.parametrize(("kind", "layout"), PLACES)
WEIGHT, EPS, STEEP = 3.0, 0.3, 4.0


def steep(kind: str, layout: str) -> Bench:
    """A head of spectral norm 4: noise changes its answers visibly."""
    made = bench(kind, layout)
    weight = made.model.objective("t").last_layers()[0].weight
    with torch.no_grad():
        weight.mul_((STEEP / torch.linalg.svdvals(weight.double())[0]).float())
    return made


def noisy(made: Bench, delta: Tensor, through: bool) -> Tensor:
    """The answer with noise on the word embeddings; unless `through`, no gradient passes there."""
    words = made.model.encoder.net.get_input_embeddings()
    handle = words.register_forward_hook(lambda *given: (given[2] if through else given[2].detach()) + delta)
    found = logits(made, None)
    handle.remove()
    return found


def written_out(made: Bench, delta: Tensor, through: bool = False) -> tuple[Gradients, float]:
    """∇ (loss(E) + weight · distance(f(sg(E) + z), f(E))), and the distance."""
    made.model.train().zero_grad()
    clean, other = logits(made, None), noisy(made, delta, through)
    apart = kl(clean, other) + kl(other, clean)
    loss = nn.functional.cross_entropy(clean, made.micro[0].targets["label"])
    (loss + WEIGHT * apart).backward()  # type: ignore[no-untyped-call]
    return gradients(made.model), apart.item()


@places
def test_A16_r3f_is_its_formula_and_the_noisy_branch_gives_the_embeddings_nothing(kind: str, layout: str) -> None:
    made = steep(kind, layout)
    with made.spied() as seen:
        got, terms = made.step(R3F(weight=WEIGHT, eps=EPS))
    (delta,) = seen
    assert float(delta.abs().max()) > EPS / 2
    wanted, apart = written_out(made, delta)
    assert furthest(got, wanted) < 1e-6
    assert notes_of(terms)["distance"] == pytest.approx(apart, rel=1e-4)
    assert furthest(wanted, made.plain()) > 1e-2  # the distance matters
    assert furthest(wanted, written_out(made, delta, through=True)[0]) > 1e-3  # and so does where its gradient ends


@places
def test_A16_r4f_is_r3f_at_a_head_scaled_back(kind: str, layout: str) -> None:
    made = steep(kind, layout)
    with made.spied() as seen:
        got, _ = made.step(R4F(weight=WEIGHT, eps=EPS, head_norm=2.0))
    (delta,) = seen
    unscaled, _ = written_out(made, delta)  # the bench has put the head back
    with torch.no_grad():
        made.model.objective("t").last_layers()[0].weight.mul_(2.0 / STEEP)
    wanted, _ = written_out(made, delta)
    assert furthest(got, wanted) < 1e-6
    assert furthest(unscaled, wanted) > 1e-2
    assert furthest(wanted, written_out(made, delta, through=True)[0]) > 1e-3
