"""The optimiser: rate over time as a function of the step, layer-wise rates, AdamW, Adamax, StableAdamW and Muon.

Nothing here remembers where the schedule is: the loop asks `schedule(step)` and hands the factor to `Optimizer.step`.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from encodery.config.schema import OptimOptions
from encodery.data.layouts import upcast
from encodery.errors import UserError
from encodery.training.muon import Muon
from encodery.training.stable_adamw import StableAdamW

# Devices for which every torch we support has a fused AdamW kernel; elsewhere torch picks its own way.
FUSED = {"cpu", "cuda", "mps", "xpu"}

# What each rule remembers of a parameter, by torch's names, besides the count of its steps.
ADAM = ("exp_avg", "exp_avg_sq")
MOMENTS = {"adamw": ADAM, "adamax": ("exp_avg", "exp_inf"), "stableadamw": ADAM, "muon": ADAM}

MOMENTUM = "momentum_buffer"  # what Muon remembers

# A step count at which β^t is exactly 0 for every β < 1 - 1e-9, so that torch divides by exactly 1.
# float32 holds it, and adding 1 to it changes nothing.
ENDLESS = 2.0**40

SHAPES: dict[str, Callable[[float], float]] = {
    "linear": lambda left: left,
    "wsd": lambda left: left,
    "cosine": lambda left: 0.5 - 0.5 * math.cos(math.pi * left),
    "constant": lambda left: 1.0,
    "sqrt": lambda left: 1.0 - math.sqrt(1.0 - left),
}
"""Height of the fall by the part of it that is left, from 1 (not begun) to 0 (over)."""


def schedule(options: OptimOptions, total: int) -> Callable[[int], float]:
    """The factor of the learning rate for the step about to be taken, which is the number of steps done (0 at first).

    Sequential is transformers' shape, step / warmup and then (total - step) / (total - warmup). Simultaneous is
    ELECTRA's, min(1, step / warmup) · (1 - step / total). With a warm-up both begin at 0: the first step moves nothing
    but the moments. A warm-up longer than the run ends before its peak. `schedule_steps` replaces the run's own number
    of steps. With a floor f a fall from 1 to 0 becomes one from 1 to f.
    """
    total = options.schedule_steps or total
    warmup = warmup_steps(options, total)
    begin = fall_begin(options, total, warmup)
    shape = SHAPES["sqrt" if options.schedule == "wsd" and options.decay_shape == "sqrt" else options.schedule]
    floor = options.floor

    def factor(step: int) -> float:
        risen = min(1.0, step / warmup) if warmup else 1.0
        left = (total - step) / max(1, total - begin)
        height = shape(min(1.0, max(0.0, left)))
        return risen * (floor + (1 - floor) * height if floor else height)

    return factor


def warmup_steps(options: OptimOptions, total: int) -> float:
    """Length of the warm-up: a share is rounded up as in transformers; ELECTRA's code leaves it a fraction."""
    steps = options.warmup if options.warmup >= 1 else options.warmup * total
    return steps if options.warmup_style == "simultaneous" else math.ceil(steps)


def require_warmup(options: OptimOptions, total: int) -> None:
    """A warm-up of more steps than the run has would never reach the peak."""
    if options.warmup > max(total, 1):
        raise UserError(
            f"optim.warmup: {options.warmup:g} steps are more than the run's {total:,}; "
            "below 1 it is a share of all steps"
        )


def still_run(options: OptimOptions, total: int) -> str | None:
    """A sentence on a run of a single step that belongs to the warm-up: its rate is 0, as everywhere at the start."""
    if total != 1 or schedule(options, total)(0) > 0:
        return None
    return "the only step has a rate of 0, with which a warm-up begins: nothing was trained"


def fall_begin(options: OptimOptions, total: int, warmup: float) -> float:
    """The step at which the rate begins to fall."""
    begin = 0.0 if options.warmup_style == "simultaneous" else warmup
    if options.schedule == "wsd":
        return max(begin, total - math.ceil(options.decay_share * total))
    return begin


class Param(NamedTuple):
    """A parameter and where it stands: depth 0 embeddings and their projection, j + 1 block j, None head or pooler."""

    name: str
    tensor: nn.Parameter
    depth: int | None
    rate: float = 1.0  # factor of its learning rate
    own: bool = False  # a part of one task alone, which the rates of other tasks do not touch
    decays: bool = True  # False: never, whatever optim.decay says


def layer_scale(depth: int | None, options: OptimOptions, layers: int) -> float:
    """Factor of the rate at a depth; in compat mode depth layers + 1 stays empty (ELECTRA's removed pooler)."""
    if depth is not None and not 0 <= depth <= layers:
        raise ValueError(f"depth {depth} of an encoder with {layers} layers")
    top = layers + (2 if options.layer_decay_compat else 1)
    return 1.0 if depth is None else options.layer_decay ** (top - depth)


def groups(parameters: Sequence[Param], options: OptimOptions, layers: int) -> list[dict[str, Any]]:
    """Torch's parameter groups, one for each pair of rate and weight decay.

    Frozen parameters are left out; of a tied one the first mention counts.
    """
    by_rate: dict[tuple[float, float, bool], list[tuple[str, nn.Parameter]]] = {}
    for name, tensor, depth, rate, own, decays in once(parameters):
        exempt = not decays or (options.decay == "matrices" and tensor.ndim < 2)
        key = layer_scale(depth, options, layers) * rate, 0.0 if exempt else options.weight_decay, own
        by_rate.setdefault(key, []).append((name, tensor))
    if not by_rate:
        raise UserError("nothing to train: every parameter is frozen (see model.tune)")
    return [
        {"params": named, "scale": scale, "weight_decay": decay, "own": own}
        for (scale, decay, own), named in by_rate.items()
    ]


def once(parameters: Iterable[Param]) -> list[Param]:
    """The trained parameters, tied ones once; two tensors under one name would overwrite each other in a checkpoint."""
    tensors: dict[int, Param] = {}
    for parameter in parameters:
        if parameter.tensor.requires_grad:
            tensors.setdefault(id(parameter.tensor), parameter)
    names = [parameter.name for parameter in tensors.values()]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"two parameters are named {twice[0]}")
    return list(tensors.values())


class Optimizer:
    """The update rule over layer groups, whose state is stored under the names of the parameters.

    Without bias correction (as in BERT's and ELECTRA's code) every step count begins at ENDLESS. Counts are each
    parameter's own, so a head that is idle for a while is right too. Adamax's weight decay is decoupled as AdamW's is:
    θ ← (1 - lr·wd)·θ before the update, and never enters the moments. A parameter without a gradient is left alone.
    Muon moves the matrices of the layers, the rule beside it everything else: embeddings, heads, biases, norms; with
    `half` it works in bfloat16 on CPUs too, as the model does.
    """

    def __init__(self, parameters: Sequence[Param], options: OptimOptions, layers: int, *, half: bool = False) -> None:
        self.options = options
        matrices = [p for p in parameters if options.kind == "muon" and in_layers(p, layers)]
        others = [p for p in parameters if options.kind != "muon" or not in_layers(p, layers)]
        self.inner = build(groups(others, options, layers), options)
        self.muon = build_muon(groups(matrices, options, layers), options, half) if matrices else None
        self.factor = 0.0
        for parameter in self._by_name(self.inner.param_groups).values():
            self.inner.state[parameter] = self.fresh(parameter)
        for parameter in self._by_name(self.muon.param_groups if self.muon else ()).values():
            self.muon.state[parameter] = {MOMENTUM: torch.zeros_like(parameter, requires_grad=False)}  # type: ignore[union-attr]

    @property
    def rules(self) -> list[torch.optim.Optimizer]:
        """Torch's optimisers: one, or with Muon two."""
        return [self.inner, self.muon] if self.muon else [self.inner]

    @property
    def groups(self) -> list[dict[str, Any]]:
        """The parameter groups of all rules."""
        return [group for rule in self.rules for group in rule.param_groups]

    def named(self) -> dict[str, nn.Parameter]:
        """The trained parameters by name."""
        return self._by_name(self.groups)

    @staticmethod
    def _by_name(groups: Iterable[dict[str, Any]]) -> dict[str, nn.Parameter]:
        pairs = (zip(group["param_names"], group["params"], strict=True) for group in groups)
        return {name: parameter for group in pairs for name, parameter in group}

    def fresh(self, parameter: nn.Parameter) -> dict[str, Tensor]:
        """The state of a parameter that was never moved."""
        place = parameter.device if self.inner.defaults.get("fused") else "cpu"
        begin = 0.0 if self.options.bias_correction else ENDLESS
        state = {name: torch.zeros_like(parameter, requires_grad=False) for name in MOMENTS[self.options.kind]}
        return {"step": torch.tensor(begin, dtype=torch.float32, device=place), **state}

    @property
    def can_hold(self) -> bool:
        """Whether a number on the device can hold an update back: the fused kernel asks for it by itself."""
        return self.options.kind == "adamw" and bool(self.inner.defaults.get("fused"))

    def step(self, factor: float, shared: float = 1.0, hold: Tensor | None = None) -> None:
        """Move every parameter that has a gradient, at factor times its rate; at 0 only the moments move.

        What tasks share moves at `shared` times that. Where `hold` (a float on the device) is 1, nothing changes.
        """
        inner: Any = self.inner
        inner.found_inf = hold
        self.factor = factor
        for group in self.groups:
            group["lr"] = self.options.lr * group["scale"] * factor * (1.0 if group["own"] else shared)
        if self.options.kind == "adamax":
            self.shrink()
        for rule in self.rules:
            rule.step()

    @torch.no_grad()
    def shrink(self) -> None:
        """Decoupled weight decay, which torch's Adamax lacks."""
        for group in self.inner.param_groups:
            for parameter in group["params"]:
                if group["decoupled"] and parameter.grad is not None:
                    parameter.mul_(1 - group["lr"] * group["decoupled"])

    def zero_grad(self) -> None:
        """Forget the gradients; they become None, so that idle parameters stay idle."""
        for rule in self.rules:
            rule.zero_grad(set_to_none=True)

    def rates(self) -> dict[str, float]:
        """The rates of the last step: `lr` of the head, and `lr_lowest` where layers differ."""
        lowest = min(group["scale"] for group in self.groups)
        rate = self.options.lr * self.factor
        return {"lr": rate} if lowest == 1.0 else {"lr": rate, "lr_lowest": rate * lowest}

    def tensors(self) -> dict[str, Tensor]:
        """Step counts and moments as `parameter/moment`: the live tensors, not copies."""
        return {
            f"{name}/{key}": value
            for rule in self.rules
            for name, parameter in self._by_name(rule.param_groups).items()
            for key, value in rule.state[parameter].items()
        }

    def state(self) -> dict[str, Any]:
        """What the tensors mean, as JSON."""
        return {"kind": self.options.kind, "bias_correction": self.options.bias_correction}

    def load(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Go on from what `tensors` and `state` gave, to the bit; anything missing, foreign or misshapen is refused."""
        if dict(state) != self.state():
            raise UserError(f"the checkpoint's optimiser is {dict(state)}, this run's is {self.state()}")
        own = self.tensors()
        if odd := sorted(own.keys() ^ tensors.keys()):
            lack = "lacks" if odd[0] in own else "has an unexpected"
            raise UserError(f"the checkpoint's optimiser {lack} {odd[0]} ({len(odd)} such differences)")
        for name, tensor in own.items():
            given = tensors[name]
            if given.shape != tensor.shape or given.dtype != tensor.dtype:
                raise UserError(f"{name} is {spell(given)} in the checkpoint and {spell(tensor)} in this model")
        for name, tensor in own.items():
            tensor.copy_(tensors[name])


def spell(tensor: Tensor) -> str:
    """Type and shape for a message."""
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def build(split: list[dict[str, Any]], options: OptimOptions) -> torch.optim.Optimizer:
    """Torch's optimiser for our groups, by the fastest implementation that exists."""
    common: dict[str, Any] = {"lr": options.lr, "betas": options.betas, "eps": options.eps}
    if options.kind == "adamax":
        # Torch's own weight decay of Adamax is L2 (it enters the moments), so it stays 0 and `shrink` does ours.
        return torch.optim.Adamax([undecayed(group) for group in split], weight_decay=0.0, foreach=True, **common)
    if options.kind == "stableadamw":
        return StableAdamW(split, **common)
    devices = {tensor.device.type for group in split for _, tensor in group["params"]}
    return torch.optim.AdamW(split, fused=True if devices <= FUSED else None, **common)


def in_layers(parameter: Param, layers: int) -> bool:
    """Whether it is a matrix of a layer, which Muon is for; embeddings and heads are not."""
    tensor, depth = parameter.tensor, parameter.depth
    return tensor.ndim == 2 and tensor.requires_grad and depth is not None and 1 <= depth <= layers


def build_muon(split: list[dict[str, Any]], options: OptimOptions, half: bool) -> torch.optim.Optimizer:
    """Muon for whole matrices."""
    if any(isinstance(tensor, DTensor) for group in split for _, tensor in group["params"]):
        raise UserError("optim.kind: muon needs whole matrices; it does not work with train.shard")
    return Muon(split, lr=options.lr, momentum=options.momentum, half=half)


def undecayed(group: dict[str, Any]) -> dict[str, Any]:
    """The group with its weight decay where torch does not see it."""
    return {**group, "weight_decay": 0.0, "decoupled": group["weight_decay"]}


def norm_of(parameters: Iterable[nn.Parameter]) -> Tensor:
    """The global gradient norm, where it was computed: nothing waits for it."""
    total = nn.utils.get_total_norm([upcast(p.grad) for p in parameters if p.grad is not None])
    return total.full_tensor() if isinstance(total, DTensor) else total  # of a sharded model


def clip(parameters: Iterable[nn.Parameter], max_norm: float) -> float:
    """The global gradient norm before clipping; longer gradients are scaled down to max_norm (0: only measured)."""
    kept = [parameter for parameter in parameters if parameter.grad is not None]
    total = norm_of(kept)
    norm = float(total)
    if max_norm and norm > max_norm:
        nn.utils.clip_grads_with_norm_(kept, max_norm, total)
    return norm
