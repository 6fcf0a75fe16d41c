"""Attention of packed sequences on a GPU, and which of three back ends takes a call.

groups: sequences of similar length are padded to each other (packed.py); CPUs have nothing else. varlen: torch's kernel
for rows of sequences, half precision without dropout, with or without a window. nested: scaled-dot-product attention of
jagged tensors, which knows dropout and single precision. What a kernel cannot take goes to groups, with a reason that a
run prints.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import varlen

from encodery.data.layouts import Offsets

Backend = Literal["groups", "varlen", "nested"]
HALF = (torch.bfloat16, torch.float16)
FLASH = (8, 0)  # the first compute capability with torch's varlen kernel


@dataclass(frozen=True)
class Call:
    """What a call of attention asks of a kernel."""

    device: str
    capability: tuple[int, int]
    dtype: torch.dtype
    size: int  # numbers of a head
    dropout: bool = False
    window: bool = False
    bias: bool = False


@dataclass(frozen=True)
class Choice:
    """The back end that takes a call; `why` is the reason where a GPU's kernels cannot take it."""

    backend: Backend
    why: str = ""


def choose(call: Call) -> Choice:
    """The back end for a call: the quickest one that can take it."""
    if call.device != "cuda":
        return Choice("groups")
    half = call.dtype in HALF
    if call.bias:
        return Choice("groups", "no kernel takes a bias of positions")
    if call.size % 8 or call.size > 256:
        return Choice("groups", f"no kernel takes heads of {call.size} numbers (multiples of 8 up to 256)")
    if call.dtype == torch.bfloat16 and call.capability < FLASH:
        return Choice("groups", "this GPU has no kernel for bf16")
    if half and not call.dropout and call.capability >= FLASH:
        return Choice("varlen")
    if call.window:
        asked = "with dropout" if call.dropout else "in fp32" if not half else "on this GPU"
        return Choice("groups", f"no kernel takes a window {asked}")
    return Choice("nested")


def capability_of(device: torch.device) -> tuple[int, int]:
    """Compute capability; (0, 0) of what is no CUDA device."""
    return torch.cuda.get_device_capability(device) if device.type == "cuda" else (0, 0)


def varlen_attention(
    q: Tensor, k: Tensor, v: Tensor, offsets: Offsets, scale: float, window: int | None = None
) -> Tensor:
    """[T, heads, size] of each; with a window a token sees those less than so many places away."""
    near = (window - 1, window - 1) if window else (-1, -1)
    places, longest = offsets.narrow, offsets.longest
    out = varlen.varlen_attn(q, k, v, places, places, longest, longest, scale=scale, window_size=near)
    assert isinstance(out, Tensor)
    return out


def nested_attention(q: Tensor, k: Tensor, v: Tensor, offsets: Offsets, scale: float, dropout: float) -> Tensor:
    """[T, heads, size] of each. Lengths are given, so that no device is asked for them."""
    known: dict[str, Any] = {"min_seqlen": offsets.shortest, "max_seqlen": offsets.longest}
    each = [
        torch.nested.nested_tensor_from_jagged(x.contiguous(), offsets.wide, **known).transpose(1, 2) for x in (q, k, v)
    ]
    out = F.scaled_dot_product_attention(each[0], each[1], each[2], dropout_p=dropout, scale=scale)
    return out.transpose(1, 2).values()


# What a run, and `doctor`, say of it.


@dataclass(frozen=True)
class Layers:
    """What the layers of an encoder ask for: as they train, and as they answer."""

    size: int
    dropout: float
    windows: frozenset[bool]  # whether layers have a window: some, all, none
    bias: bool

    @classmethod
    def of(cls, config: Any) -> "Layers":
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        names = ("attention_probs_dropout_prob", "attention_dropout")
        rate = next((value for name in names if (value := getattr(config, name, None)) is not None), 0.0)
        kinds = getattr(config, "layer_types", None) or ["full_attention"]
        windows = frozenset(kind == "sliding_attention" for kind in kinds)
        return cls(int(size), float(rate), windows, config.model_type == "amos")

    def choices(self, device: torch.device, dtype: torch.dtype, training: bool) -> list[Choice]:
        """One for each kind of layer, those without a window first."""
        call = Call(device.type, capability_of(device), dtype, self.size, training and self.dropout > 0, bias=self.bias)
        return [choose(replace(call, window=window)) for window in sorted(self.windows)]


def describe(config: Any, device: torch.device, dtype: torch.dtype) -> dict[str, str]:
    """Back ends of a packed encoder: {"training", "evaluation"}, and {"why"} where a GPU's kernels are not used."""
    layers, backends, reasons = Layers.of(config), dict[str, str](), dict[str, None]()
    for name, training in (("training", True), ("evaluation", False)):
        choices = layers.choices(device, dtype, training)
        backends[name] = ", ".join(dict.fromkeys(choice.backend for choice in choices))
        reasons |= dict.fromkeys(choice.why for choice in choices if choice.why)
    return backends | ({"why": "; ".join(reasons)} if reasons else {})
