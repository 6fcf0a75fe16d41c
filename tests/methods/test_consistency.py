"""R-Drop, R3F, SMART: methods that ask for the same answer twice."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from encodery.methods.base import Method, losses_of, notes_of, seed_dropout
from encodery.methods.r3f import R3F
from encodery.methods.rdrop import RDrop
from encodery.methods.smart import Smart
from encodery.training.checkpoint import newest_intact
from tests.methods.attacks import PLACES, Bench, Gradients, bench, kl, logits, masks_by_draw
from tests.toolbox.models import furthest, gradients
from tests.toolbox.runs import run, settings, weights_of

places = pytest.mark.parametrize(("kind", "layout"), PLACES)
LOUD: dict[str, Any] = {"adv_lr": 0.1, "init_mag": 0.1, "max_norm": 0.3, "norm": "l2"}
ALL = [RDrop(weight=3.0), R3F(weight=3.0, eps=0.3), Smart(weight=3.0, **LOUD)]


def distance(made: Bench, delta: torch.Tensor) -> float:
    """Mean symmetric KL between clean and perturbed answers, written anew."""
    batch = made.micro[0]
    with torch.no_grad():
        p = made.model.outputs(batch)["logits"].double().softmax(1)
        with made.model.encoder.perturbed(delta):
            q = made.model.outputs(batch)["logits"].double().softmax(1)
    return float(((p - q) * (p.log() - q.log())).sum(1).mean())


@pytest.mark.parametrize("method", ALL, ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("form", ["regression", "multilabel", "single"])
def test_A25_every_head_has_a_distance(method: Method, form: str) -> None:
    made = bench(form=form, dropout=0.1)
    got, terms = made.step(method.start(made.model))
    assert all(torch.isfinite(one).all() for one in got.values())
    assert notes_of(terms)["distance"] > 1e-6
    still = method.model_copy(update={"weight": 0.0})
    assert furthest(got, made.step(still.start(made.model))[0]) > 1e-5


def test_rdrop_is_its_formula() -> None:
    made = bench(dropout=0.2)
    got, terms = made.step(RDrop(weight=0.7))
    batch, model = made.micro[0], made.model
    model.zero_grad()
    seed_dropout(batch, 0)
    p = model.outputs(batch)["logits"]
    seed_dropout(batch, 1)
    q = model.outputs(batch)["logits"]
    label = batch.targets["label"]
    loss = (torch.nn.functional.cross_entropy(p, label) + torch.nn.functional.cross_entropy(q, label)) / 2
    kl = torch.nn.KLDivLoss(reduction="batchmean", log_target=True)
    a, b = p.log_softmax(1), q.log_softmax(1)
    (loss + 0.7 * (kl(a, b) + kl(b, a)) / 2).backward()  # type: ignore[no-untyped-call]
    assert furthest(got, gradients(model)) < 1e-6
    (value,) = losses_of(terms).values()
    assert float(value) / 8 == pytest.approx(loss.item(), rel=1e-5)


@pytest.mark.parametrize("batch_size", [3, 8])
def test_A28_a_quarter_of_the_batch_is_the_weight_of_the_authors_code(batch_size: int) -> None:
    """They add the losses and 0.5 times half of the divergences, summed over the batch: twice of ours."""
    made = bench(lengths=[6] * batch_size, dropout=0.2)
    got, _ = made.step(RDrop(weight=0.25 * batch_size))
    batch, model = made.micro[0], made.model
    model.zero_grad()
    seed_dropout(batch, 0)
    p = model.outputs(batch)["logits"]
    seed_dropout(batch, 1)
    q = model.outputs(batch)["logits"]
    label = batch.targets["label"]
    loss = torch.nn.functional.cross_entropy(p, label) + torch.nn.functional.cross_entropy(q, label)
    kl = torch.nn.KLDivLoss(reduction="sum", log_target=True)
    a, b = p.log_softmax(1), q.log_softmax(1)
    ((loss + 0.5 * (kl(a, b) + kl(b, a)) / 2) / 2).backward()  # type: ignore[no-untyped-call]
    assert furthest(got, gradients(model)) < 1e-6
    assert furthest(made.step(RDrop())[0], got) > 1e-6


@pytest.mark.parametrize("method", ALL, ids=lambda m: type(m).__name__)
def test_A24_the_weight_does_not_depend_on_batch_size(method: Method, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every row four times: a mean stays, a sum would grow."""
    masks_by_draw(monkeypatch)  # without dropout R-Drop's passes would be equal
    one = bench(lengths=[6, 6])
    batch = one.micro[0]
    inputs = {name: values.repeat(4, 1) for name, values in batch.inputs.items()}
    layout = type(batch.layout)(batch.layout.mask.repeat(4, 1))  # type: ignore[union-attr,arg-type]
    targets = {"label": batch.targets["label"].repeat(4)}
    four = Bench(one.model, [replace(batch, inputs=inputs, targets=targets, ids=batch.ids.repeat(4), layout=layout)])
    small, large = one.step(method.start(one.model)), four.step(method.start(one.model))
    assert furthest(small[0], large[0]) < 1e-6
    assert notes_of(small[1])["distance"] == pytest.approx(notes_of(large[1])["distance"], rel=1e-4)
    still = method.model_copy(update={"weight": 0.0})
    assert furthest(small[0], one.step(still.start(one.model))[0]) > 1e-4  # thrice as much would be seen


def test_r3f_draws_the_noise_it_says() -> None:
    made = bench("albert", lengths=[40] * 30, more={"embedding_size": 64})
    (uniform,) = made.trace(R3F(eps=0.01))
    assert 0.0099 < float(uniform.abs().max()) <= 0.01
    (normal,) = made.trace(R3F(eps=0.01, noise="normal"))
    assert float(normal.std()) == pytest.approx(0.01, rel=0.01)
    assert float((normal**4).mean() / normal.var() ** 2) == pytest.approx(3.0, rel=0.03)
    assert float(normal.mean()) == pytest.approx(0.0, abs=1e-4)


def test_r3f_is_its_formula_without_dropout() -> None:
    made = bench()
    with made.spied() as seen:
        _, terms = made.step(R3F(eps=0.3))
    assert notes_of(terms)["distance"] == pytest.approx(distance(made, seen[0]), rel=1e-4)
    (value,) = losses_of(terms).values()
    made.model.eval()
    assert float(value) == pytest.approx(float(made.model(made.micro[0])[1]["t", "loss"]), rel=1e-5)


@places
def test_A26_smart_climbs_the_distance(kind: str, layout: str) -> None:
    made = bench(kind, layout)
    with made.spied() as seen:
        made.step(Smart(ascent_steps=2, init_mag=1e-3, adv_lr=0.1, max_norm=None, norm="l2").start(made.model))
    first, _, last = (distance(made, one) for one in seen)
    assert last > 10 * first


def test_smart_stays_in_its_ball() -> None:
    made = bench()
    seen = made.trace(Smart(ascent_steps=2).start(made.model))
    assert len(seen) == 3
    assert all(float(one.abs().max()) <= 1e-5 for one in seen[1:])
    assert float(seen[1].abs().max()) == pytest.approx(1e-5)


def drifted(made: Bench, smart: Smart) -> tuple[Any, Gradients, Gradients]:
    """SMART at work, one step done and all weights moved since; the weights before that and after it."""
    running = smart.start(made.model)
    assert notes_of(made.step(running)[1])["drift"] == 0
    old = {name: p.detach().clone() for name, p in made.model.named_parameters()}
    torch.manual_seed(5)
    with torch.no_grad():
        for parameter in made.model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    made.micro = [replace(batch, step=1) for batch in made.micro]
    return running, old, {name: p.detach().clone() for name, p in made.model.named_parameters()}


def test_smart_follows_the_weights() -> None:
    made = bench()
    running, old, new = drifted(made, Smart(weight=0.0, proximal_weight=2.0, ema=0.9))
    drift = notes_of(made.step(running)[1])["drift"]
    for name, value in new.items():
        assert torch.allclose(running.tensors()[name], 0.9 * old[name] + 0.1 * value, atol=1e-6)
    again = made.step(running)  # the same step, as after a lack of memory: the mean has not moved twice
    assert notes_of(again[1])["drift"] == drift


@pytest.mark.slow
@pytest.mark.parametrize("most", [None, 3])
def test_smart_pulls_back_by_its_formula(most: int | None) -> None:
    """∇ (loss + μ · distance(f, f̃)), f̃ with the moving mean for weights and without a gradient, however it is cut."""
    made, whole = bench(most=most), bench()
    assert len(made.micro) == (3 if most else 1)
    running, old, new = drifted(made, Smart(weight=0.0, proximal_weight=2.0, ema=0.9))
    got, terms = made.step(running)
    whole.model.load_state_dict({name: 0.9 * old[name] + 0.1 * value for name, value in new.items()}, strict=False)
    past = logits(whole, None).detach()
    whole.model.load_state_dict(new, strict=False)
    plain = whole.plain()
    whole.model.zero_grad()
    clean = logits(whole, None)
    apart = kl(clean, past) + kl(past, clean)
    loss = torch.nn.functional.cross_entropy(clean, whole.micro[0].targets["label"])
    (loss + 2.0 * apart).backward()  # type: ignore[no-untyped-call]
    wanted = gradients(whole.model)
    assert furthest(got, wanted) < 1e-6
    assert notes_of(terms)["drift"] == pytest.approx(apart.item(), rel=1e-4)
    assert furthest(wanted, plain) > 1e-2


def test_smart_changes_its_pace_when_told() -> None:
    assert [Smart(late_step=5).rate(step) for step in (0, 4, 5)] == [0.99, 0.99, 0.999]
    assert Smart().rate(10**6) == 0.99


@pytest.mark.slow(0.5)
def test_R4_the_moving_mean_is_in_the_checkpoint(tmp_path: Any) -> None:
    method = {"kind": "smart", "proximal_weight": 50.0, "ema": 0.5}
    train = {"save": "1 steps", "max_steps": 4, "evaluate": "never", "keep_checkpoints": True}
    tree = settings(tmp_path, rows=48, dev=8, method=method, train=train)
    whole = run(tree, tmp_path / "whole")
    found, _ = newest_intact(whole.checkpoints)
    assert found is not None
    assert "method-smart" in found.groups
    assert int(found.tensors("method-smart")["step"]) == 3

    def kill(report: Any) -> None:
        if report.step == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tree, tmp_path / "killed", watch=kill)
    killed = weights_of(run(tree, tmp_path / "killed"))
    assert all(torch.equal(killed[name], value) for name, value in weights_of(whole).items())
    notes = [line for line in whole.metrics() if "method.drift" in line]
    assert notes[-1]["method.drift"] > 1e-6
    assert math.isfinite(notes[-1]["method.distance"])


def test_smart_without_start_says_so() -> None:
    with pytest.raises(TypeError, match="start"):
        bench().step(Smart())
