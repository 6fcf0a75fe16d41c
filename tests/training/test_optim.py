"""The optimiser against its formulas, written here anew in float64, and against torch's own."""

import json
import math
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load, save
from torch import Tensor, nn

from encodery.config.schema import OptimOptions
from encodery.errors import UserError
from encodery.training.muon import Muon
from encodery.training.optim import Optimizer, Param, clip, groups


def weights(seed: int = 0, dtype: torch.dtype = torch.float64) -> list[Param]:
    """A matrix, a bias and a head, as an encoder of one layer would have them."""
    draw = torch.Generator().manual_seed(seed)
    made = [nn.Parameter(torch.randn(shape, generator=draw, dtype=dtype)) for shape in [(5, 3), (3,), (2, 3)]]
    return [Param("block.weight", made[0], 1), Param("block.bias", made[1], 1), Param("head.weight", made[2], None)]


def give_gradients(parameters: list[Param], step: int) -> None:
    """Gradients that depend on nothing but the step."""
    draw = torch.Generator().manual_seed(1000 + step)
    for _, tensor, *_ in parameters:
        tensor.grad = torch.randn(tensor.shape, generator=draw, dtype=torch.float64).to(tensor.dtype)


def run(parameters: list[Param], optimizer: Optimizer, steps: range) -> None:
    for step in steps:
        give_gradients(parameters, step)
        optimizer.step(factor_at(step))
        optimizer.zero_grad()


def factor_at(step: int) -> float:
    """A rate that changes all the time and is 0 at first."""
    return abs(math.sin(0.3 * step))


def adamw(theta: Tensor, rates: Iterator[float], options: OptimOptions, decay: float) -> Callable[[Tensor], Tensor]:
    """The formula of the paper (with bias correction) or of BERT's code (without), one call a step."""
    b1, b2 = options.betas
    now = {"theta": theta.detach().clone(), "m": torch.zeros_like(theta), "v": torch.zeros_like(theta), "t": 0}

    def step(grad: Tensor) -> Tensor:
        now["t"] += 1
        now["m"] = b1 * now["m"] + (1 - b1) * grad
        now["v"] = b2 * now["v"] + (1 - b2) * grad**2
        c1, c2 = (1 - b1 ** now["t"], 1 - b2 ** now["t"]) if options.bias_correction else (1.0, 1.0)
        update = now["m"] / c1 / ((now["v"] / c2).sqrt() + options.eps)
        now["theta"] = now["theta"] - next(rates) * (update + decay * now["theta"])
        return now["theta"]

    return step


def adamax(theta: Tensor, rates: Iterator[float], options: OptimOptions, decay: float) -> Callable[[Tensor], Tensor]:
    """Adamax of Adam's paper (eps as in torch), with decoupled weight decay."""
    b1, b2 = options.betas
    now = {"theta": theta.detach().clone(), "m": torch.zeros_like(theta), "u": torch.zeros_like(theta), "t": 0}

    def step(grad: Tensor) -> Tensor:
        now["t"] += 1
        now["m"] = b1 * now["m"] + (1 - b1) * grad
        now["u"] = torch.maximum(b2 * now["u"], grad.abs() + options.eps)
        c1 = 1 - b1 ** now["t"] if options.bias_correction else 1.0
        now["theta"] = now["theta"] - next(rates) * (now["m"] / c1 / now["u"] + decay * now["theta"])
        return now["theta"]

    return step


def stable(theta: Tensor, rates: Iterator[float], options: OptimOptions, decay: float) -> Callable[[Tensor], Tensor]:
    """Algorithm 2 of arXiv 2304.13013: AdamW whose rate is divided by the root mean square of g² / v, if above 1."""
    b1, b2 = options.betas
    now = {"theta": theta.detach().clone(), "m": torch.zeros_like(theta), "v": torch.zeros_like(theta), "t": 0}

    def step(grad: Tensor) -> Tensor:
        now["t"] += 1
        now["m"] = b1 * now["m"] + (1 - b1) * grad
        now["v"] = b2 * now["v"] + (1 - b2) * grad**2
        c1, c2 = (1 - b1 ** now["t"], 1 - b2 ** now["t"]) if options.bias_correction else (1.0, 1.0)
        size = (grad**2 / torch.maximum(now["v"] / c2, torch.tensor(options.eps**2))).mean().sqrt()
        rate = next(rates) / max(1.0, float(size))
        update = now["m"] / c1 / ((now["v"] / c2).sqrt() + options.eps)
        now["theta"] = now["theta"] - rate * (update + decay * now["theta"])
        return now["theta"]

    return step


ALL = ["adamw", "adamax", "stableadamw", "muon"]
FORMULAS = {"adamw": adamw, "adamax": adamax, "stableadamw": stable}


@pytest.mark.parametrize("kind", sorted(FORMULAS))
@pytest.mark.parametrize("bias_correction", [True, False])
@pytest.mark.parametrize("decay", ["matrices", "all"])
def test_update_equals_the_formula(kind: str, bias_correction: bool, decay: str) -> None:
    options = OptimOptions(
        kind=kind, lr=1e-2, bias_correction=bias_correction, decay=decay, weight_decay=0.1, layer_decay=0.8
    )
    parameters, formula = weights(), FORMULAS[kind]
    scales = {"block.weight": 0.64, "block.bias": 0.64, "head.weight": 1.0}
    steps = {}
    for name, tensor, *_ in parameters:
        rates = iter([1e-2 * scales[name] * factor_at(step) for step in range(50)])
        exempt = decay == "matrices" and name == "block.bias"
        steps[name] = formula(tensor, rates, options, 0.0 if exempt else 0.1)
    optimizer = Optimizer(parameters, options, layers=1)
    for step in range(50):
        give_gradients(parameters, step)
        wanted = {name: steps[name](tensor.grad) for name, tensor, *_ in parameters}
        optimizer.step(factor_at(step))
        for name, tensor, *_ in parameters:
            torch.testing.assert_close(tensor.detach(), wanted[name], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("implementation", [{"fused": True}, {"foreach": True}, {"foreach": False}])
def test_with_bias_correction_it_is_torchs_adamw(implementation: dict[str, bool]) -> None:
    ours, theirs = weights(), weights()
    options = OptimOptions(lr=1e-2, decay="all")
    optimizer = Optimizer(ours, options, layers=1)
    torchs = torch.optim.AdamW([p.tensor for p in theirs], lr=1e-2, eps=1e-6, weight_decay=0.01, **implementation)
    for step in range(50):
        give_gradients(ours, step)
        give_gradients(theirs, step)
        torchs.param_groups[0]["lr"] = 1e-2 * factor_at(step)
        optimizer.step(factor_at(step))
        torchs.step()
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.tensor, other.tensor, rtol=1e-12, atol=1e-12)


def test_adamw_is_fused_on_the_cpu() -> None:
    assert Optimizer(weights(), OptimOptions(), layers=1).inner.defaults["fused"] is True


def test_first_step_without_bias_correction_is_3_162_times_the_rate() -> None:
    for corrected, size in [(True, 1.0), (False, 0.1 / math.sqrt(0.001))]:
        theta = nn.Parameter(torch.zeros(3, dtype=torch.float64))
        theta.grad = torch.tensor([2.0, -3.0, 50.0], dtype=torch.float64)
        options = OptimOptions(lr=1e-3, bias_correction=corrected, eps=1e-12)
        Optimizer([Param("w", theta, None)], options, layers=0).step(1.0)
        assert theta.tolist() == pytest.approx([-1e-3 * size, 1e-3 * size, -1e-3 * size], rel=1e-9)


def test_without_bias_correction_a_head_that_begins_late_obeys_the_formula() -> None:
    options = OptimOptions(lr=1e-2, bias_correction=False, weight_decay=0.1)
    parameters = weights()
    optimizer, head = Optimizer(parameters, options, layers=1), parameters[2].tensor
    before = head.detach().clone()
    formula = adamw(head, iter([1e-2] * 3), options, 0.1)
    for step in range(10):
        give_gradients(parameters, step)
        if step < 7:
            head.grad = None
        wanted = before if head.grad is None else formula(head.grad)
        optimizer.step(1.0)
        optimizer.zero_grad()
        torch.testing.assert_close(head.detach(), wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("bias_correction", [True, False])
def test_rate_zero_moves_nothing_but_the_moments(kind: str, bias_correction: bool) -> None:
    parameters = weights()
    optimizer = Optimizer(parameters, OptimOptions(kind=kind, bias_correction=bias_correction), layers=1)
    before = [p.tensor.detach().clone() for p in parameters]
    give_gradients(parameters, 0)
    optimizer.step(0.0)
    assert all(torch.equal(old, p.tensor) for old, p in zip(before, parameters, strict=True))
    assert all(bool(value.any()) for name, value in optimizer.tensors().items() if "exp" in name)


@pytest.mark.parametrize("kind", ALL)
def test_parameters_without_gradient_are_left_alone(kind: str) -> None:
    parameters = weights()
    optimizer = Optimizer(parameters, OptimOptions(kind=kind, lr=0.1, weight_decay=0.5, decay="all"), layers=1)
    give_gradients(parameters, 0)
    parameters[2].tensor.grad = None
    before = [p.tensor.detach().clone() for p in parameters]
    optimizer.step(1.0)
    assert [torch.equal(old, p.tensor) for old, p in zip(before, parameters, strict=True)] == [False, False, True]
    assert optimizer.tensors()["head.weight/step"] == 0


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("bias_correction", [True, False])
@pytest.mark.parametrize(("weight_decay", "stays"), [(0.0, True), (0.01, False)])
def test_F5_without_weight_decay_a_zero_gradient_shrinks_nothing(
    kind: str, bias_correction: bool, weight_decay: float, stays: bool
) -> None:
    parameters = weights(dtype=torch.float32)
    options = OptimOptions(kind=kind, lr=0.1, bias_correction=bias_correction, weight_decay=weight_decay)
    optimizer = Optimizer(parameters, options, layers=1)
    before = [p.tensor.detach().clone() for p in parameters]
    for _ in range(5):
        for _, tensor, *_ in parameters:
            tensor.grad = torch.zeros_like(tensor)
        optimizer.step(1.0)
    assert torch.equal(before[1], parameters[1].tensor), "a bias never decays"
    assert torch.equal(before[0], parameters[0].tensor) is stays


# Layer groups


def encoder(layers: int) -> list[Param]:
    """Names and depths as ELECTRA has them, with tensors of one number."""
    depths: dict[str, int | None] = {"embeddings.word": 0, "embeddings_project.weight": 0}
    depths |= {f"layer.{j}.weight": j + 1 for j in range(layers)}
    depths |= {"pooler.weight": None, "head.weight": None}
    return [Param(name, nn.Parameter(torch.ones(1, 1)), depth) for name, depth in depths.items()]


def rates(options: OptimOptions, layers: int) -> dict[str, float]:
    return {
        name: options.lr * group["scale"]
        for group in groups(encoder(layers), options, layers)
        for name, _ in group["params"]
    }


@pytest.mark.parametrize(
    ("layers", "decay", "lr", "head", "top", "bottom", "embeddings"),
    [
        (12, 0.8, 3e-4, 3e-4, 1.92e-4, 1.649e-5, 1.319e-5),
        (12, 0.8, 1e-4, 1e-4, 6.4e-5, 5.498e-6, 4.398e-6),
        (24, 0.9, 5e-5, 5e-5, 4.05e-5, 3.590e-6, 3.230e-6),
    ],
)
def test_F2_layer_rates_in_compat_mode(
    layers: int, decay: float, lr: float, head: float, top: float, bottom: float, embeddings: float
) -> None:
    found = rates(OptimOptions(lr=lr, layer_decay=decay), layers)
    named = [found[name] for name in ["head.weight", f"layer.{layers - 1}.weight", "layer.0.weight", "embeddings.word"]]
    assert named == pytest.approx([head, top, bottom, embeddings], rel=4e-4)  # as published, about four digits
    ratios = [1, decay**2, decay ** (layers + 1), decay ** (layers + 2)]
    assert [rate / lr for rate in named] == pytest.approx(ratios, rel=1e-12)
    assert found["pooler.weight"] == lr


@pytest.mark.slow(0.5)
@given(st.integers(1, 30), st.floats(0.3, 1))
def test_layer_rates_without_the_quirk_fall_by_d_from_the_head_on(layers: int, decay: float) -> None:
    found = rates(OptimOptions(layer_decay=decay, layer_decay_compat=False), layers)
    ladder = [found["head.weight"]] + [found[f"layer.{j}.weight"] for j in reversed(range(layers))]
    ladder.append(found["embeddings.word"])
    for above, below in pairwise(ladder):
        assert below == pytest.approx(decay * above)


@pytest.mark.parametrize("compat", [True, False])
def test_F3_embeddings_project_has_the_rate_of_the_embeddings(compat: bool) -> None:
    options = OptimOptions(layer_decay=0.8, layer_decay_compat=compat)
    together = [[name for name, _ in group["params"]] for group in groups(encoder(4), options, 4)]
    assert ["embeddings.word", "embeddings_project.weight"] in together


def test_weight_decay_spares_biases_and_norms_or_nothing() -> None:
    parameters = weights()
    for decay, spared in [("matrices", {"block.bias"}), ("all", set())]:
        split = groups(parameters, OptimOptions(decay=decay), layers=1)
        free = {name for group in split if group["weight_decay"] == 0 for name, _ in group["params"]}
        assert free == spared


def test_one_group_for_each_rate_and_decay() -> None:
    assert len(groups(weights(), OptimOptions(), layers=1)) == 2
    assert len(groups(weights(), OptimOptions(layer_decay=0.5), layers=1)) == 3
    assert len(groups(weights(), OptimOptions(weight_decay=0.0), layers=1)) == 1


def test_frozen_parameters_are_left_out_and_tied_ones_occur_once() -> None:
    parameters = weights()
    parameters[0].tensor.requires_grad_(False)
    tied = Param("decoder.weight", parameters[2].tensor, None)
    names = [n for g in groups([*parameters, tied], OptimOptions(), layers=1) for n, _ in g["params"]]
    assert names == ["block.bias", "head.weight"]


def test_nothing_to_train_is_a_sentence() -> None:
    parameters = weights()
    for _, tensor, *_ in parameters:
        tensor.requires_grad_(False)
    with pytest.raises(UserError, match=r"model\.tune"):
        groups(parameters, OptimOptions(), layers=1)


def test_wrong_depths_and_doubled_names_are_refused() -> None:
    parameters = weights()
    with pytest.raises(ValueError, match="depth 1 of an encoder with 0 layers"):
        groups(parameters, OptimOptions(), layers=0)
    with pytest.raises(ValueError, match=r"named head\.weight"):
        groups([*parameters, Param("head.weight", weights()[0].tensor, None)], OptimOptions(), layers=1)


def test_rates_for_the_log() -> None:
    optimizer = Optimizer(weights(), OptimOptions(lr=1e-3), layers=1)
    optimizer.step(0.5)
    assert optimizer.rates() == {"lr": 5e-4}
    optimizer = Optimizer(weights(), OptimOptions(lr=1e-3, layer_decay=0.5), layers=1)
    optimizer.step(0.5)
    assert optimizer.rates() == {"lr": 5e-4, "lr_lowest": 1.25e-4}


# Stop and go on


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("bias_correction", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_20_steps_equal_9_and_11_with_a_stop_between(kind: str, bias_correction: bool, dtype: torch.dtype) -> None:
    options = OptimOptions(kind=kind, lr=1e-2, bias_correction=bias_correction, layer_decay=0.8)
    straight = weights(dtype=dtype)
    run(straight, Optimizer(straight, options, layers=1), range(20))
    first = weights(dtype=dtype)
    optimizer = Optimizer(first, options, layers=1)
    run(first, optimizer, range(9))
    stored, state = save(optimizer.tensors()), json.dumps(optimizer.state())
    # The order of parameters must not matter: they are known by name.
    second = [Param(name, nn.Parameter(tensor.detach().clone()), depth) for name, tensor, depth, *_ in reversed(first)]
    again = Optimizer(second, options, layers=1)
    again.load(load(stored), json.loads(state))
    assert all(torch.equal(value, again.tensors()[name]) for name, value in optimizer.tensors().items())
    run(second[::-1], again, range(9, 20))
    assert all(torch.equal(a.tensor, b.tensor) for a, b in zip(straight, second[::-1], strict=True))


def test_loading_copies() -> None:
    parameters = weights()
    optimizer, other = (Optimizer(parameters, OptimOptions(), layers=1) for _ in range(2))
    kept = {name: value.clone() for name, value in optimizer.tensors().items()}
    other.load(optimizer.tensors(), optimizer.state())
    run(parameters, other, range(3))
    assert all(torch.equal(value, kept[name]) for name, value in optimizer.tensors().items())


def test_foreign_states_are_refused_by_name() -> None:
    optimizer = Optimizer(weights(), OptimOptions(), layers=1)
    tensors, state = optimizer.tensors(), optimizer.state()
    less = {name: value for name, value in tensors.items() if name != "head.weight/exp_avg"}
    with pytest.raises(UserError, match=r"lacks head\.weight/exp_avg"):
        optimizer.load(less, state)
    with pytest.raises(UserError, match=r"has an unexpected other\.weight/exp_avg"):
        optimizer.load({**tensors, "other.weight/exp_avg": torch.zeros(1)}, state)
    with pytest.raises(UserError, match=r"head\.weight/exp_avg is float64 \[7\] in the checkpoint"):
        optimizer.load({**tensors, "head.weight/exp_avg": torch.zeros(7, dtype=torch.float64)}, state)
    with pytest.raises(UserError, match="adamax"):
        optimizer.load(tensors, {**state, "kind": "adamax"})


# Clipping


@given(st.floats(1e-3, 1e3), st.sampled_from([0.0, 0.5, 1.0, 1e6]))
def test_clip_measures_and_bounds_the_norm(size: float, bound: float) -> None:
    parameters = weights()
    give_gradients(parameters, 0)
    for _, tensor, *_ in parameters[:2]:
        tensor.grad *= size
    parameters[2].tensor.grad = None
    before = torch.cat([p.tensor.grad.flatten() for p in parameters[:2]])
    norm = clip([p.tensor for p in parameters], bound)
    after = torch.cat([p.tensor.grad.flatten() for p in parameters[:2]])
    assert norm == pytest.approx(float(before.norm()))
    scale = min(1.0, bound / norm) if bound else 1.0
    torch.testing.assert_close(after, before * scale, rtol=1e-5, atol=1e-9)
    assert parameters[2].tensor.grad is None


def test_clip_without_gradients_measures_nothing() -> None:
    assert clip([p.tensor for p in weights()], 1.0) == 0.0


def test_clip_measures_half_precision_without_overflow() -> None:
    parameter = nn.Parameter(torch.zeros(4, dtype=torch.float16))
    parameter.grad = torch.full((4,), 60000.0, dtype=torch.float16)
    assert clip([parameter], 1.0) == pytest.approx(120000, rel=1e-3)
    assert parameter.grad.tolist() == pytest.approx([0.5] * 4, rel=1e-2)


@pytest.mark.parametrize("bias_correction", [True, False])
def test_F13_sum_and_mean_give_the_same_update_when_both_are_clipped(bias_correction: bool) -> None:
    moves = []
    for factor in [32.0, 1.0]:  # the sum over a batch of 32, and its mean
        parameters = weights()
        options = OptimOptions(lr=1e-2, bias_correction=bias_correction, weight_decay=0.0)
        optimizer = Optimizer(parameters, options, layers=1)
        before = torch.cat([p.tensor.detach().flatten().clone() for p in parameters])
        for step in range(3):
            give_gradients(parameters, step)
            for _, tensor, *_ in parameters:
                tensor.grad *= factor
            assert clip([p.tensor for p in parameters], 1.0) > 1
            optimizer.step(1.0)
        moves.append(torch.cat([p.tensor.detach().flatten() for p in parameters]) - before)
    assert float(torch.cosine_similarity(*moves, dim=0)) == pytest.approx(1, abs=1e-9)
    torch.testing.assert_close(*moves, rtol=1e-4, atol=1e-9)


def orthogonal(matrix: Tensor) -> Tensor:
    """U Vᵀ of its singular value decomposition, which Newton and Schulz come near to."""
    left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    return left @ right


def test_muon_moves_matrices_of_layers_along_their_orthogonal_part_and_adamw_the_rest() -> None:
    draw = torch.Generator().manual_seed(0)
    shapes = {"words": ((40, 16), 0), "block": ((64, 16), 1), "bias": ((64,), 1), "head": ((16, 16), None)}
    ours, theirs = (
        [
            Param(name, nn.Parameter(torch.randn(shape, generator=draw)), depth)
            for name, (shape, depth) in shapes.items()
        ]
        for _ in range(2)
    )
    for mine, other in zip(ours, theirs, strict=True):
        other.tensor.data.copy_(mine.tensor.data)
    options = OptimOptions(kind="muon", lr=1e-2, weight_decay=0.1, momentum=0.9, bias_correction=True)
    both = Optimizer(ours, options, layers=1), Optimizer(theirs, options.model_copy(update={"kind": "adamw"}), layers=1)
    before, buffer = ours[1].tensor.detach().clone(), torch.zeros(64, 16)
    for step in range(5):
        give_gradients(ours, step)
        give_gradients(theirs, step)
        grad = ours[1].tensor.grad
        assert grad is not None
        buffer = 0.9 * buffer + 0.1 * grad
        wanted = 0.2 * math.sqrt(64) * orthogonal(0.1 * grad + 0.9 * buffer)
        for optimizer in both:
            optimizer.step(1.0)
        moved = (before * (1 - 1e-2 * 0.1) - ours[1].tensor.detach()) / 1e-2
        assert torch.cosine_similarity(moved.flatten(), wanted.flatten(), dim=0) > 0.97
        assert moved.norm() / wanted.norm() == pytest.approx(1, abs=0.2)  # its five rounds end near, not at, 1
        before = ours[1].tensor.detach().clone()
    for i in (0, 2, 3):
        assert torch.equal(ours[i].tensor, theirs[i].tensor)
    assert set(both[0].tensors()) >= {"block/momentum_buffer", "words/exp_avg", "head/step"}
    assert "block/exp_avg" not in both[0].tensors()


@pytest.mark.parametrize(("half", "apart"), [(False, 0.02), (True, 0.005)])
@pytest.mark.parametrize("shape", [(24, 8), (8, 24), (16, 16)])
def test_muon_moves_as_torch_does_up_to_bfloat16(shape: tuple[int, int], half: bool, apart: float) -> None:
    draw = torch.Generator().manual_seed(1)
    ours, theirs = [], []
    for _ in range(3):  # of one shape, so ours go through the iteration together
        ours.append(nn.Parameter(torch.randn(shape, generator=draw)))
        theirs.append(nn.Parameter(ours[-1].detach().clone()))
    mine = Muon(ours, lr=0.1, momentum=0.9, weight_decay=0.1, half=half)
    for parameter in ours:
        mine.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    peer = torch.optim.Muon(theirs, lr=0.1, momentum=0.9, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    for _ in range(3):
        for one, other in zip(ours, theirs, strict=True):
            one.grad = torch.randn(shape, generator=draw)
            other.grad = one.grad.clone()
        mine.step()
        peer.step()
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=apart)  # three steps of about 0.1 · 0.2 · √24 · 1/√8


def test_a_gradient_that_jumps_moves_stableadamw_less_than_adamw() -> None:
    moved = {}
    for kind in ("adamw", "stableadamw"):
        parameters = weights()
        optimizer = Optimizer(parameters, OptimOptions(kind=kind, lr=1e-2, weight_decay=0), layers=1)
        for step in range(30):
            give_gradients(parameters, step)
            before = parameters[0].tensor.detach().clone()
            if step == 29:
                for parameter in parameters:
                    parameter.tensor.grad = 100 * parameter.tensor.grad  # type: ignore[operator]
            optimizer.step(1.0)
        moved[kind] = float((parameters[0].tensor.detach() - before).norm())
    assert moved["stableadamw"] < 0.2 * moved["adamw"]
