"""What every method must keep. Each file of the package is found by itself, so a new one needs no line here."""

import contextlib
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from encodery.config.components import find, names
from encodery.config.schema import OptimOptions
from encodery.errors import RunFailed
from encodery.methods.base import Method, Updating, losses_of, notes_of
from encodery.models.first_block import first_block
from encodery.training import build, loop
from encodery.training.loop import TrainState, Update
from encodery.training.optim import Optimizer, Param, clip
from tests.methods.attacks import Bench, Gradients, bench, masks_by_draw
from tests.toolbox.models import furthest, gradients
from tests.toolbox.runs import metrics_of, resolve, run, settings, weights_of

METHODS = names("methods")
STILL = {"dropout": 0.0, "attention_dropout": 0.0, "head_dropout": 0.0}

# With its strength at zero a method is plain training. A new method adds its line here.
ZERO: dict[str, list[dict[str, Any]]] = {
    "plain": [{}],
    "freelb": [{"adv_lr": 0.0, "init_mag": 0.0}],
    "pgd": [{"adv_lr": 0.0, "init_mag": 0.0}, {"adv_lr": 0.0, "init_mag": 0.0, "clean_weight": 1.0}],
    "fgm": [{"epsilon": 0.0}, {"epsilon": 0.0, "target": "matrix"}, {"epsilon": 0.0, "clean_weight": 0.0}],
    "smart": [{"weight": 0.0, "proximal_weight": 0.0}, {"weight": 0.0}],  # in the first step nothing has drifted
    "r3f": [{"weight": 0.0}],
    "rdrop": [{"weight": 0.0}],
    "sam": [{"rho": 0.0}],
    "fgsm": [{"epsilon": 0.0}, {"epsilon": 0.0, "clean_weight": 0.0}],
    "freeat": [{"steps": 1, "init_mag": 0.0}, {"steps": 1, "init_mag": 0.0, "clean_weight": 1.0}],  # one update a step
    "yopo": [{"adv_lr": 0.0, "init_mag": 0.0}, {"adv_lr": 0.0, "init_mag": 0.0, "clean_weight": 1.0}],
    "sift": [{"weight": 0.0}],
    "vat": [{"weight": 0.0}, {"epsilon": 0.0}],
    "alum": [{"weight": 0.0}],
    "r4f": [{"weight": 0.0}, {"weight": 0.0, "head_norm": None}],  # no head here begins above the limit
    "awp": [{"gamma": 0.0}],
    "importance": [{}],  # off until it pays
}
# Strengths at which what a method adds is a visible part of the gradient, so that its divisors are compared too. With
# most defaults it is below every tolerance here.
CLIMB: dict[str, Any] = {"weight": 100.0, "adv_lr": 0.1, "init_mag": 0.1, "max_norm": 0.3, "norm": "l2"}
LOUD: dict[str, dict[str, Any]] = {
    "plain": {},
    "freelb": {},
    "pgd": {},
    "fgm": {},
    "smart": CLIMB,
    "r3f": {"weight": 100.0, "eps": 0.1},
    "rdrop": {"weight": 1000.0},
    "sam": {},
    "fgsm": {"epsilon": 0.05},
    "freeat": {},
    "yopo": {},
    "sift": {"weight": 100.0, "init_mag": 0.3, "adv_lr": 0.2},
    "vat": {"weight": 10.0, "xi": 0.5},
    "alum": CLIMB,
    "r4f": {"weight": 100.0, "eps": 0.1},
    "awp": {"gamma": 0.05},
    "importance": {"threshold": 0.0},
}
UPDATES = {"freeat": 3}  # in one step; of all others 1
# The tiny encoders here have tiny embeddings and weights: published strengths would drown them.
FAINT: dict[str, Any] = {"adv_lr": 1e-3, "init_mag": 1e-3}
MILD: dict[str, dict[str, Any]] = {
    "freelb": FAINT,
    "pgd": FAINT,
    "fgm": {"epsilon": 1e-3},
    "freeat": FAINT,
    "yopo": FAINT,
    "vat": {"epsilon": 1e-2},
}


def built(folder: Path, kind: str, method: dict[str, Any] | None = None, **options: Any) -> tuple[Any, Any]:
    """Model and stream of a tiny run with this method, and the method at work."""
    tree = settings(folder, method={"kind": kind, **(method or {})}, model=STILL, train=options)
    resolved = resolve(tree)
    parts = build.build(resolved, build.find_inputs(resolved))
    return parts, started(parts, resolved.method)


def started(parts: Any, method: Any, state: TrainState | None = None) -> Any:
    """A method at work on a built run, as the loop has it."""
    running = method.start(parts.model)
    if isinstance(running, Updating):
        state = state or TrainState(9, budget=parts.batcher.budget)
        running.update = Update(parts.model, parts.batches, an_optimizer(parts), lambda _: 1.0, state, 0.0).early
    return running


def an_optimizer(parts: Any) -> Optimizer:
    """For all weights of a built run."""
    return Optimizer([Param(n, p, None) for n, p in parts.model.named_parameters()], OptimOptions(), 2)


def step(folder: Path, kind: str, method: dict[str, Any] | None = None, **options: Any) -> dict[str, torch.Tensor]:
    """The gradient of the first step."""
    parts, running = built(folder, kind, method, **options)
    parts.model.train()
    loop.gradient(parts.model, running, parts.batches, TrainState(9, budget=parts.batcher.budget), "mean")
    return gradients(parts.model)


def train(folder: Path, kind: str, seen: list[float]) -> Any:
    """Three steps by the loop, with every norm that the optimiser met; the parts."""
    parts, running = built(folder, kind)
    optimizer = an_optimizer(parts)
    real = optimizer.step

    def counted(factor: float, shared: float = 1.0) -> None:
        seen.append(clip(list(parts.model.parameters()), 0.0))
        real(factor, shared)

    optimizer.step = counted  # type: ignore[method-assign]
    state = TrainState(3, budget=parts.batcher.budget)
    list(loop.train(parts.model, running, parts.batches, optimizer, lambda _: 1.0, state, clip_norm=0.01))
    return parts


def share(got: Gradients, still: Gradients) -> float:
    """How much of a gradient is what a method adds to training at strength zero."""
    assert got.keys() == still.keys()
    added, whole = (torch.cat([one.flatten() for one in of]) for of in ([got[n] - still[n] for n in got], got.values()))
    return float(added.norm() / whole.norm())


def loud(kind: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Strengths that can be seen. That of R-Drop is dropout, for which it gets masks that no cut changes."""
    if kind == "rdrop":
        masks_by_draw(monkeypatch)
    return LOUD[kind]


def fast_for(*kinds: str) -> list[Any]:
    """All methods; those that are not named are slow tests."""
    return [pytest.param(name, marks=[] if name in kinds else [pytest.mark.slow]) for name in METHODS]


class Fuse:
    """A hook on an encoder's first layer that fails when it has been called so many times."""

    def __init__(self, net: Any, calls: int):
        self.net, self.left, self.stood = net, calls, set[str]()  # where a perturbation stood when it failed

    def __call__(self, *_: object) -> None:
        self.left -= 1
        if self.left < 0:
            self.stood = {name for name, part in self.net.embeddings.named_modules() if hooks(part)}
            raise ArithmeticError


def hooks(part: Any) -> bool:
    return bool(part._forward_hooks or part._forward_pre_hooks)


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
    for name in method.model_fields:
        assert method.documented().get(name), f"{name} has no docstring"
        with pytest.raises(ValueError, match="frozen"):
            setattr(options, name, getattr(options, name))


def test_a_step_leaves_gradients_on_everything_that_is_trained(tmp_path: Path, kind: str) -> None:
    parts, method = built(tmp_path, kind)
    state = TrainState(9, budget=parts.batcher.budget)
    _, counts, terms = loop.gradient(parts.model, method, parts.batches, state, "mean")
    assert all(p.grad is not None for p in parts.model.parameters() if p.requires_grad)
    assert all(torch.isfinite(p.grad).all() for p in parts.model.parameters() if p.grad is not None)
    assert losses_of(terms).keys() == counts.keys()
    assert all(math.isfinite(value) for value in notes_of(terms).values())
    assert not any(value.requires_grad for value in terms.values())


@pytest.mark.slow
@pytest.mark.parametrize("kind", fast_for("plain", "freelb", "smart", "freeat", "sam"))
def test_the_gradient_does_not_depend_on_micro_batches(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = loud(kind, monkeypatch)
    whole = step(tmp_path, kind, options)
    assert kind == "plain" or share(whole, step(tmp_path, kind, ZERO[kind][0])) > 0.01
    for cut in ({"micro_batch": 3}, {"token_budget": 32}, {"layout": "rows", "micro_batch": 5}, {"layout": "padded"}):
        assert furthest(whole, step(tmp_path, kind, options, **cut)) < 1e-6, cut


@pytest.fixture(scope="module")
def plain_gradient(tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    return step(tmp_path_factory.mktemp("plain"), "plain")


def test_with_its_strength_at_zero_it_is_plain_training(
    tmp_path: Path, kind: str, plain_gradient: dict[str, torch.Tensor]
) -> None:
    for zero in ZERO[kind]:
        assert furthest(plain_gradient, step(tmp_path, kind, zero)) < 1e-6, zero


def test_A13_A14_a_step_is_one_update_of_a_clipped_gradient(tmp_path: Path, kind: str) -> None:
    norms: list[float] = []
    train(tmp_path, kind, norms)
    assert len(norms) == 3 * UPDATES.get(kind, 1)
    assert all(norm <= 0.01 * (1 + 1e-5) for norm in norms)


SITES = {"word": {"word_embeddings"}, "embedding_output": {""}, "normalised": {"LayerNorm"}}


@pytest.mark.slow
def test_A15_an_exception_leaves_no_hook_and_no_moved_weight(tmp_path: Path, kind: str) -> None:
    parts, _ = built(tmp_path, kind)
    net, before = parts.model.encoder.net, {n: t.clone() for n, t in parts.model.state_dict().items()}
    method, state = find("methods", kind), TrainState(9, budget=parts.batcher.budget)
    for site in SITES if "site" in method.model_fields else [None]:
        running, stood = started(parts, method(**({"site": site} if site else {}))), set()
        for passes in range(4):  # the first pass fails, then the second and so on, each while its perturbation stands
            fuse = Fuse(net, passes)
            handle = first_block(net).register_forward_pre_hook(fuse)
            with contextlib.suppress(ArithmeticError):
                loop.gradient(parts.model, running, parts.batches, state, "mean")
            handle.remove()
            stood |= fuse.stood
            assert parts.model.encoder.delta is None
            assert not [n for n, part in parts.model.named_modules() if hooks(part)]
            if getattr(running, "updated", False):  # an update that was finished before the exception stays
                parts.model.load_state_dict(before)
                break
            assert all(torch.equal(t, before[n]) for n, t in parts.model.state_dict().items())
        assert stood == (SITES[site] if site else set())


def test_R6_a_nan_stops_before_the_weights_are_touched(tmp_path: Path, kind: str) -> None:
    parts, running = built(tmp_path, kind)
    optimizer = an_optimizer(parts)
    with torch.no_grad():
        next(iter(parts.model.questions.parameters())).fill_(float("nan"))
    before = {n: t.clone() for n, t in parts.model.state_dict().items()}
    state = TrainState(3, budget=parts.batcher.budget)
    with pytest.raises(RunFailed, match="not finite"):
        next(loop.train(parts.model, running, parts.batches, optimizer, lambda _: 1.0, state))
    assert all(torch.equal(t.nan_to_num(), before[n].nan_to_num()) for n, t in parts.model.state_dict().items())


@pytest.mark.slow
def test_the_same_step_twice_gives_the_same_bits(tmp_path: Path, kind: str) -> None:
    one = step(tmp_path, kind)
    torch.manual_seed(17)
    two = step(tmp_path, kind)
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_A17_the_weights_and_the_data_are_left_alone(tmp_path: Path, kind: str) -> None:
    parts, method = built(tmp_path, kind)
    before = {n: t.clone() for n, t in parts.model.state_dict().items()}
    rows = [parts.batches.rows_at(i) for i in range(3)]
    loop.gradient(parts.model, method, parts.batches, TrainState(9, budget=parts.batcher.budget), "mean")
    if kind not in UPDATES:
        assert all(torch.equal(t, before[n]) for n, t in parts.model.state_dict().items())
    assert all(np.array_equal(parts.batches.rows_at(i), rows[i]) for i in range(3))
    plain, _ = built(tmp_path, "plain")
    assert all(np.array_equal(plain.batches.rows_at(i), rows[i]) for i in range(3))


@pytest.mark.slow
@pytest.mark.parametrize("kind", fast_for("plain"))
def test_it_learns(tmp_path: Path, kind: str) -> None:
    method = {"kind": kind, **MILD.get(kind, {})}
    options = {"max_steps": 40, "batch_size": 32, "evaluate": "end"}
    tree = settings(tmp_path, method=method, optim={"lr": 1e-2}, train=options)
    tree["model"]["new"]["config"]["num_hidden_layers"] = 1
    scores = run(tree, tmp_path / "run").read_scores()
    assert scores["scores"]["table/train:dev"]["accuracy"] > 0.8


@pytest.mark.slow
@pytest.mark.parametrize("kind", fast_for("plain"))
def test_A18_R4_it_goes_on_to_the_same_bits(tmp_path: Path, kind: str) -> None:
    options = {"save": "2 steps", "max_steps": 5, "batch_size": 8, "micro_batch": 5, "evaluate": "never"}
    tree = settings(tmp_path, rows=24, dev=8, method={"kind": kind}, train=options)  # an epoch has three steps
    straight = run(tree, tmp_path / "straight")

    def kill(report: Any) -> None:
        if report.step == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tree, tmp_path / "killed", watch=kill)
    killed = run(tree, tmp_path / "killed")
    assert metrics_of(killed) == metrics_of(straight)
    a, b = weights_of(killed), weights_of(straight)
    assert all(torch.equal(a[name], b[name]) for name in b)


# Every head, layout and precision

FORMS = [(form, layout) for form in ("single", "multilabel", "regression") for layout in ("packed", "rows")]
forms = pytest.mark.parametrize(  # one of them in the fast suite
    ("form", "layout"), [pytest.param(*one, marks=[pytest.mark.slow] if one != FORMS[0] else []) for one in FORMS]
)


def taken(made: Bench, kind: str, **options: Any) -> Gradients:
    """The gradient of one step with a method."""
    method: Any = find("methods", kind)(**options)
    return made.step(method.start(made.model))[0]


@pytest.mark.slow
@forms
def test_A25_every_head_in_every_layout_is_trained_and_may_be_cut(
    kind: str, form: str, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options, made = loud(kind, monkeypatch), bench(layout=layout, form=form)
    whole = taken(made, kind, **options)
    assert all(torch.isfinite(one).all() for one in whole.values())
    assert max(float(one.abs().max()) for one in whole.values()) > 0
    assert kind == "plain" or share(whole, taken(made, kind, **ZERO[kind][0])) > 0.01
    cut = bench(layout=layout, form=form, most=3)
    assert len(cut.micro) == 3
    assert furthest(whole, taken(cut, kind, **options)) < 1e-5


@forms
def test_bf16_is_the_same_step_less_precisely(kind: str, form: str, layout: str) -> None:
    made = bench(layout=layout, form=form)
    made.model.autocast_to = torch.bfloat16
    plain = made.plain()
    for zero in ZERO[kind]:
        assert furthest(plain, taken(made, kind, **zero)) < 0.02, zero
    got = taken(made, kind)
    assert got.keys() == plain.keys()
    assert all(torch.isfinite(one).all() and one.dtype == torch.float32 for one in got.values())


def test_layouts_agree(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options, rows = loud(kind, monkeypatch), bench(layout="rows")
    whole = taken(rows, kind, **options)
    assert kind == "plain" or share(whole, taken(rows, kind, **ZERO[kind][0])) > 0.01
    assert furthest(taken(bench(layout="packed"), kind, **options), whole) < 1e-5


def test_A10_the_scale_of_the_loss_leaves_no_trace(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the fp16 scaler has it: the same gradient once the scale is out, and the same numbers in the log."""
    method, made = find("methods", kind)(**loud(kind, monkeypatch)), bench()
    one, terms = made.step(method.start(made.model))
    two, others = made.step(method.start(made.model), scale=1024.0)
    assert furthest(one, {name: value / 1024 for name, value in two.items()}) < 1e-6
    assert furthest(losses_of(terms), losses_of(others)) < 1e-6
    assert notes_of(others) == pytest.approx(notes_of(terms), rel=1e-3)
