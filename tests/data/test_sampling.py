"""Rows drawn by saved scores: how often, with which weights, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from encodery.data.sampling import Sampler
from encodery.data.subset import Subset
from encodery.errors import UserError
from encodery.training import build
from tests.toolbox.runs import metrics_of, resolve, run, settings, weights_of

ROWS = 96


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    settings(folder)
    return folder


def saved(home: Path, name: str, scores: list[float], **meta) -> Path:
    """A selection of all rows with these scores, the highest first."""
    ids = [example.id for example in resolve(settings(home)).tasks[0][0].examples("train")][: len(scores)]
    order = np.argsort(-np.array(scores), kind="stable") if meta.pop("sort", True) else np.arange(len(scores))
    chosen = Subset([ids[i] for i in order], meta, [scores[i] for i in order])
    return chosen.write(home / name).parent


def hard(home: Path) -> Path:
    return saved(home, "hard", [1.0 if i % 4 == 0 else 0.05 for i in range(ROWS)])


def stream(home: Path, path: Path, **entry):
    resolved = resolve(settings(home, task={"sample_by": str(path), **entry}))
    return build.build(resolved, build.find_inputs(resolved)).batches


@given(st.lists(st.floats(0, 1), min_size=2, max_size=30).filter(lambda some: sum(some) > 0.01), st.floats(0.05, 2))
def test_D32_the_expected_gradient_is_the_uniform_one_and_weights_are_bounded(scores, smoothing):
    sampler = Sampler.of(np.array(scores), smoothing)
    assert (sampler.chances * sampler.weights * len(scores)).sum() == pytest.approx(len(scores))
    assert sampler.weights.max() <= 1 + 1 / smoothing + 1e-6
    values = np.random.default_rng(1).normal(size=len(scores))
    assert (sampler.chances * sampler.weights * values).sum() == pytest.approx(values.mean())


def test_D32_rows_are_drawn_as_often_as_their_scores_say(home):
    sampler = Sampler.of(np.array([3.0, 1.0, 0.0]), 0.25)
    drawn = np.concatenate([sampler.draw(key, 50) for key in range(2000)])
    shares = np.bincount(drawn, minlength=3) / len(drawn)
    assert np.abs(shares - sampler.chances).max() < 4 * 0.5 / np.sqrt(len(drawn))
    assert sampler.draw(7, 10).tolist() == sampler.draw(7, 10).tolist()


@pytest.mark.slow
def test_D32_batches_hold_drawn_rows_with_their_weights(home):
    batches = stream(home, hard(home))
    rows = np.concatenate([batches.rows_at(step) for step in range(600)])
    assert len(batches.rows_at(0)) == 16
    smooth = 0.1 * (0.25 * 1.0 + 0.75 * 0.05)
    chance = (1.0 + smooth) / (24 * (1.0 + smooth) + 72 * (0.05 + smooth))
    assert (rows % 4 == 0).mean() == pytest.approx(24 * chance, abs=0.02)
    for batch in batches.at(3):
        wanted = [1 / (ROWS * chance) if row % 4 == 0 else None for row in batch.ids.tolist()]
        for weight, known in zip(batch.weights.tolist(), wanted, strict=True):
            assert weight == pytest.approx(known) if known else weight > 1
    each = np.array([float(batch.weights.sum()) for step in range(600) for batch in batches.at(step)])
    assert each.sum() / (600 * 16) == pytest.approx(1.0, abs=0.03)  # the weights of what is drawn have mean 1


@pytest.mark.slow
def test_D32_it_trains_says_so_and_resumes_to_the_bit(home, tmp_path):
    tree = settings(home, task={"sample_by": str(hard(home))}, train={"save": "4 steps"})
    whole = run(tree, tmp_path / "whole")
    assert "rows of table/train are drawn by the scores of" in whole.log_file.read_text()
    plain = run(settings(home), tmp_path / "plain")
    assert [x["loss"] for x in metrics_of(whole) if "loss" in x] != [
        x["loss"] for x in metrics_of(plain) if "loss" in x
    ]

    def die(report):
        if report.step == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tree, tmp_path / "killed", watch=die)
    again = run(tree, tmp_path / "killed")
    assert all(torch.equal(a, weights_of(again)[name]) for name, a in weights_of(whole).items())


def test_D32_equal_scores_give_every_row_the_weight_one(home):
    batches = stream(home, saved(home, "equal", [0.5] * ROWS))
    assert all(weight == pytest.approx(1.0) for batch in batches.at(0) for weight in batch.weights.tolist())


def test_D32_its_content_is_part_of_the_identity(home):
    def digest(path: Path) -> str:
        return build.find_inputs(resolve(settings(home, task={"sample_by": str(path)}))).digests["tasks.0.sample_by"]

    assert digest(hard(home)) != digest(saved(home, "equal", [0.5] * ROWS))


@pytest.mark.parametrize(
    ("scores", "more", "message"),
    [
        ([1.0] * 90, {}, "has no score for 6 of 96 rows"),
        ([0.0] * ROWS, {}, "all scores are 0"),
        ([1.0] * 95 + [-0.5], {}, "is negative or not finite"),
        ([float("inf")] + [1.0] * 95, {}, "is negative or not finite"),
        ([i / 96 for i in range(ROWS)], {"sort": False}, "puts its lowest scores first"),
    ],
)
def test_D32_scores_that_rows_cannot_be_drawn_by_are_refused(home, tmp_path, scores, more, message):
    path = saved(home, "wrong", scores, **more)
    with pytest.raises(UserError, match=message):
        stream(home, path)


@pytest.mark.slow
def test_D32_what_else_does_not_go_together_is_refused(home, tmp_path):
    path = hard(home)
    (tmp_path / "bare.jsonl").write_text("\n".join(json.dumps({"id": str(i)}) for i in range(ROWS)) + "\n")
    with pytest.raises(UserError, match="has no scores"):
        stream(home, tmp_path / "bare.jsonl")
    resolved = resolve(settings(home, task={"sample_by": str(path)}, method={"kind": "importance"}))
    with pytest.raises(UserError, match="method importance draws rows itself"):
        build.build(resolved, build.find_inputs(resolved))
    with pytest.raises(UserError, match="sampling balanced draws rows by their class"):
        stream(home, path, sampling="balanced")
    with pytest.raises(UserError, match=r"train\.dynamics: .* use eval"):
        run(settings(home, task={"sample_by": str(path)}, train={"dynamics": True}), tmp_path / "out")
    foreign = saved(home, "foreign", [1.0] * ROWS, task="glue/rte", split="train", pool=ROWS, fingerprint="0" * 64)
    with pytest.raises(UserError, match="chosen from glue/rte:train"):
        stream(home, foreign)
