"""Methods on masked words, replaced tokens and mixtures of generators: what is compared, bounded and watched there."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from encodery.errors import UserError
from encodery.methods._smoothness import again, distance
from encodery.methods.base import NOTE, ActiveMethod, Totals, seed_dropout
from encodery.methods.freelb import FreeLB
from encodery.methods.r3f import R3F
from encodery.methods.r4f import R4F
from encodery.methods.rdrop import RDrop
from encodery.methods.smart import Smart
from encodery.methods.vat import VAT
from encodery.methods.yopo import YOPO
from encodery.models.model import Model
from encodery.training.loop import count
from tests.objectives.pretraining import asked, batch_of, text_table

LENGTHS = [9, 30, 4, 17]
OBJECTIVES: dict[str, tuple[str, dict[str, Any]]] = {
    "mlm": ("bert", {}),
    "electra": ("electra", {"generator_size": 0.5}),
    "one network": ("electra", {"one_network": True}),
    "amos": ("amos", {}),
}
METHODS: dict[str, Any] = {
    "freelb": FreeLB(),
    "yopo": YOPO(),
    "rdrop": RDrop(),
    "r3f": R3F(eps=0.1),
    "smart": Smart(max_norm=0.1, adv_lr=0.1, init_mag=0.01),
    "vat": VAT(),
}


def made(name: str, dropout: float = 0.3) -> tuple[Model, Any]:
    kind, options = OBJECTIVES[name]
    model = asked("electra" if name == "one network" else name, options, kind=kind)
    for part in model.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = dropout
    return model.train(), batch_of(model, text_table(LENGTHS))


def step(model: Model, method: ActiveMethod, batch: Any) -> dict[Any, torch.Tensor]:
    model.zero_grad(set_to_none=True)
    return method(model, [batch], Totals(count(model, [batch]), 1.0, float(len(batch))))


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("name", METHODS)
def test_every_family_takes_a_step(name: str, objective: str) -> None:
    model, batch = made(objective)
    before = {name: id(parameter) for name, parameter in model.named_parameters()}
    terms = step(model, METHODS[name].start(model), batch)
    assert {name: id(parameter) for name, parameter in model.named_parameters()} == before
    assert all(bool(torch.isfinite(value).all()) for value in terms.values())
    words = model.encoder.net.get_input_embeddings().weight.grad
    assert bool(torch.isfinite(words).all())
    assert float(words.norm()) > 0


@pytest.mark.parametrize("objective", ["electra", "one network"])
@pytest.mark.parametrize("name", ["rdrop", "r3f", "smart"])
def test_answers_that_are_compared_are_answers_to_the_same_text(name: str, objective: str) -> None:
    model, batch = made(objective)
    free = []
    for draw in (0, 1):  # left alone, a generator with other dropout draws other words
        seed_dropout(batch, draw)
        free.append(model.outputs(batch)["sample"])
    assert not torch.equal(*free)
    seen: list[torch.Tensor] = []
    model.objective("t").register_forward_hook(lambda *given: seen.append(given[2]["sample"]))
    method = METHODS[name].start(model)
    step(model, method, batch)
    with torch.no_grad():  # so that SMART's mean has other weights than the model
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    seen.clear()
    step(model, method, batch)
    assert len(seen) >= 2
    assert all(torch.equal(one, seen[0]) for one in seen)


def test_the_same_text_again_has_the_distance_of_the_answers_alone() -> None:
    model, batch = made("electra", dropout=0.0)
    first = model.outputs(batch)
    assert float(distance(model, batch, first, model.outputs(again(model, batch, first))).detach()) == 0
    other = batch.targets | {"drawn": (first["sample"] + 1) % 8 + 8}
    moved = model.outputs(replace(batch, targets=other))
    assert float(distance(model, batch, first, moved).detach()) > 0


@pytest.mark.slow
def test_r4f_never_bounds_the_word_embeddings() -> None:
    model, _ = made("mlm")
    with pytest.raises(UserError, match="r4f needs a head that ends in a linear layer of its own; that of t has none"):
        R4F().start(model)
    R4F(head_norm=None).start(model)
    for objective in ("electra", "one network", "amos"):
        model, batch = made(objective)
        words = model.encoder.net.get_input_embeddings().weight
        with torch.no_grad():
            words.mul_(50)
        before = words.detach().clone()
        (layer,) = model.objective("t").last_layers()
        assert layer.out_features == 1
        step(model, R4F(head_norm=0.01, eps=0.1).start(model), batch)
        assert torch.equal(words, before)
        assert float(torch.linalg.matrix_norm(layer.weight.detach(), 2)) == pytest.approx(0.01, rel=1e-4)


@pytest.mark.parametrize("name", ["r3f", "smart", "vat"])
def test_both_losses_are_in_the_log(name: str) -> None:
    model, batch = made("mlm")
    batch = replace(batch, step=0)
    terms = step(model, METHODS[name].start(model), batch)
    notes = {key[1]: both for key, both in terms.items() if key[0] == NOTE}
    assert {"loss_clean", "loss_adv", "distance", "delta_per_embedding_norm"} <= notes.keys()
    clean, count_of = notes["loss_clean"].tolist()
    assert clean / count_of == pytest.approx(float(terms["t", "mlm"]) / count(model, [batch])["t", "mlm"], rel=1e-5)
    assert notes["loss_adv"].tolist() != notes["loss_clean"].tolist()
