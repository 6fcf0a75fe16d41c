"""FreeAT: several updates in a step, and what the loop makes of them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from encodery.config.schema import OptimOptions
from encodery.errors import RunFailed
from encodery.methods.base import losses_of, notes_of
from encodery.methods.freeat import FreeAT
from encodery.methods.plain import Plain
from encodery.training import build, loop
from encodery.training.loop import LossScale, TrainState, Update
from encodery.training.optim import Optimizer, Param
from tests.methods.attacks import PLACES, Bench, bench
from tests.toolbox.models import furthest, gradients
from tests.toolbox.runs import metrics_of, resolve, run, settings

places = pytest.mark.parametrize(("kind", "layout"), PLACES)
STILL = {"dropout": 0.0, "attention_dropout": 0.0, "head_dropout": 0.0}
NOWHERE: dict[str, Any] = {"adv_lr": 0.0, "init_mag": 0.0}


def start(made: Bench, **options: Any) -> Any:
    return FreeAT(**options).start(made.model)


@places
def test_freeat_is_its_formula(kind: str, layout: str) -> None:
    """Backward, ascent with that gradient, update; then the same on the same batch."""
    made = bench(kind, layout)
    with made.spied() as seen:
        got, _ = made.step(start(made, steps=3, adv_lr=0.2, init_mag=0.1, max_norm=None))
    before = {name: p.detach().clone() for name, p in made.model.named_parameters()}
    delta = seen[0]
    for k in range(3):
        delta = delta.detach().requires_grad_()
        with made.model.encoder.perturbed(delta):
            wanted = made.plain()
        assert torch.allclose(seen[k], delta, atol=1e-5)
        assert delta.grad is not None
        sizes = made.norms(delta.grad)[made.micro[0].layout.sequence_of_token]
        per_token = made.micro[0].tokens(delta.grad) / sizes[:, None]
        delta = delta.detach() + 0.2 * made.micro[0].layout.from_tokens(per_token.float())
        if k < 2:
            made.slide({}, [])
    assert furthest(got, wanted) < 1e-5
    with torch.no_grad():
        for name, parameter in made.model.named_parameters():
            parameter.copy_(before[name])


def test_A5_the_start_is_drawn_once_a_step_and_climbs() -> None:
    made = bench()
    seen = made.trace(start(made, steps=4, adv_lr=0.2, init_mag=0.0, max_norm=0.5))
    sizes = [float(made.norms(one).max()) for one in seen]
    assert sizes[0] == 0
    assert sizes[1] == pytest.approx(0.2, rel=1e-5)
    assert sizes[3] <= 0.5 * (1 + 1e-5)


def test_the_loss_is_the_mean_over_the_passes_and_each_is_logged() -> None:
    made = bench()
    terms = made.step(start(made, steps=3))[1]
    notes = notes_of(terms)
    (loss,) = losses_of(terms).values()
    assert float(loss) / 8 == pytest.approx((notes["loss_1"] + notes["loss_2"] + notes["loss_adv"]) / 3, rel=1e-5)
    assert {"delta_1", "delta_3", "grad_1", "grad_2"} <= notes.keys()


def test_before_its_first_step_it_is_plain_training() -> None:
    made = bench(step=1)
    running = start(made, start_step=2)
    assert furthest(made.step(running)[0], made.plain()) == 0
    assert not running.updated


def test_without_the_loop_it_says_what_is_missing() -> None:
    made = bench()
    with pytest.raises(TypeError, match="start"):
        made.step(FreeAT())
    running = start(made)
    with pytest.raises(TypeError, match="the loop"):
        running.update_now({}, [])
    assert running.tensors() == {}


# In the loop


def parts_of(tmp_path: Any) -> tuple[Any, Optimizer]:
    """A built tiny run and its optimiser."""
    resolved = resolve(settings(tmp_path, model=STILL))
    parts = build.build(resolved, build.find_inputs(resolved))
    optimizer = Optimizer([Param(n, p, None) for n, p in parts.model.named_parameters()], OptimOptions(lr=1e-3), 2)
    return parts, optimizer


def half(step: int) -> float:
    return 1.0 if step == 0 else 0.5


@pytest.mark.slow
def test_A13_a_step_is_k_optimiser_calls_at_one_rate(tmp_path: Any) -> None:
    parts, optimizer = parts_of(tmp_path)
    factors: list[float] = []
    real = optimizer.step

    def counted(factor: float, shared: float = 1.0) -> None:
        factors.append(factor)
        real(factor, shared)

    optimizer.step = counted  # type: ignore[method-assign]
    state = TrainState(2, budget=parts.batcher.budget)
    method = FreeAT(steps=3).start(parts.model)
    reports = list(loop.train(parts.model, method, parts.batches, optimizer, half, state))
    assert factors == [1.0] * 3 + [0.5] * 3
    assert [report.step for report in reports] == [1, 2]
    assert state.step == 2
    assert {float(v) for n, v in optimizer.tensors().items() if n.endswith("/step")} == {6.0}


@pytest.mark.slow(0.5)
def test_without_perturbation_it_is_plain_training_on_every_batch_k_times(tmp_path: Any) -> None:
    one, optimizer = parts_of(tmp_path)
    state = TrainState(2, budget=one.batcher.budget)
    list(loop.train(one.model, FreeAT(**NOWHERE).start(one.model), one.batches, optimizer, half, state, clip_norm=0.5))
    two, optimizer = parts_of(tmp_path)
    for step in range(2):
        for _ in range(3):
            now = TrainState(step + 1, step=step, budget=two.batcher.budget)
            list(loop.train(two.model, Plain(), two.batches, optimizer, half, now, clip_norm=0.5))
    a, b = one.model.state_dict(), two.model.state_dict()
    assert all(torch.allclose(a[name], b[name], atol=1e-6) for name in a)
    assert any(not torch.equal(a[n], p) for n, p in parts_of(tmp_path)[0].model.state_dict().items())


@pytest.mark.slow(0.5)
def test_the_number_of_steps_does_not_change(tmp_path: Any) -> None:
    tree = settings(tmp_path, rows=48, dev=8, train={"evaluate": "never"})
    lengths = {
        kind: [line["step"] for line in metrics_of(run({**tree, "method": {"kind": kind}}, tmp_path / kind))]
        for kind in ("plain", "freeat")
    }
    assert lengths["plain"] == lengths["freeat"]


def fails(after: int, error: Exception) -> Callable[..., None]:
    """A hook that raises in the pass after so many."""
    left = [after]

    def hook(*_: object) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise error

    return hook


@pytest.mark.slow
def test_lack_of_memory_after_an_update_ends_the_run_and_before_it_does_not(tmp_path: Any) -> None:
    parts, optimizer = parts_of(tmp_path)
    method = FreeAT(steps=3).start(parts.model)
    state = TrainState(1, budget=parts.batcher.budget)
    handle = parts.model.objective(parts.task.name).register_forward_pre_hook(
        fails(1, torch.OutOfMemoryError("out of memory"))
    )
    with pytest.raises(RunFailed, match="after an update within the step"):
        list(loop.train(parts.model, method, parts.batches, optimizer, half, state))
    handle.remove()
    once: list[int] = []

    def first_only(*_: object) -> None:
        if not once:
            once.append(1)
            raise torch.OutOfMemoryError("out of memory")

    handle = parts.model.objective(parts.task.name).register_forward_pre_hook(first_only)
    state = TrainState(1, budget=parts.batcher.budget)
    assert len(list(loop.train(parts.model, method, parts.batches, optimizer, half, state))) == 1
    assert state.budget < parts.batcher.budget
    handle.remove()


def test_an_fp16_overflow_inside_a_step_skips_its_rest_once(tmp_path: Any) -> None:
    parts, optimizer = parts_of(tmp_path)
    state = TrainState(3, budget=parts.batcher.budget, scaler=LossScale(scale=8.0))
    update = Update(parts.model, parts.batches, optimizer, half, state, 1.0)
    before = {n: t.clone() for n, t in parts.model.state_dict().items()}
    next(parts.model.parameters()).grad = torch.full_like(next(parts.model.parameters()), float("inf"))
    assert update.early({}, []) is False
    assert state.scaler is not None
    assert state.scaler.scale == 8.0
    assert gradients(parts.model)  # left for the end of the step
    assert update({}, [])[1] is True
    assert (state.scaler.scale, state.scaler.skipped) == (4.0, 1)
    assert not gradients(parts.model)
    assert all(torch.equal(t, before[n]) for n, t in parts.model.state_dict().items())


def test_an_early_update_takes_the_scale_out_and_clips(tmp_path: Any) -> None:
    parts, optimizer = parts_of(tmp_path)
    state = TrainState(3, budget=parts.batcher.budget, scaler=LossScale(scale=8.0))
    seen: list[float] = []
    optimizer.step = lambda factor, shared: seen.append(float(parameter.grad.norm()))  # type: ignore[method-assign,assignment,union-attr]
    parameter = next(parts.model.parameters())
    parameter.grad = torch.full_like(parameter, 100.0)
    assert Update(parts.model, parts.batches, optimizer, half, state, 0.25).early({}, [])
    assert seen == [pytest.approx(0.25, rel=1e-4)]
    assert state.scaler is not None
    assert state.scaler.good == 0  # counted at the end of the step
