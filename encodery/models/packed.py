"""Attention for the packed layout, and which of three back ends takes a call.

groups: sequences of similar length are gathered, padded to each other and put back; CPUs have nothing else. varlen:
torch's kernel for rows of sequences, half precision without dropout, with or without a window. nested:
scaled-dot-product attention of jagged tensors, which knows dropout and single precision. What a kernel cannot take goes
to groups, with a reason that a run prints.

Registered with transformers' attention interface under the name `packed`. Only architectures for which equality with
the padded model was proven are listed; DeBERTa and MPNet do not ask the interface and would be silently wrong.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import varlen
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface

from encodery.data.layouts import Group, Offsets
from encodery.models.kernels.attention import attend_in_half, attend_with_dropout
from encodery.models.kernels.dropout import dropout as dropout_of

NAME = "packed"

# Proven equal to the padded model by tests/models/test_packed.py and tests/models/test_families.py.
PROVEN = frozenset(
    {
        "bert", "roberta", "xlm-roberta", "camembert", "electra", "albert", "distilbert", "modernbert", "amos",
        "data2vec-text", "ernie", "esmc", "eurobert", "gte", "jina_embeddings_v3", "nomic_bert", "roberta-prelayernorm",
        "roc_bert", "ultrabert", "xlm-roberta-xl", "xmod",
    }
)  # fmt: skip

# Keywords that architectures pass along and that change nothing here. Any other one is refused: it would be dropped in
# silence.
HARMLESS = frozenset(
    {
        "position_ids", "output_attentions", "output_hidden_states", "return_dict", "use_cache", "is_causal",
        "deterministic", "cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k", "position_embeddings",
    }
)  # fmt: skip


Backend = Literal["groups", "varlen", "nested"]
HALF = (torch.bfloat16, torch.float16)
LONG = 1024  # tokens of a sequence, up to which the weights of all pairs are kept where nothing else asks for it
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
        return Choice("groups", "no kernel supports a position bias")
    if call.size % 8 or call.size > 256:
        return Choice("groups", f"no kernel supports a head size of {call.size} (multiples of 8 up to 256)")
    if call.dtype == torch.bfloat16 and call.capability < FLASH:
        return Choice("groups", "this GPU has no kernel for bf16")
    if half and not call.dropout and call.capability >= FLASH:
        return Choice("varlen")
    if call.window:
        asked = "with dropout" if call.dropout else "in fp32" if not half else "on this GPU"
        return Choice("groups", f"no kernel supports a window {asked}")
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


@torch.compiler.disable  # type: ignore[untyped-decorator]
def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    groups: list[Group] | None = None,
    offsets: Offsets | None = None,
    sliding_window: int | None = None,
    position_bias: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Scaled-dot-product attention inside each sequence of a row [1, heads, T, size].

    `position_bias` [heads, L, L] is added to the scores of every sequence, from its first token on.
    """
    unknown = [k for k, v in others.items() if v is not None and k not in HARMLESS]
    if unknown or attention_mask is not None or groups is None:
        raise RuntimeError(f"packed attention in {type(module).__name__}: cannot take {unknown or 'an attention mask'}")
    heads, size = query.shape[1], query.shape[3]
    if key.shape[1] != heads:  # heads that share keys and values
        key, value = (x.repeat_interleave(heads // x.shape[1], 1) for x in (key, value))
    scale = size**-0.5 if scaling is None else scaling
    backend = "groups" if offsets is None else backend_for(query, dropout, sliding_window, position_bias)
    if offsets is None or backend == "groups":
        return in_groups(query, key, value, groups, scale, dropout, sliding_window, position_bias), None
    q, k, v = (lowered(x)[0].transpose(0, 1) for x in (query, key, value))  # [T, heads, size]
    if backend == "varlen":
        return varlen_attention(q, k, v, offsets, scale, sliding_window)[None], None
    return nested_attention(q, k, v, offsets, scale, dropout)[None], None


def backend_for(query: Tensor, dropout: float, window: int | None, bias: Tensor | None) -> Backend:
    """The back end of one call."""
    device = query.device
    kind = torch.get_autocast_dtype(device.type) if torch.is_autocast_enabled(device.type) else query.dtype
    asked = {"dropout": dropout > 0, "window": bool(window), "bias": bias is not None}
    return choose(Call(device.type, capability_of(device), kind, query.shape[-1], **asked)).backend


def lowered(values: Tensor) -> Tensor:
    """As autocast hands them to torch's own attention: rotary positions may have left them in single precision."""
    kind = values.device.type
    return values.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else values


def in_groups(
    query: Tensor, key: Tensor, value: Tensor, groups: list[Group], scale: float, dropout: float, window: int | None,
    bias: Tensor | None,
) -> Tensor:  # fmt: skip
    """Group by group: [1, T, heads, size]."""
    heads, tokens, size = query.shape[1:]
    flat = [lowered(x[0].transpose(0, 1)).reshape(tokens * heads, size) for x in (query, key, value)]
    counts = [group.tokens * heads for group in groups]
    parts = zip(
        *(torch.split(x, counts) if len(counts) > 1 else [x] for x in flat), strict=True
    )  # not slices: one grad
    outputs = []
    for group, part in zip(groups, parts, strict=True):
        q, k, v = (group.cells(x, heads) for x in part)
        mask = group.near(window) if window else group.mask
        if bias is not None:
            mask = biased(bias[:, : group.longest, : group.longest].to(q.dtype), mask)
        outputs.append(group.real(attend(q, k, v, mask, dropout, scale)))
    joined = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
    return joined.view(1, tokens, heads, size)


def biased(bias: Tensor, mask: Tensor | None) -> Tensor:
    """A bias of the scores in which the keys that are not real are as low as can be."""
    if mask is None:
        return bias[None]
    return bias[None].masked_fill(~mask, torch.finfo(bias.dtype).min)


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, rate: float, scale: float) -> Tensor:
    """Scaled-dot-product attention [n, heads, L, size]; torch's for CPUs are slow with dropout and in bfloat16."""
    if q.device.type == "cpu":
        if mask is not None and mask.is_floating_point() and rate:  # a bias with a gradient
            return torch.matmul(dropout_of((torch.matmul(q * scale, k.transpose(2, 3)) + mask).softmax(-1), rate), v)
        if mask is None or not mask.is_floating_point():
            if q.dtype in HALF and (rate or q.shape[2] <= LONG):
                return attend_in_half(q, k, v, mask, rate, scale)
            if rate:
                return attend_with_dropout(q, k, v, mask, rate, scale)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=rate, scale=scale)


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


AttentionInterface.register(NAME, packed_attention)
AttentionMaskInterface.register(NAME, lambda *_, **__: None)
