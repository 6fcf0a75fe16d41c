"""What every method must keep. Each file of the room is found by itself, so a new one needs no line here."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from encodery import build, loop
from encodery.find import find, names
from encodery.loop import TrainState
from encodery.methods.base import Method
from tests.helpers import (
    furthest,
    gradients,
    metrics_of,
    resolve,
    run,
    settings,
    weights_of,
)

METHODS = names("methods")


def built(folder: Path, kind: str, **options: Any) -> tuple[Any, Any]:
    """Model and stream of a tiny run with this method, and the method."""
    model = {"dropout": 0.0, "attention_dropout": 0.0, "head_dropout": 0.0}
    resolved = resolve(settings(folder, method={"kind": kind}, model=model, train=options))
    return build.build(resolved, build.find_inputs(resolved)), resolved.method


def step(folder: Path, kind: str, **options: Any) -> dict[str, torch.Tensor]:
    """The gradient of the first step."""
    parts, method = built(folder, kind, **options)
    parts.model.train()
    loop.gradient(parts.model, method, parts.batches, TrainState(9, budget=parts.cutter.budget), "mean")
    return gradients(parts.model)


@pytest.fixture(params=METHODS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_the_room_is_not_empty() -> None:
    assert "plain" in METHODS


def test_options_are_frozen_documented_and_survive_json(kind: str) -> None:
    method = find("methods", kind)
    assert issubclass(method, Method)
    assert method.__doc__
    options = method()
    assert method.model_validate_json(options.model_dump_json()) == options
    assert method.model_config["frozen"]
    for name, field in method.model_fields.items():
        assert field.description, f"{name} has no docstring"
        with pytest.raises(ValueError, match="frozen"):
            setattr(options, name, getattr(options, name))


def test_a_step_leaves_gradients_on_everything_that_is_trained(tmp_path: Path, kind: str) -> None:
    parts, method = built(tmp_path, kind)
    state = TrainState(9, budget=parts.cutter.budget)
    _, counts, terms = loop.gradient(parts.model, method, parts.batches, state, "mean")
    assert all(p.grad is not None for p in parts.model.parameters() if p.requires_grad)
    assert all(torch.isfinite(p.grad).all() for p in parts.model.parameters() if p.grad is not None)
    assert terms.keys() == counts.keys()
    assert not any(value.requires_grad for value in terms.values())


def test_the_gradient_does_not_depend_on_micro_batches(tmp_path: Path, kind: str) -> None:
    whole = step(tmp_path, kind)
    for cut in ({"micro_batch": 3}, {"token_budget": 32}, {"layout": "rows", "micro_batch": 5}, {"layout": "padded"}):
        assert furthest(whole, step(tmp_path, kind, **cut)) < 1e-6, cut


def test_the_same_step_twice_gives_the_same_bits(tmp_path: Path, kind: str) -> None:
    one = step(tmp_path, kind)
    torch.manual_seed(17)
    two = step(tmp_path, kind)
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_the_weights_and_the_data_are_left_alone(tmp_path: Path, kind: str) -> None:
    parts, method = built(tmp_path, kind)
    before = {n: t.clone() for n, t in parts.model.state_dict().items()}
    rows = [parts.batches.rows_at(i) for i in range(3)]
    loop.gradient(parts.model, method, parts.batches, TrainState(9, budget=parts.cutter.budget), "mean")
    assert all(torch.equal(t, before[n]) for n, t in parts.model.state_dict().items())
    assert all(np.array_equal(parts.batches.rows_at(i), rows[i]) for i in range(3))
    plain, _ = built(tmp_path, "plain")
    assert all(np.array_equal(plain.batches.rows_at(i), rows[i]) for i in range(3))


def test_it_learns(tmp_path: Path, kind: str) -> None:
    tree = settings(tmp_path, method={"kind": kind}, optim={"lr": 1e-2}, train={"max_steps": 40, "batch_size": 32})
    scores = run(tree, tmp_path / "run").read_scores()
    assert scores["scores"]["table/train:dev"]["accuracy"] > 0.8


def test_R4_it_goes_on_to_the_same_bits(tmp_path: Path, kind: str) -> None:
    options = {"save": "2 steps", "max_steps": 8, "micro_batch": 5}  # an epoch has six steps
    tree = settings(tmp_path, method={"kind": kind}, train=options)
    straight = run(tree, tmp_path / "straight")

    def kill(report: Any) -> None:
        if report.step == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tree, tmp_path / "killed", watch=kill)
    killed = run(tree, tmp_path / "killed")
    assert metrics_of(killed) == metrics_of(straight)
    a, b = weights_of(killed), weights_of(straight)
    assert all(torch.equal(a[name], b[name]) for name in b)
