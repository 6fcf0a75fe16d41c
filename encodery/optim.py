"""The optimiser: rate over time as a function of the step, layer-wise rates, AdamW with or without bias correction.

Nothing here remembers where the schedule is: the loop asks `schedule(step)` and hands the factor to `Optimizer.step`.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from encodery.errors import UserError
from encodery.schema import OptimOptions

# Devices for which every torch we support has a fused AdamW kernel; elsewhere torch picks its own way.
FUSED = {"cpu", "cuda", "mps", "xpu"}

# What each rule remembers of a parameter, by torch's names, besides the count of its steps.
MOMENTS = {"adamw": ("exp_avg", "exp_avg_sq"), "adamax": ("exp_avg", "exp_inf")}

# A step count at which β^t is exactly 0 for every β < 1 - 1e-9, so that torch divides by exactly 1.
# float32 holds it, and adding 1 to it changes nothing.
ENDLESS = 2.0**40

SHAPES: dict[str, Callable[[float], float]] = {
    "linear": lambda left: left,
    "wsd": lambda left: left,
    "cosine": lambda left: 0.5 - 0.5 * math.cos(math.pi * left),
    "constant": lambda left: 1.0,
}
"""Height of the fall by the part of it that is left, from 1 (not begun) to 0 (over)."""


def schedule(options: OptimOptions, total: int) -> Callable[[int], float]:
    """The factor of the learning rate for the step about to be taken, which is the number of steps done (0 at first).

    Sequential is transformers' shape, step / warmup and then (total - step) / (total - warmup). Simultaneous is
    ELECTRA's, min(1, step / warmup) · (1 - step / total). With a warm-up both begin at 0: the first step moves nothing
    but the moments. A warm-up longer than the run ends before its peak. `schedule_steps` stands for the run's own
    number of steps.
    """
    total = options.schedule_steps or total
    warmup = warmup_steps(options, total)
    begin = fall_begin(options, total, warmup)
    shape = SHAPES[options.schedule]

    def factor(step: int) -> float:
        risen = min(1.0, step / warmup) if warmup else 1.0
        left = (total - step) / max(1, total - begin)
        return risen * shape(min(1.0, max(0.0, left)))

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
    found: dict[tuple[float, float, bool], list[tuple[str, nn.Parameter]]] = {}
    for name, tensor, depth, rate, own, decays in once(parameters):
        exempt = not decays or (options.decay == "matrices" and tensor.ndim < 2)
        key = layer_scale(depth, options, layers) * rate, 0.0 if exempt else options.weight_decay, own
        found.setdefault(key, []).append((name, tensor))
    if not found:
        raise UserError("nothing to train: every parameter is frozen (see model.tune)")
    return [
        {"params": named, "scale": scale, "weight_decay": decay, "own": own}
        for (scale, decay, own), named in found.items()
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
    """AdamW or Adamax over layer groups, whose state is stored under the names of the parameters.

    Without bias correction (as in BERT's and ELECTRA's code) every step count begins at ENDLESS. Counts are each
    parameter's own, so a head that is idle for a while is right too. Adamax's weight decay is decoupled as AdamW's is:
    θ ← (1 - lr·wd)·θ before the update, and never enters the moments. A parameter without a gradient is left alone.
    """

    def __init__(self, parameters: Sequence[Param], options: OptimOptions, layers: int) -> None:
        self.options = options
        self.inner = build(groups(parameters, options, layers), options)
        self.factor = 0.0
        for parameter in self.named().values():
            self.inner.state[parameter] = self.fresh(parameter)

    def named(self) -> dict[str, nn.Parameter]:
        """The trained parameters by name."""
        pairs = (zip(group["param_names"], group["params"], strict=True) for group in self.inner.param_groups)
        return {name: parameter for group in pairs for name, parameter in group}

    def fresh(self, parameter: nn.Parameter) -> dict[str, Tensor]:
        """The state of a parameter that was never moved."""
        place = parameter.device if self.inner.defaults.get("fused") else "cpu"
        begin = 0.0 if self.options.bias_correction else ENDLESS
        state = {name: torch.zeros_like(parameter, requires_grad=False) for name in MOMENTS[self.options.kind]}
        return {"step": torch.tensor(begin, dtype=torch.float32, device=place), **state}

    def step(self, factor: float, shared: float = 1.0) -> None:
        """Move every parameter that has a gradient, at factor times its rate; at 0 only the moments move.

        What tasks share moves at `shared` times that.
        """
        self.factor = factor
        for group in self.inner.param_groups:
            group["lr"] = self.options.lr * group["scale"] * factor * (1.0 if group["own"] else shared)
        if self.options.kind == "adamax":
            self.shrink()
        self.inner.step()

    @torch.no_grad()
    def shrink(self) -> None:
        """Decoupled weight decay, which torch's Adamax lacks."""
        for group in self.inner.param_groups:
            for parameter in group["params"]:
                if group["decoupled"] and parameter.grad is not None:
                    parameter.mul_(1 - group["lr"] * group["decoupled"])

    def zero_grad(self) -> None:
        """Forget the gradients; they become None, so that idle parameters stay idle."""
        self.inner.zero_grad(set_to_none=True)

    def rates(self) -> dict[str, float]:
        """The rates of the last step: `lr` of the head, and `lr_lowest` where layers differ."""
        lowest = min(group["scale"] for group in self.inner.param_groups)
        rate = self.options.lr * self.factor
        return {"lr": rate} if lowest == 1.0 else {"lr": rate, "lr_lowest": rate * lowest}

    def tensors(self) -> dict[str, Tensor]:
        """Step counts and moments as `parameter/moment`: the live tensors, not copies."""
        state = self.inner.state
        return {f"{name}/{key}": value for name, p in self.named().items() for key, value in state[p].items()}

    def state(self) -> dict[str, Any]:
        """What the tensors mean, as JSON."""
        return {"kind": self.options.kind, "bias_correction": self.options.bias_correction}

    def load(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Go on from what `tensors` and `state` gave, to the bit; anything missing, foreign or misshapen is refused."""
        if dict(state) != self.state():
            raise UserError(f"the checkpoint's optimiser is {dict(state)}, this run's is {self.state()}")
        own = self.tensors()
        if odd := sorted(own.keys() ^ tensors.keys()):
            lack = "lacks" if odd[0] in own else "has a foreign"
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
    devices = {tensor.device.type for group in split for _, tensor in group["params"]}
    return torch.optim.AdamW(split, fused=True if devices <= FUSED else None, **common)


def undecayed(group: dict[str, Any]) -> dict[str, Any]:
    """The group with its weight decay where torch does not see it."""
    return {**group, "weight_decay": 0.0, "decoupled": group["weight_decay"]}


def clip(parameters: Iterable[nn.Parameter], max_norm: float) -> float:
    """The global gradient norm before clipping; longer gradients are scaled down to max_norm (0: only measured)."""
    kept = [parameter for parameter in parameters if parameter.grad is not None]
    grads = [wide(parameter.grad) for parameter in kept if parameter.grad is not None]
    total = nn.utils.get_total_norm(grads)
    total = total.full_tensor() if isinstance(total, DTensor) else total  # of a sharded model
    norm = float(total)
    if max_norm and norm > max_norm:
        nn.utils.clip_grads_with_norm_(kept, max_norm, total)
    return norm


def wide(grad: Tensor) -> Tensor:
    """At least float32: a norm in half precision overflows at 65504."""
    return grad.float() if grad.dtype in (torch.float16, torch.bfloat16) else grad
