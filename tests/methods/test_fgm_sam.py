"""FGM in both versions, and SAM."""

from typing import Any

import pytest
import torch
from pydantic import ValidationError

from encodery.errors import UserError
from encodery.methods.base import Totals, losses_of, notes_of
from encodery.methods.fgm import FGM
from encodery.methods.plain import Plain
from encodery.methods.sam import SAM
from tests.methods.attacks import PLACES, bench, slope
from tests.toolbox.models import furthest

places = pytest.mark.parametrize(("kind", "layout"), PLACES)


@places
def test_A26_fgm_steps_along_the_gradient_by_epsilon(kind: str, layout: str) -> None:
    made = bench(kind, layout)
    with made.spied() as seen:
        _, terms = made.step(FGM(epsilon=0.01))
    assert not seen[0].any()
    assert torch.allclose(made.norms(seen[1]), torch.tensor(0.01, dtype=torch.float64), rtol=1e-5)
    grad, batch = slope(made), made.micro[0]
    sizes = made.norms(grad)[batch.layout.sequence_of_token][:, None]
    assert torch.allclose(batch.tokens(seen[1]).double(), 0.01 * batch.tokens(grad) / sizes, rtol=1e-3, atol=1e-7)
    notes = notes_of(terms)
    assert notes["loss_adv"] > notes["loss_clean"]


@pytest.mark.parametrize("target", ["example", "matrix"])
@pytest.mark.parametrize("clean", [0.0, 1.0, 3.0])
def test_fgm_weighs_the_clean_pass(target: Any, clean: float) -> None:
    made = bench(dropout=0.1)
    plain, hard = made.plain(), made.step(FGM(epsilon=0.5, target=target, clean_weight=0.0))[0]
    got, terms = made.step(FGM(epsilon=0.5, target=target, clean_weight=clean))
    share = clean / (1 + clean)
    assert furthest(got, {name: share * plain[name] + (1 - share) * hard[name] for name in plain}) < 1e-6
    notes = notes_of(terms)
    (loss,) = losses_of(terms).values()
    wanted = share * notes["loss_clean"] + (1 - share) * notes["loss_adv"]
    assert float(loss) / 8 == pytest.approx(wanted, rel=1e-5)


@pytest.mark.slow
def test_the_matrix_version_is_its_formula() -> None:
    """The whole step's gradient moves the table once, however the step is cut."""
    made, cut = bench(), bench(most=3)
    table = made.model.encoder.net.get_input_embeddings().weight
    slope = made.plain()["encoder.net.embeddings.word_embeddings.weight"]
    old = table.detach().clone()
    with torch.no_grad():
        table.add_(0.3 * slope / slope.norm())
    wanted = made.plain()
    with torch.no_grad():
        table.copy_(old)
    method = FGM(epsilon=0.3, target="matrix", clean_weight=0.0)
    assert furthest(made.step(method)[0], wanted) < 1e-6
    assert furthest(cut.step(method)[0], wanted) < 1e-6
    assert torch.equal(table, old)
    notes = notes_of(made.step(method)[1])
    assert notes["loss_adv"] > notes["loss_clean"]
    assert notes["grad_1"] == pytest.approx(float(slope.norm()), rel=1e-5)


def test_the_matrix_must_be_trained_and_has_no_sequences() -> None:
    made = bench()
    made.model.encoder.net.get_input_embeddings().weight.requires_grad_(False)
    with pytest.raises(UserError, match="matrix"):
        FGM(target="matrix").start(made.model)
    for wrong in ({"norm": "linf"}, {"site": "embedding_output"}, {"norm_scope": "token"}):
        with pytest.raises(ValidationError, match="matrix"):
            FGM.model_validate({"target": "matrix", **wrong})


@pytest.mark.parametrize("method", [FGM(), FGM(target="matrix"), SAM()], ids=["fgm", "matrix", "sam"])
@pytest.mark.parametrize("form", ["regression", "multilabel"])
def test_A25_other_heads_work(method: Any, form: str) -> None:
    made = bench(form=form)
    got = made.step(method)[0]
    assert all(torch.isfinite(one).all() for one in got.values())
    assert furthest(got, made.plain()) > 1e-5


@pytest.mark.slow
def test_fgm_starts_when_told() -> None:
    for target in ("example", "matrix"):
        early, late = bench(step=1), bench(step=2)
        method = FGM(start_step=2, target=target)
        assert furthest(early.step(method)[0], early.plain()) == 0
        assert furthest(late.step(method)[0], late.plain()) > 1e-4


@places
def test_sam_is_its_formula(kind: str, layout: str) -> None:
    made = bench(kind, layout, dropout=0.1)
    plain = made.plain()
    size = torch.cat([one.flatten() for one in plain.values()]).norm()
    before = {name: p.detach().clone() for name, p in made.model.named_parameters()}
    with torch.no_grad():
        for name, parameter in made.model.named_parameters():
            if name in plain:
                parameter.add_(0.2 * plain[name] / size)
    wanted = made.plain()
    with torch.no_grad():
        for name, parameter in made.model.named_parameters():
            parameter.copy_(before[name])
    got, terms = made.step(SAM(rho=0.2))
    assert furthest(got, wanted) < 1e-5
    assert all(torch.equal(p, before[name]) for name, p in made.model.named_parameters())
    notes = notes_of(terms)
    assert notes["loss_adv"] > notes["loss_clean"]
    assert notes["grad_1"] == pytest.approx(float(size), rel=1e-4)


def test_sam_does_not_mind_the_scale_or_the_cuts() -> None:
    made, cut = bench(), bench(most=3)
    whole = made.step(SAM(rho=0.2))[0]
    assert furthest(whole, cut.step(SAM(rho=0.2))[0]) < 1e-6
    scaled = {name: one / 1024 for name, one in made.step(SAM(rho=0.2), scale=1024.0)[0].items()}
    assert furthest(whole, scaled) < 1e-6


def test_sam_starts_when_told() -> None:
    made = bench(step=1)
    assert furthest(made.step(SAM(start_step=2))[0], made.plain()) == 0
    assert furthest(made.step(SAM(start_step=1))[0], made.plain()) > 1e-4


def test_sums_need_no_examples() -> None:
    """With loss_reduction sum a distance is a sum too."""
    assert float(Totals({}, 2.0).per_example(torch.tensor(3.0))) == 6.0
    assert Plain().tensors() == {}
