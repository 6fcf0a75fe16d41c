"""Importance sampling: unbiased weights, switched on only when it pays, resumed to the bit."""

import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from encodery.errors import UserError
from encodery.methods.base import Totals, losses_of, notes_of
from encodery.methods.importance import Importance, Sampling, draw, reduction, score
from encodery.report.records import read
from tests.toolbox.models import batcher_for, furthest, gradients, random_table, small_encoder, small_model, stream
from tests.toolbox.runs import metrics_of, run, settings, weights_of


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


@pytest.mark.slow
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
    batches = stream(table, batcher_for(model.encoder), batch_size=8)
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
    small = stream(batches.table, batcher_for(model.encoder, most=3), batch_size=8)
    sampling.source = small
    cut, _ = one((model, small, sampling), 3)
    sampling.source = batches
    assert furthest(whole, cut) < 1e-12
    assert notes_of(terms)["on"] == 1.0
    assert losses_of(terms).keys() == {("t", "loss")}


@pytest.mark.slow
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
    with pytest.raises(UserError, match="one label or number per text"):
        Importance().start(small_model(small_encoder(), pool="mean"))


def test_scores_are_the_gradient_at_the_logits(parts):
    model, batches, _ = parts
    (batch,) = batches.of_rows(np.arange(6), 0)
    outputs = model.outputs(batch)
    error = outputs["logits"].softmax(1) - torch.nn.functional.one_hot(batch.targets["label"], 3)
    assert torch.allclose(score(model, outputs, batch), error.norm(dim=1).detach())


@pytest.mark.slow
def test_D30_the_log_and_the_scores_say_how_often_it_was_on(tmp_path):
    method = {"kind": "importance", "threshold": 0.15}
    tree = settings(tmp_path, method=method, train={"max_steps": 10, "save": "2 steps"})
    done = run(tree, tmp_path / "some")
    on = [line["step"] for line in metrics_of(done) if line.get("method.on") == 1.0]
    sentence = (
        f"importance sampling was on in {len(on)} of 10 steps ({10 * len(on):.1f} %), first at step {on[0]}, last at 10"
    )
    assert done.read_scores()["notes"][0].startswith(sentence)
    log = done.log_file.read_text()
    assert sentence in log
    assert f"step {on[0]}  importance sampling on for table/train (τ " in log

    def die(report):
        if report.step == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tree, tmp_path / "killed", watch=die)
    assert run(tree, tmp_path / "killed").read_scores()["notes"] == done.read_scores()["notes"]


@pytest.mark.slow
def test_D30_never_on_is_a_warning_beside_the_figures(tmp_path):
    done = run(settings(tmp_path, method={"kind": "importance", "threshold": 50.0}), tmp_path / "never")
    (sentence,) = done.read_scores()["notes"]
    assert sentence.startswith("WARNING: importance sampling was never on in 12 steps (highest τ ")
    assert "needed 50.00): this is plain training" in sentence
    assert sentence in done.log_file.read_text()
    (record,), _ = read([tmp_path / "never"])
    assert sentence in record.notes["table/train:dev"]
    plain = run(settings(tmp_path), tmp_path / "plain")
    assert all(torch.equal(a, weights_of(done)[name]) for name, a in weights_of(plain).items())
    assert "notes" not in plain.read_scores()


def test_D30_a_step_that_is_begun_again_counts_once():
    sampling = Sampling(Importance())
    sampling.task = "t"
    for step, on in ((1, False), (2, True), (2, True), (3, True), (4, False), (5, True)):
        sampling.count(step, on, 2.5 if on else 1.0, 2.0)
    tally = sampling.tallies["t"]
    assert (tally.steps, tally.on, tally.first, tally.last, tally.switches) == (5, 3, 2, 5, 3)
    assert [line.split(" for ")[0] for line in sampling.messages()] == [
        "importance sampling on", "importance sampling off", "importance sampling on",
    ]  # fmt: skip
    assert sampling.messages() == []
    again = Sampling(Importance())
    again.load(sampling.tensors())
    assert again.tallies == sampling.tallies


def test_D31_what_tau_means_in_terms_of_accuracy():
    page = (Path(__file__).parents[2] / "docs" / "data-selection.md").read_text()
    rows = re.findall(r"^\| (\d\d) % \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", page, re.MULTILINE)
    assert len(rows) == 4
    for right, *told in rows:
        for chance, tau in zip((0.9, 0.95, 0.99), told, strict=True):
            many = torch.full((int(right),), 1 - chance), torch.full((100 - int(right),), 0.8)
            assert reduction(torch.cat(many).double()) == pytest.approx(float(tau), abs=0.005)
    for wrong in (4, 25, 50):
        scores = torch.cat([torch.ones(wrong), torch.zeros(100 - wrong)]).double()
        assert reduction(scores) == pytest.approx(math.sqrt(100 / wrong))
