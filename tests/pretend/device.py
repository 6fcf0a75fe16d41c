"""A pretend GPU: tensors on "cuda" whose numbers a CPU computes. Mixing devices is an error, as on a real one.

`waits` counts what a host would wait for: reading a number, a copy to the host, and every operation whose result has a
shape that depends on values (nonzero, unique, masks as indices). `unpinned` counts copies to the device out of memory
that is not pinned. Not rehearsed: kernels, their rounding and speed, memory, streams, nccl, compiling. Where
ENCODERY_PRETEND_NCCL is set, several processes find an nccl whose messages travel over gloo.
"""

import os
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
COPIES = {aten._to_copy.default, aten.copy_.default}
INDEXING = {
    aten.index.Tensor, aten.index_put_.default, aten.index_put.default, aten._index_put_impl_.default,
    aten._unsafe_index.Tensor, aten._unsafe_index_put.default,
}  # fmt: skip
SHAPED_BY_VALUES = {
    "aten::_local_scalar_dense", "aten::equal", "aten::nonzero", "aten::masked_select", "aten::bincount",
    "aten::_unique", "aten::_unique2", "aten::unique_dim", "aten::unique_consecutive", "aten::masked_scatter_backward",
}  # fmt: skip
MEMORY = 80 * 2**30
KERNELS: dict[Any, Callable[..., Any]] = {}  # kernels/table, once one is asked for

waits: Counter[str] = Counter()
unpinned: Counter[str] = Counter()


def is_pinned(tensor: torch.Tensor, *_: Any) -> bool:
    """Whether a copy of it need not wait."""
    return getattr(tensor, "pretends_pinned", False)


def place(device: Any) -> torch.device | None:
    """The pretend device that is meant, or None for the host."""
    wanted = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    if wanted.type != "cuda":
        return None
    index = torch.cuda.current_device() if wanted.index is None else wanted.index
    if index >= torch.cuda.device_count():
        raise torch.AcceleratorError("CUDA error: invalid device ordinal")
    return torch.device("cuda", index)


class Pretend(torch.Tensor):
    """A tensor of a pretend GPU; `inner` holds its numbers."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor, device: torch.device) -> "Pretend":
        made = torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, strides=inner.stride(), storage_offset=inner.storage_offset(), dtype=inner.dtype,
            layout=inner.layout, device=device, requires_grad=False,
        )  # fmt: skip
        made.inner = inner
        return made  # type: ignore[no-any-return]

    def __repr__(self) -> str:  # type: ignore[override]
        return f"Pretend({self.inner}, {self.device})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(func, args, kwargs or {})

    def numpy(self, *, force: bool = False) -> Any:
        raise TypeError(f"can't convert {self.device} device type tensor to numpy. Use Tensor.cpu() first")

    def tolist(self) -> Any:
        waits["tolist"] += 1
        return self.inner.tolist()

    def new_tensor(self, data: Any, **about: Any) -> torch.Tensor:
        return torch.tensor(data, **{"dtype": self.dtype, "device": self.device, **about})

    def data_ptr(self) -> int:
        return self.inner.data_ptr()

    def untyped_storage(self) -> Any:
        return self.inner.untyped_storage()


def run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """One operation: all tensors on one device, the numbers computed by the CPU, the result on that device."""
    if func is aten._pin_memory.default:
        copy = args[0].clone()
        copy.pretends_pinned = True
        return copy
    flat: list[torch.Tensor] = []
    inputs, named = plain(args, flat), plain(kwargs, flat)
    ours = [t for t in flat if isinstance(t, Pretend)]
    if jagged := [t for t in flat if type(t).__name__ == "NestedTensor"]:  # what it holds is ours
        with Mode():
            return type(jagged[0]).__torch_dispatch__(func, (type(jagged[0]),), args, kwargs)
    asked = kwargs.get("device")
    if not ours and (asked is None or torch.device(asked).type != "cuda"):
        return func(*args, **kwargs)
    check(func, args, flat, ours)
    count(func, args, kwargs, ours)
    if asked is not None:
        named["device"] = torch.device("cpu")
    if named.get("pin_memory"):
        named["pin_memory"] = False
    out = kernel_of(func)(*inputs, **named)
    if func is aten.copy_.default:
        return args[0]
    home = place(asked) if asked is not None else ours[0].device
    return out if home is None else wrapped(out, home, {id(t.inner): t for t in ours})


def kernel_of(func: Any) -> Callable[..., Any]:
    """What computes an operation: the CPU's own, or ours where it has none."""
    if "attn" not in func._schema.name and "attention" not in func._schema.name:
        return func  # type: ignore[no-any-return]
    if not KERNELS:
        from tests.pretend import kernels

        KERNELS.update(kernels.table())
    return KERNELS.get(func, func)


def plain(value: Any, tensors: list[torch.Tensor]) -> Any:
    """The arguments as a CPU gets them; the tensors among them are listed."""
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return value.inner if isinstance(value, Pretend) else value
    if isinstance(value, dict):
        return {key: plain(each, tensors) for key, each in value.items()}
    return type(value)(plain(each, tensors) for each in value) if type(value) in (list, tuple) else value


def wrapped(value: Any, home: torch.device, known: dict[int, Pretend]) -> Any:
    """A result on its device; what an operation has changed in place is the tensor that it was given."""
    if isinstance(value, torch.Tensor):
        if isinstance(value, Pretend):
            return value
        return known[id(value)] if id(value) in known else Pretend(value, home)
    return type(value)(wrapped(each, home, known) for each in value) if type(value) in (list, tuple) else value


def check(func: Any, args: Any, flat: list[torch.Tensor], ours: list[Pretend]) -> None:
    """Tensors of different devices meet in copies only; numbers and indices may come from the host."""
    if func in COPIES:
        return
    homes = {t.device for t in ours}
    hosts = [t for t in flat if not isinstance(t, Pretend) and t.dim() > 0]
    if func in INDEXING and isinstance(args[0], Pretend):
        hosts = [t for t in hosts if not any(t is index for index in args[1])]
    if (ours and hosts) or len(homes) > 1:
        there = ", ".join(sorted({*map(str, homes), *(["cpu"] if hosts else [])}))
        raise RuntimeError(f"Expected all tensors to be on the same device, but found {there} in {func}")


def count(func: Any, args: Any, kwargs: dict[str, Any], ours: list[Pretend]) -> None:
    """What a host waits for."""
    name = func._schema.name
    if not ours and func in COPIES and not is_pinned(args[0]):
        unpinned[name] += 1
    elif (
        func is aten._to_copy.default and ours and kwargs.get("device") is not None and place(kwargs["device"]) is None
    ):
        waits["copy to the host"] += 1
    elif func is aten.copy_.default and ours:
        if not isinstance(args[0], Pretend):
            waits["copy to the host"] += 1
        elif not isinstance(args[1], Pretend) and args[1].dim() and not is_pinned(args[1]):
            unpinned[name] += 1
    elif ours and (name in SHAPED_BY_VALUES or sized_by_counts(func, args, kwargs)):
        waits[name.removeprefix("aten::")] += 1
    elif func in INDEXING and any(t is not None and t.dtype in (torch.bool, torch.uint8) for t in args[1]):
        waits["mask as index"] += 1


def sized_by_counts(func: Any, args: Any, kwargs: dict[str, Any]) -> bool:
    """repeat_interleave reads its counts, unless it is told their sum."""
    return func is aten.repeat_interleave.Tensor and kwargs.get("output_size") is None


class Mode(TorchDispatchMode):
    """Sees what is made on a device out of nothing, or out of host tensors."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(func, args, kwargs or {})


class Event:
    """Always over."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def record(self, *_: Any) -> None: ...

    def wait(self, *_: Any) -> None: ...

    def synchronize(self) -> None:
        waits["event"] += 1

    def query(self) -> bool:
        return True

    def elapsed_time(self, _: "Event") -> float:
        return 1.0


class Stream(Event):
    """Everything happens at once."""

    wait_stream = wait_event = Event.wait

    def record_event(self, event: Event | None = None) -> Event:
        return event or Event()


def install() -> None:
    """Let this process find the devices: factories, threads and torch.cuda."""
    cuda: Any = torch.cuda
    number = int(os.environ["ENCODERY_PRETEND_DEVICES"])
    about = type("Properties", (), {"name": "Pretend GPU", "total_memory": MEMORY, "major": 8, "minor": 0})
    answers: dict[str, Any] = {
        "is_available": lambda: number > 0, "is_bf16_supported": lambda *_, **__: True, "device_count": lambda: number,
        "get_device_name": lambda *_: "Pretend GPU", "get_device_properties": lambda *_: about(),
        "get_device_capability": lambda *_: (8, 0), "mem_get_info": lambda *_: (MEMORY, MEMORY),
        "max_memory_allocated": lambda *_: 3 * 2**20, "memory_allocated": lambda *_: 2**20, "synchronize": synchronize,
        "reset_peak_memory_stats": lambda *_: None, "empty_cache": lambda: None, "_lazy_init": lambda: None,
        "manual_seed": lambda seed: None, "manual_seed_all": lambda seed: None, "is_initialized": lambda: True,
        "current_device": torch._C._accelerator_getDeviceIndex, "set_device": set_device,
        "Stream": Stream, "Event": Event, "current_stream": lambda *_: Stream(), "stream": lambda _: nullcontext(),
    }  # fmt: skip
    for name, answer in answers.items():
        setattr(cuda, name, answer)
    let_jagged_attention_find_kernels()
    if os.environ.get("ENCODERY_PRETEND_NCCL"):
        let_processes_find_nccl()
    torch.__future__.set_swap_module_params_on_conversion(True)  # numbers of a parameter cannot move to another class
    torch.tensor, torch.as_tensor = on_device(torch.tensor), on_device(torch.as_tensor)
    torch.Tensor.is_pinned = is_pinned  # type: ignore[method-assign]
    torch.Tensor.pin_memory = lambda self, *_: aten._pin_memory.default(self)  # type: ignore[method-assign]
    target = threading.Thread.run

    def in_mode(self: threading.Thread) -> None:
        with Mode():
            target(self)

    threading.Thread.run = in_mode  # type: ignore[method-assign]
    Mode().__enter__()
    if log := os.environ.get("ENCODERY_PRETEND_LOG"):
        with open(log, "a") as stream:
            stream.write(f"{os.getpid()} {os.environ.get('CUDA_VISIBLE_DEVICES')} {number}\n")


def let_jagged_attention_find_kernels() -> None:
    """What torch asks a GPU before it takes its kernels: flash for half precision, the other one for single."""
    from torch.nested._internal import sdpa

    half = (torch.bfloat16, torch.float16)
    sdpa.can_use_flash_attention = lambda params, *_, **__: params.query.dtype in half
    sdpa.can_use_efficient_attention = lambda params, *_, **__: params.query.is_cuda


def let_processes_find_nccl() -> None:
    """Messages between devices over gloo; a host hands them to the device's stream and does not wait for them."""
    dist: Any = torch.distributed
    begin = dist.init_process_group
    dist.is_nccl_available = lambda: True
    dist.init_process_group = lambda backend, **more: begin(backend.replace("nccl", "gloo"), **more)


def set_device(device: Any) -> None:
    index = device if isinstance(device, int) else torch.device(device).index
    torch._C._accelerator_setDeviceIndex(0 if index is None else index)


def synchronize(*_: Any) -> None:
    waits["synchronize"] += 1


def on_device(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """torch.tensor and torch.as_tensor as a host tensor and a copy."""

    def made(data: Any, *args: Any, device: Any = None, **kwargs: Any) -> torch.Tensor:
        grad = kwargs.pop("requires_grad", False)
        host = make(data, *args, **kwargs)
        there = host if device is None else host.to(device)
        return there.requires_grad_() if grad else there

    return made
