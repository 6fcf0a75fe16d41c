"""Importance sampling: unbiased weights, switched on only when it pays, resumed to the bit."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from encodery.errors import UserError
from encodery.methods.base import Totals, losses_of, notes_of
from encodery.methods.importance import Importance, Sampling, draw, reduction, score
from tests.helpers import (
    cutter_for,
    furthest,
    gradients,
    metrics_of,
    random_table,
    run,
    settings,
    small_encoder,
    small_model,
    stream,
    weights_of,
)


@given(st.integers(2, 30), st.floats(1e-6, 10))
def test_D13_equal_scores_weigh_one_and_save_nothing(n, value):
    scores = torch.full((n,), value, dtype=torch.float64)
    _, weights = draw(scores, torch.rand(5, dtype=torch.float64))
    assert torch.allclose(weights, torch.ones(5, dtype=torch.float64))
    assert reduction(scores) == pytest.approx(1.0)


def test_D13_scores_of_zero_never_divide_by_zero():
    scores = torch.tensor([0.0, 0.0, 2.0, 1.0], dtype=torch.float64)
    chosen, weights = draw(scores, torch.linspace(0, 1 - 1e-9, 50, dtype=torch.float64))
    assert set(chosen.tolist()) == {2, 3}
    assert torch.isfinite(weights).all()
    chosen, weights = draw(torch.zeros(4, dtype=torch.float64), torch.tensor([0.1, 0.9], dtype=torch.float64))
    assert weights.tolist() == [1.0, 1.0]
    assert reduction(torch.zeros(4)) == 1.0
    _, smooth = draw(scores, torch.tensor([0.0], dtype=torch.float64), smoothing=1.0)
    assert math.isfinite(float(smooth[0]))


def test_D13_the_threshold_of_three_is_two():
    sampling = Sampling(Importance())
    assert sampling.limit(32) == pytest.approx(2.0)
    assert Sampling(Importance(threshold=0)).limit(32) < 0
    peaked = torch.tensor([1.0] + [1e-3] * 63)
    assert reduction(peaked) > 2.0


@given(st.lists(st.floats(0.01, 1), min_size=4, max_size=12), st.floats(0.2, 0.9))
def test_smaller_exponents_keep_the_weighted_sum(scores, exponent):
    scores = torch.tensor(scores, dtype=torch.float64)
    uniform = torch.linspace(0.01, 0.99, 20, dtype=torch.float64)
    chosen, plain = draw(scores, uniform)
    _, soft = draw(scores, uniform, exponent)
    assert float((soft * scores[chosen]).sum()) == pytest.approx(float((plain * scores[chosen]).sum()))


@pytest.fixture(scope="module")
def parts():
    """A small model in double precision with a pool of 24 rows, and the method always on."""
    model = small_model(small_encoder(num_hidden_layers=1)).double()
    table = random_table([5 + i % 7 for i in range(24)])
    batches = stream(table, cutter_for(model.encoder), batch_size=8)
    sampling = Importance(threshold=0, momentum=0.0).start(model)
    sampling.source = batches
    return model, batches, sampling


def one(parts, step):
    model, batches, sampling = parts
    model.zero_grad(set_to_none=True)
    totals = Totals({("t", "loss"): 8.0}, examples=8.0)
    terms = sampling(model, batches.at(step), totals)
    return gradients(model), terms


@pytest.mark.slow
def test_D13_the_mean_of_weighted_gradients_is_the_uniform_one(parts):
    model, batches, _ = parts
    model.zero_grad(set_to_none=True)
    for batch in batches.of_rows(np.arange(24), 0):
        (model(batch)[1]["t", "loss"] / 24).backward()
    wanted = gradients(model)["questions.t.head.classifier.bias"]
    found = torch.stack([one(parts, step)[0]["questions.t.head.classifier.bias"] for step in range(200)])
    error = found.std(0) / math.sqrt(len(found))
    assert ((found.mean(0) - wanted).abs() <= 3 * error + 1e-9).all()


def test_cutting_a_step_into_pieces_changes_nothing(parts):
    model, batches, sampling = parts
    whole, terms = one(parts, 3)
    small = stream(batches.table, cutter_for(model.encoder, most=3), batch_size=8)
    sampling.source = small
    cut, _ = one((model, small, sampling), 3)
    sampling.source = batches
    assert furthest(whole, cut) < 1e-12
    assert notes_of(terms)["on"] == 1.0
    assert losses_of(terms).keys() == {("t", "loss")}


def test_it_begins_plain_turns_on_and_resumes_to_the_bit(tmp_path):
    method = {"kind": "importance", "threshold": 0.15, "momentum": 0.9}
    tree = settings(tmp_path, method=method, train={"max_steps": 10, "save": "2 steps"})
    whole = run(tree, tmp_path / "whole")
    on = [line["method.on"] for line in metrics_of(whole) if "method.on" in line]
    assert on[0] == 0.0
    assert on[-1] == 1.0

    def die(report):
        if report.step == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tree, tmp_path / "killed", watch=die)
    again = run(tree, tmp_path / "killed")
    assert all(torch.equal(a, weights_of(again)[name]) for name, a in weights_of(whole).items())


def test_it_needs_one_answer_for_each_text():
    with pytest.raises(UserError, match="one answer for each text"):
        Importance().start(small_model(small_encoder(), pool="mean"))


def test_scores_are_the_gradient_at_the_logits(parts):
    model, batches, _ = parts
    (batch,) = batches.of_rows(np.arange(6), 0)
    outputs = model.outputs(batch)
    error = outputs["logits"].softmax(1) - torch.nn.functional.one_hot(batch.targets["label"], 3)
    assert torch.allclose(score(model, outputs, batch), error.norm(dim=1).detach())
