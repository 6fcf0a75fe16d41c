"""Weightings against their formulas written out, in double."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from encodery.config.schema import OptimOptions
from encodery.data.mixes import Shuffled
from encodery.errors import UserError
from encodery.methods.plain import Plain
from encodery.training.optim import Optimizer, Param
from encodery.weighting.constant import Constant
from encodery.weighting.gradnorm import GradNorm, top_norm
from encodery.weighting.pcgrad import PCGrad, project, random_orders
from encodery.weighting.uncertainty import Uncertainty
from tests.toolbox.models import furthest, gradients
from tests.weighting.two import TASKS, alone, parts, three, total, weighed


def test_G29_several_batches_of_a_step_are_the_sum_of_their_scaled_gradients() -> None:
    model, stream = three(Shuffled(per_step=4), {"t/number": 3.0})
    for step in range(2):
        drawn = [(stream.streams[task], number) for task, number in stream.drawn(step)]
        wanted = []
        for own, number in drawn:
            model.zero_grad(set_to_none=True)
            micro = own.nth(number, step)
            part = parts(model, stream, step)[0]
            counts = {(own.task, "loss"): float(len(micro[0]))}
            Plain()(model, micro, type(part.totals)(counts, 1 / len(drawn), float(len(micro[0]))))
            wanted.append(gradients(model))
        assert furthest(weighed(Constant(), model, stream, step), total(*wanted)) < 1e-12


def test_losses_of_tasks_that_come_together_are_added_up() -> None:
    model, stream = three(weights={"t/labels": 2.0})
    wanted = total(*(alone(model, part) for part in parts(model, stream)))
    assert furthest(weighed(Constant(), model, stream), wanted) < 1e-12


def test_uncertainty_scales_by_precision_and_learns_the_log_variance() -> None:
    model, stream = three()
    weighing: Any = Uncertainty(lr=0.5).start(model, list(TASKS), 1)
    logs = dict(zip(TASKS, (0.3, -0.7, 1.1), strict=True))
    weighing.load({task: torch.tensor(value) for task, value in logs.items()})
    found, wanted, slopes = weighed(weighing, model, stream), [], {}
    for part in parts(model, stream):
        half = 0.5 if part.task == "t/number" else 1.0
        wanted.append(alone(model, part, half * math.exp(-float(weighing.logs[part.task]))))
        s = torch.tensor(float(weighing.logs[part.task]), dtype=torch.float64, requires_grad=True)
        loss = part.loss(Plain()(model, part.micro, part.totals))
        (half * torch.exp(-s) * loss + half * s).backward()
        slopes[part.task] = float(s.grad)
    assert furthest(found, total(*wanted)) < 1e-12
    for task, log in weighing.logs.items():
        assert float(log.grad) == pytest.approx(slopes[task], rel=1e-5)


def test_uncertainty_leaves_idle_tasks_alone() -> None:
    model, stream = three(Shuffled())
    weighing: Any = Uncertainty().start(model, list(TASKS), 1)
    own = [Param(name, one.tensor, None, one.lr / 1e-2, True, False) for name, one in weighing.learnt().items()]
    optimizer = Optimizer([*own], OptimOptions(lr=1e-2, decay="all", weight_decay=0.5), 2)
    weighed(weighing, model, stream)
    busy = stream.at(0)[0].task
    before = {task: float(log) for task, log in weighing.logs.items()}
    optimizer.step(1.0)
    assert {task for task, log in weighing.logs.items() if float(log) != before[task]} == {busy}


def naive(gradients: list[np.ndarray], orders: list[list[int]]) -> np.ndarray:
    """The algorithm as its paper has it, on flat vectors."""
    bent = [g.copy() for g in gradients]
    for i, order in enumerate(orders):
        for j in order:
            inner = bent[i] @ gradients[j]
            if inner < 0:
                bent[i] -= inner / (gradients[j] @ gradients[j]) * gradients[j]
    return np.asarray(sum(bent))


@given(st.integers(2, 5), st.integers(0, 999), st.integers(0, 999))
def test_pcgrad_is_the_published_algorithm(tasks: int, seed: int, step: int) -> None:
    rng = np.random.default_rng(seed)
    flat = [rng.normal(size=7) for _ in range(tasks)]
    places = [torch.nn.Parameter(torch.zeros(3)), torch.nn.Parameter(torch.zeros(2, 2))]
    given = [
        dict(zip(places, (torch.from_numpy(g[:3]), torch.from_numpy(g[3:]).view(2, 2)), strict=True)) for g in flat
    ]
    orders = random_orders(seed, step, tasks)
    assert all(sorted([i, *order]) == list(range(tasks)) for i, order in enumerate(orders))
    bent, _ = project(given, orders)
    whole = sum(torch.cat([g[p].reshape(-1) for p in places]) for g in bent)
    assert np.allclose(whole.numpy(), naive(flat, orders), atol=1e-12)


def test_pcgrad_leaves_heads_and_agreement_as_they_are() -> None:
    model, stream = three()
    plain = weighed(Constant(), model, stream)
    weighing = PCGrad().start(model, list(TASKS), 1)
    found = weighed(weighing, model, stream)
    heads = {name for name in plain if name.startswith("questions")}
    assert heads
    assert all(torch.allclose(found[name], plain[name], rtol=1e-12) for name in heads)
    only_one = parts(model, stream)[:1]
    model.zero_grad(set_to_none=True)
    weighing(Plain(), model, only_one)
    assert furthest(gradients(model), alone(model, only_one[0])) < 1e-12


def test_gradnorm_moves_its_weights_down_the_slope_of_its_loss() -> None:
    model, stream = three()
    weighing: Any = GradNorm(alpha=1.5, lr=0.1).start(model, list(TASKS), 1)
    weighing.weights = torch.tensor([0.5, 1.5, 1.0], dtype=torch.float64)
    weighing.first = torch.tensor([2.0, 0.5, 1.0], dtype=torch.float64)
    before = weighing.weights.clone()
    norms, losses = [], []
    for part in parts(model, stream):
        model.zero_grad(set_to_none=True)
        losses.append(part.loss(Plain()(model, part.micro, part.totals)))
        norms.append(top_norm(model, {p: p.grad for p in model.parameters() if p.grad is not None}))
    w = before.clone().requires_grad_()
    sizes, pace = w * torch.tensor(norms).double(), torch.tensor(losses).double() / weighing.first
    target = (sizes.mean() * (pace / pace.mean()) ** 1.5).detach()
    (sizes - target).abs().sum().backward()
    moved = before - 0.1 * w.grad / np.mean(norms)  # type: ignore[operator]
    found = weighed(weighing, model, stream)
    assert torch.allclose(weighing.weights, moved * 3 / moved.sum(), rtol=1e-9)
    assert float(weighing.weights.sum()) == pytest.approx(3)
    wanted = [alone(model, part, float(weight)) for part, weight in zip(parts(model, stream), before, strict=True)]
    assert furthest(found, total(*wanted)) < 1e-12


def test_what_needs_all_tasks_says_so() -> None:
    model, stream = three(Shuffled())
    with pytest.raises(UserError, match="every task in every step"):
        weighed(GradNorm().start(model, list(TASKS), 1), model, stream)
