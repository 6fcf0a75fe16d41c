"""The loop: exact sums, the same bits twice, nothing that is not finite, and smaller parts when memory runs out."""

import itertools
import math
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertForSequenceClassification, get_linear_schedule_with_warmup

from encodery.config.schema import OptimOptions
from encodery.data.batches import Batches
from encodery.errors import RunFailed, UserError
from encodery.methods.base import Totals, seed_dropout
from encodery.methods.plain import Plain
from encodery.models.model import Model
from encodery.training import loop, optim
from encodery.training.loop import LossScale, StepReport, TrainState, count, steps_in_all
from encodery.training.optim import Optimizer, Param
from tests.toolbox.models import batcher_for, furthest, gradients, random_table, small_encoder, small_model, stream

LENGTHS = np.random.default_rng(5).integers(2, 20, 64).tolist()
WEIGHTS = [0.5, 2.0, 1.25]
CUTS: list[dict[str, Any]] = [{"most": 8}, {"budget": 64}, {"most": 1}, {"budget": 100, "most": 3}]


def parts(
    layout: str = "packed", dropout: float = 0.0, form: str = "single", double: bool = False, kind: str = "bert",
    lengths: list[int] = LENGTHS, **options: Any,
) -> tuple[Model, Batches]:  # fmt: skip
    """A model and its stream of 32 rows a step; `most` and `budget` say how the step is cut."""
    cut = {name: options.pop(name) for name in ("most", "budget") if name in options}
    encoder = small_encoder(kind, layout, dropout=dropout)
    model = small_model(encoder, form=form, head_dropout=dropout, **options)
    batches = stream(random_table(lengths, form=form), batcher_for(encoder, **cut))
    return (model.double() if double else model), batches


def optimizer_of(model: Model, **options: Any) -> Optimizer:
    named = [Param(n, p, d) for n, p, d in model.encoder.named_depths()]
    heads = [Param(f"head.{n}", p, None) for n, p in model.questions.named_parameters()]
    return Optimizer([*named, *heads], OptimOptions(**{"lr": 1e-3, "warmup": 0.0, **options}), model.encoder.layers)


def take(model: Model, batches: Batches, steps: int, state: TrainState | None = None, **more: Any) -> list[StepReport]:
    """Some steps of the loop, with options of the optimiser and of the loop."""
    clip, reduction = more.pop("clip_norm", 1.0), more.pop("reduction", "mean")
    method = more.pop("method", Plain())
    optimizer = more.pop("optimizer", None) or optimizer_of(model, **more)
    state = state or TrainState(steps, budget=batches.batcher.budget)
    factor = optim.schedule(optimizer.options, steps)
    return list(loop.train(model, method, batches, optimizer, factor, state, clip, reduction))


def gradient(model: Model, batches: Batches, reduction: str = "mean") -> tuple[dict[str, torch.Tensor], float, int]:
    """Gradient of step 0, its loss, and the number of micro-batches."""
    model.zero_grad(set_to_none=True)
    state = TrainState(1, budget=batches.batcher.budget)
    micro, counts, terms = loop.gradient(model, Plain(), batches, state, reduction)
    return gradients(model), float(terms["t", "loss"]) / counts["t", "loss"], len(micro)


# Exact sums


def options_of(form: str, double: bool) -> dict[str, Any]:
    if form == "weighted":
        return {"form": "single", "double": double, "class_weights": WEIGHTS, "label_smoothing": 0.1}
    return {"form": form, "double": double}


@cache
def uncut(form: str, double: bool) -> tuple[dict[str, torch.Tensor], float, int]:
    """The gradient of a whole step, for all cuts to be compared with."""
    return gradient(*parts(**options_of(form, double)))


@pytest.mark.parametrize("form", ["single", "weighted", "multilabel", "regression"])
@pytest.mark.parametrize("cut", CUTS, ids=str)
@pytest.mark.parametrize("double", [False, True])
def test_R14_the_gradient_does_not_depend_on_micro_batches(form: str, cut: dict[str, Any], double: bool) -> None:
    options = options_of(form, double)
    whole, loss, one = uncut(form, double)
    found, other, many = gradient(*parts(**options, **cut))
    assert (one, many > 2) == (1, True)
    assert whole.keys() == found.keys()
    assert furthest(whole, found) < (1e-12 if double else 1e-6)
    assert other == pytest.approx(loss, rel=1e-12 if double else 1e-5)


@pytest.mark.parametrize("layout", ["rows", "padded"])
def test_R14_nor_on_the_layout(layout: str) -> None:
    options: dict[str, Any] = {"double": True, "class_weights": WEIGHTS}
    whole, loss, _ = gradient(*parts(**options))
    found, other, many = gradient(*parts(layout, most=8, **options))
    assert many >= 4
    assert furthest(whole, found) < 1e-12
    assert other == pytest.approx(loss, rel=1e-12)


def test_the_loss_is_the_weighted_mean_over_the_step() -> None:
    model, batches = parts(class_weights=WEIGHTS, double=True, most=5)
    _, loss, _ = gradient(model, batches)
    batch = batcher_for(model.encoder).batch(batches.table, batches.rows_at(0), "t", 0)
    logits = model.outputs(batch)["logits"]
    wanted = torch.nn.functional.cross_entropy(logits, batch.targets["label"], torch.tensor(WEIGHTS).double())
    assert loss == pytest.approx(float(wanted), rel=1e-12)


def test_counts_are_known_before_any_pass() -> None:
    model, batches = parts(class_weights=WEIGHTS, most=5)
    labels = batches.table.targets["label"][batches.rows_at(0)]
    assert count(model, batches.at(0)) == {("t", "loss"): pytest.approx(sum(WEIGHTS[y] for y in labels))}


def test_a_step_whose_labels_are_all_hidden_moves_nothing() -> None:
    model, batches = parts()
    batches.table.targets["label"] = np.full(64, -100)
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    (report,) = take(model, batches, 1, weight_decay=0.0)
    assert (report.loss, report.norm) == (0.0, 0.0)
    assert all(torch.equal(p, before[n]) for n, p in model.named_parameters())


@pytest.mark.parametrize(
    "cut",
    [
        {"most": 8},
        pytest.param({"budget": 100}, marks=pytest.mark.slow),
        {"layout": "rows"},
        pytest.param({"layout": "padded", "most": 8}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_R14_weights_agree_after_20_steps_of_adamw(cut: dict[str, Any]) -> None:
    weights = []
    for options in ({}, cut):
        model, batches = parts(**options)
        take(model, batches, 20, eps=1e-6)
        weights.append({n: p.detach() for n, p in model.named_parameters()})
    assert furthest(*weights) < 5e-6


@pytest.mark.slow(0.5)
def test_R14_float64_weights_agree_after_20_steps() -> None:
    weights = []
    for options in ({}, {"most": 8}):
        model, batches = parts(double=True, **options)
        take(model, batches, 20, eps=1e-6)
        weights.append({n: p.detach() for n, p in model.named_parameters()})
    assert furthest(*weights) < 1e-12


@pytest.mark.slow(0.5)
@pytest.mark.parametrize("layout", ["packed", "rows", "padded"])
def test_R14_equal_layouts_give_equal_bits_with_dropout(layout: str) -> None:
    found = []
    for _ in range(2):
        model, batches = parts(layout, dropout=0.1, budget=200)
        torch.manual_seed(len(found))  # whatever happened before must not matter
        found.append(([r.loss for r in take(model, batches, 6)], model.state_dict()))
    assert found[0][0] == found[1][0]
    assert all(torch.equal(found[0][1][n], found[1][1][n]) for n in found[0][1])


@pytest.mark.slow(0.5)
def test_R4_going_on_in_the_middle_of_an_epoch_gives_the_same_bits() -> None:
    model, batches = parts(dropout=0.1, budget=200, lengths=LENGTHS * 2)  # 4 steps an epoch
    straight = take(model, batches, 10)
    first, batches = parts(dropout=0.1, budget=200, lengths=LENGTHS * 2)
    optimizer, state = optimizer_of(first), TrainState(10, budget=200)
    steps = loop.train(first, Plain(), batches, optimizer, optim.schedule(optimizer.options, 10), state)
    begun = list(itertools.islice(steps, 6))
    second, batches = parts(dropout=0.1, budget=200, lengths=LENGTHS * 2)
    second.load_state_dict(first.state_dict())
    other = optimizer_of(second)
    other.load(optimizer.tensors(), optimizer.state())
    rest = take(second, batches, 10, TrainState.read(state.to_dict()), optimizer=other)
    assert [r.loss for r in [*begun, *rest]] == [r.loss for r in straight]
    assert all(torch.equal(p, dict(model.named_parameters())[n]) for n, p in second.named_parameters())


def test_dropout_follows_from_the_batch_and_the_draw() -> None:
    model, batches = parts(dropout=0.3, most=16)
    batch, other = batches.at(0)
    logits = []
    for one, draw in ((batch, 0), (batch, 0), (batch, 1), (replace(batch, seed=other.seed), 0)):
        seed_dropout(one, draw)
        logits.append(model.outputs(one)["logits"])
    assert torch.equal(logits[0], logits[1])
    assert not torch.equal(logits[0], logits[2])
    assert not torch.equal(logits[0], logits[3])


# Like the usual loop


def test_five_steps_equal_a_loop_written_by_hand_over_transformers() -> None:
    model, batches = parts("padded")
    stock = BertForSequenceClassification(model.encoder.net.config)
    state = {f"bert.{n}": p for n, p in model.encoder.net.state_dict().items()}
    state |= dict(model.objective("t").head.state_dict().items())
    stock.load_state_dict(state)
    decayed = [p for p in stock.parameters() if p.ndim > 1]
    plain = [p for p in stock.parameters() if p.ndim < 2]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}]
    adam = torch.optim.AdamW(groups, lr=1e-3, eps=1e-6)
    schedule = get_linear_schedule_with_warmup(adam, 2, 5)
    stock.train()
    losses = []
    for step in range(5):
        (batch,) = batches.at(step)
        loss = stock(**batch.inputs, labels=batch.targets["label"]).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(stock.parameters(), 1.0)
        adam.step()
        schedule.step()
        adam.zero_grad()
        losses.append(float(loss))
    ours = take(model, batches, 5, warmup=2)
    assert [r.loss for r in ours] == pytest.approx(losses, abs=1e-6)
    mine = {f"bert.{n}": p.detach() for n, p in model.encoder.net.named_parameters()}
    mine |= {n: p.detach() for n, p in model.objective("t").head.named_parameters()}
    assert furthest(mine, {n: p.detach() for n, p in stock.named_parameters()}) < 1e-6


# R6


def poison(model: Model, what: str) -> None:
    """NaN in the loss, or only in the gradient (the loss stays finite)."""
    if what == "loss":
        inner = model.objective("t").losses
        model.objective("t").losses = lambda *a: {name: value * math.nan for name, value in inner(*a).items()}
    else:
        parameter = next(iter(model.parameters()))
        parameter.register_hook(lambda g: g * math.inf)


@pytest.mark.slow
@pytest.mark.parametrize(("what", "named"), [("loss", "loss t/loss"), ("gradient", "the gradient norm")])
def test_R6_what_is_not_finite_stops_before_the_weights_are_touched(what: str, named: str) -> None:
    model, batches = parts(budget=200)
    state = TrainState(9, budget=200)
    optimizer = optimizer_of(model)
    steps = loop.train(model, Plain(), batches, optimizer, optim.schedule(optimizer.options, 9), state)
    next(steps)
    before = {n: t.detach().clone() for n, t in [*model.state_dict().items(), *optimizer.tensors().items()]}
    poison(model, what)
    with pytest.raises(RunFailed, match=rf"step 2: {named} is not finite; task t, examples row-\d+") as caught:
        next(steps)
    assert caught.value.exit_code == 1
    ids = {f"row-{row}" for row in batches.rows_at(1).tolist()}
    said = str(caught.value).partition("examples ")[2].partition(" and ")[0].split(", ")
    assert len(said) == 8
    assert set(said) <= ids
    assert state.step == 1
    after = {**model.state_dict(), **optimizer.tensors()}
    assert all(torch.equal(after[n], before[n]) for n in before)


@pytest.mark.slow
def test_R6_where_single_examples_are_to_blame_only_they_are_named() -> None:
    model, batches = parts(most=4)
    guilty = {int(row) for row in batches.rows_at(0)[[7, 21]]}
    inner = model.objective("t").losses
    model.objective("t").losses = lambda outputs, batch: {
        "loss": inner(outputs, batch)["loss"] * (math.nan if guilty & set(batch.ids.tolist()) else 1)
    }
    with pytest.raises(RunFailed) as caught:
        take(model, batches, 1)
    said = str(caught.value).partition("examples ")[2].partition(". ")[0].split(", ")
    assert set(said) == {f"row-{row}" for row in guilty}


# fp16 and bf16


def test_R6_the_scale_falls_after_an_overflow_and_rises_after_two_thousand_good_steps() -> None:
    scale = LossScale(1024.0)
    scale.update(True)
    scale.update(True)
    assert (scale.scale, scale.in_a_row, scale.skipped, scale.good) == (256.0, 2, 2, 0)
    for _ in range(1999):
        scale.update(False)
    assert (scale.scale, scale.in_a_row, scale.good) == (256.0, 0, 1999)
    scale.update(False)
    assert (scale.scale, scale.good, scale.skipped) == (512.0, 0, 2)
    low = LossScale(1.5)
    low.update(True)
    assert low.scale == 1.0


def test_R6_the_scale_survives_a_checkpoint() -> None:
    state = TrainState(9, step=3, scaler=LossScale(512.0, 7, 1, 4), losses=[1.0, 2.0], best={"step": 2, "score": 0.5})
    assert TrainState.read(state.to_dict()) == state


def overflowing(model: Model, times: list[bool]) -> None:
    """The gradient of one parameter overflows in the passes that are marked."""
    turn = iter(times)
    next(iter(model.parameters())).register_hook(lambda g: g * math.inf if next(turn, False) else g)


def test_R6_under_fp16_an_overflow_skips_the_step_and_is_counted() -> None:
    model, batches = parts()
    overflowing(model, [False, True, False])
    state = TrainState(3, budget=1 << 30, scaler=LossScale(1024.0))
    optimizer = optimizer_of(model)
    steps = loop.train(model, Plain(), batches, optimizer, lambda _: 1.0, state)
    assert not next(steps).skipped
    before = {n: t.detach().clone() for n, t in model.state_dict().items()}
    assert next(steps).skipped
    assert all(torch.equal(t, before[n]) for n, t in model.state_dict().items())
    assert not next(steps).skipped
    assert any(not torch.equal(t, before[n]) for n, t in model.state_dict().items())
    assert state.scaler
    assert (state.scaler.scale, state.scaler.skipped, state.scaler.in_a_row) == (512.0, 1, 0)
    assert len(state.losses) == 2


@pytest.mark.slow
def test_R6_twenty_overflows_in_a_row_stop_the_run() -> None:
    model, batches = parts(lengths=[3] * 8)
    overflowing(model, [True] * 99)
    state = TrainState(99, budget=1 << 30, scaler=LossScale())
    before = {n: t.detach().clone() for n, t in model.state_dict().items()}
    with pytest.raises(RunFailed, match=r"step 20: 20 fp16 overflows in a row"):
        take(model, batches, 99, state)
    assert all(torch.equal(t, before[n]) for n, t in model.state_dict().items())


@pytest.mark.slow
def test_the_scale_leaves_no_trace_in_the_gradient() -> None:
    """The norm that is reported, clipped and stepped with is the true one."""
    weights = []
    for scaler in (None, LossScale(4096.0)):
        model, batches = parts(double=True)
        reports = take(model, batches, 4, TrainState(4, budget=1 << 30, scaler=scaler), clip_norm=0.05)
        weights.append(({n: p.detach() for n, p in model.named_parameters()}, [r.norm for r in reports]))
    assert weights[0][1] == pytest.approx(weights[1][1], rel=1e-9)
    assert furthest(weights[0][0], weights[1][0]) < 1e-9


@pytest.mark.slow(0.5)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_trains_on_a_cpu(dtype: torch.dtype) -> None:
    model, batches = parts(lengths=LENGTHS[:16])
    model.autocast_to = dtype
    scaler = LossScale() if dtype == torch.float16 else None
    reports = take(model, batches, 12, TrainState(12, budget=1 << 30, scaler=scaler), lr=5e-3)
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    losses = [r.loss for r in reports if not r.skipped]
    assert losses[-1] < losses[0] - 0.05
    exact, batches = parts(lengths=LENGTHS[:16])
    wanted = take(exact, batches, 1)[0]
    assert losses[0] == pytest.approx(wanted.loss, rel=0.02)


# Out of memory


NO_ROOM = [
    torch.OutOfMemoryError("CUDA out of memory."),
    RuntimeError("DefaultCPUAllocator: can't allocate memory"),
    RuntimeError("MPS backend out of memory"),
]


@pytest.mark.slow
@pytest.mark.parametrize("error", NO_ROOM, ids=str)
@pytest.mark.parametrize("layout", ["packed", "rows", "padded"])
def test_a_device_out_of_memory_gets_smaller_parts_and_the_same_gradient(
    layout: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, _, _ = gradient(*parts(layout))
    model, batches = parts(layout)
    forward = Model.forward

    def tight(self: Model, batch: Any) -> Any:
        if batch.inputs["input_ids"].numel() > 120:
            raise error
        return forward(self, batch)

    monkeypatch.setattr(Model, "forward", tight)
    state = TrainState(1, budget=1 << 30)
    micro, _, _ = loop.gradient(model, Plain(), batches, state, "mean")
    assert len(micro) > 2
    assert state.budget <= 120
    assert furthest(whole, gradients(model)) < 1e-6


@pytest.mark.slow
def test_a_pass_that_fails_half_way_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, _, _ = gradient(*parts())
    model, batches = parts(most=8)
    forward, calls = Model.forward, []

    def third(self: Model, batch: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return forward(self, batch)

    monkeypatch.setattr(Model, "forward", third)
    loop.gradient(model, Plain(), batches, TrainState(1, budget=1 << 30), "mean")
    assert furthest(whole, gradients(model)) < 1e-6


def test_out_of_memory_with_single_sequences_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batches = parts()

    def never(self: Model, batch: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(Model, "forward", never)
    with pytest.raises(RunFailed, match=r"out of memory with a single sequence; lower train\.max_length"):
        take(model, batches, 1)


def test_other_errors_pass_through(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batches = parts()
    monkeypatch.setattr(Model, "forward", lambda *_: (_ for _ in ()).throw(RuntimeError("something else")))
    with pytest.raises(RuntimeError, match="something else"):
        take(model, batches, 1)


# Reductions, clipping, schedules, kinds


def test_F13_sum_and_mean_give_the_same_update_when_both_are_clipped() -> None:
    moved = []
    for reduction in ("mean", "sum"):
        model, batches = parts(double=True)
        before = {n: p.detach().clone() for n, p in model.named_parameters()}
        (report,) = take(model, batches, 1, clip_norm=1e-3, reduction=reduction, weight_decay=0.0)
        assert report.norm > 1e-3
        moved.append(({n: p.detach() - before[n] for n, p in model.named_parameters()}, report))
    (mean, a), (total, b) = moved
    cosine = torch.nn.functional.cosine_similarity(
        torch.cat([x.reshape(-1) for x in mean.values()]), torch.cat([x.reshape(-1) for x in total.values()]), dim=0
    )
    assert float(cosine) > 1 - 1e-4
    assert b.norm == pytest.approx(32 * a.norm, rel=1e-9)
    assert b.loss == pytest.approx(a.loss, rel=1e-12)  # what is reported is the mean in both


def test_clipping_bounds_the_gradient_that_is_stepped_with() -> None:
    model, batches = parts()
    seen = []
    optimizer = optimizer_of(model)
    step = optimizer.step
    optimizer.step = lambda factor, shared: (  # type: ignore[method-assign]
        seen.append(float(torch.cat([p.grad.reshape(-1) for p in model.parameters() if p.grad is not None]).norm())),
        step(factor),
    )
    (report,) = take(model, batches, 1, optimizer=optimizer, clip_norm=0.01)
    assert report.norm > 0.01
    assert seen == [pytest.approx(0.01, rel=1e-3)]


@pytest.mark.slow
@pytest.mark.parametrize(  # every pair of two of them
    ("kind", "schedule", "style"),
    [
        (kind, schedule, ("sequential", "simultaneous")[(i + j) % 2])
        for i, kind in enumerate(("adamw", "adamax"))
        for j, schedule in enumerate(("linear", "cosine", "constant", "wsd"))
    ],
)
def test_every_optimiser_and_schedule_learns(kind: str, schedule: str, style: str) -> None:
    model, batches = parts(lengths=LENGTHS[:16])
    options = {"kind": kind, "schedule": schedule, "warmup_style": style, "warmup": 0.2}
    reports = take(model, batches, 15, **options, lr=1e-2, layer_decay=0.9, bias_correction=kind == "adamw")
    assert reports[-1].loss < reports[0].loss - 0.03
    assert reports[0].rate == 0.0
    assert max(r.rate for r in reports) <= 1e-2


@pytest.mark.parametrize("kind", ["bert", "electra", "distilbert", "modernbert", "deberta-v2"])
def test_gradient_checkpointing_gives_the_same_gradient(kind: str) -> None:
    found = []
    for use in (False, True):
        model, batches = parts("auto", dropout=0.1, kind=kind)
        if use:
            model.encoder.net.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.train()
        found.append(gradient(model, batches)[0])
    assert furthest(*found) < 1e-6


def test_frozen_parameters_do_not_move_and_cost_no_gradient() -> None:
    from encodery.models.encoder import freeze

    model, batches = parts()
    freeze(model.encoder, "top:1")
    before = {n: p.detach().clone() for n, p in model.encoder.net.named_parameters()}
    take(model, batches, 2)
    for name, parameter, depth in model.encoder.named_depths():
        assert torch.equal(parameter, before[name]) == (depth in (0, 1)), name


# Reports


def test_reports_say_what_was_done() -> None:
    model, batches = parts("padded", most=8)
    reports = take(model, batches, 3)
    assert [r.step for r in reports] == [1, 2, 3]
    for r in reports:
        lengths = np.array(LENGTHS)[batches.rows_at(r.step - 1)]
        assert (r.sequences, r.tokens) == (32, lengths.sum())
        assert r.cells > r.tokens
        assert r.terms == {"t/loss": r.loss}
        assert r.seconds > 0
    assert [r.rate for r in reports] == pytest.approx([1e-3, 1e-3 * 2 / 3, 1e-3 / 3])


def test_the_latest_hundred_losses_are_kept() -> None:
    state = TrainState(1)
    for i in range(250):
        state.remember(float(i))
    assert state.losses == [float(i) for i in range(150, 250)]


@pytest.mark.parametrize(("epochs", "steps"), [(3, 6), (0.5, 1), (2.4, 5), (1 / 3, 1)])
def test_epochs_become_steps(epochs: float, steps: int) -> None:
    assert steps_in_all(parts()[1], epochs, None) == steps
    assert steps_in_all(parts()[1], epochs, 7) == 7


def test_less_than_one_step_is_a_sentence() -> None:
    with pytest.raises(UserError, match=r"train\.epochs: less than one step"):
        steps_in_all(parts()[1], 1e-12, None)


def test_totals_divide_each_term_by_its_own_count() -> None:
    totals = Totals({("a", "x"): 4.0, ("b", "y"): 10.0}).times(0.5)
    terms = {("a", "x"): torch.tensor(2.0), ("b", "y"): torch.tensor(5.0)}
    assert float(totals.mean(terms)) == 0.5
