"""Weights, gradients and moments spread over the devices (torch's FSDP2), for models that outgrow one of them.

Each block of an encoder is gathered when it is needed and given back afterwards; everything else is gathered for the
whole pass. Gradients are summed, since every loss was divided by the totals of all processes. A gathering needs all
processes, so all of them take equally many passes.
"""

import copy
from collections.abc import Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from encodery.distributed import comm
from encodery.errors import UserError

M = TypeVar("M", bound=nn.Module)


def require_fit(method: str, tasks: int, tune: str, dynamics: Any, probes: Any) -> None:
    """Refuse what was not proven under sharding."""
    wrong = {
        f"method {method}": method != "plain",
        "several tasks": tasks > 1,
        f"model.tune {tune}": tune != "full",
        "train.dynamics": bool(dynamics),
        "probe": bool(probes),
    }
    if odd := [name for name, given in wrong.items() if given]:
        raise UserError(f"train.shard: not with {odd[0]}; plain training of one task only")


def shard(model: M, device: torch.device) -> M | None:
    """Spread the parameters over all processes; what builds an optimiser comes after this.

    The first process gets a copy in ordinary memory, through which the model is saved.
    """
    plain = copy.deepcopy(model).cpu() if comm.is_main() else None
    mesh = init_device_mesh(device.type, (comm.size(),))
    for block in blocks(model):
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    for part in sharded_parts(model):
        part.set_gradient_divide_factor(1.0)
        part.set_force_sum_reduction_for_comms(True)
    return plain


def blocks(model: nn.Module) -> list[nn.Module]:
    """The layers of all encoders in a model: the longest lists of modules of one class."""
    return [
        block
        for part in model.modules()
        if isinstance(part, nn.ModuleList) and len({type(one) for one in part}) == 1 and len(part) > 1
        for block in part
    ]


def sharded_parts(model: nn.Module) -> list[Any]:
    """The modules that are gathered as one."""
    return [part for part in model.modules() if isinstance(part, FSDPModule)]


def gathered(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors as one process would hold them. All processes must come here."""
    return {name: value.full_tensor() if isinstance(value, DTensor) else value for name, value in tensors.items()}


def like(own: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Whole tensors, spread as our own are."""
    return {name: _like(own[name], value) if name in own else value for name, value in given.items()}


def _like(own: Tensor, given: Tensor) -> Tensor:
    if not isinstance(own, DTensor) or isinstance(given, DTensor):
        return given
    return distribute_tensor(given.to(own.device), own.device_mesh, own.placements)


def load(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """`load_state_dict` of whole tensors."""
    for part in sharded_parts(model):
        part.reshard()  # or what was gathered for an evaluation would stay as it was
    model.load_state_dict(like(model.state_dict(), tensors))
