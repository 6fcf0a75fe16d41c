"""Attention heads of an encoder, seen and gated at the one place that all architectures have: the input of the
projection that joins a layer's heads, [..., heads · size].

transformers 5 has no head_mask any more and swallows the word in silence, so heads are reached by hooks. Where the
modules are is in a table for a few architectures; in others the usual names are tried, and `prove` makes sure that what
they name are heads. Layers are counted by calls, because ALBERT's layers are one module that is called again and again.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from encodery.errors import UserError
from encodery.models.encoder import Encoder
from encodery.models.packed_check import probe, resting, unpacked

Head = tuple[int, int]  # layer, head, both from 0 on


class Part(NamedTuple):
    """Rows of a linear layer's output that are the keys or the values: (which module, its name, which cut)."""

    module: str
    cut: str  # whole: all rows; qkv: (3, heads, size) as in ModernBERT; heads: (heads, 3, size) as in DeBERTa
    number: int = 0  # of q, k, v


class Places(NamedTuple):
    """Where an architecture has its heads: endings of module names."""

    output: str
    parts: tuple[Part, ...]  # keys and values


_BERT = Places("attention.output.dense", (Part("attention.self.key", "whole"), Part("attention.self.value", "whole")))
PLACES = {
    **dict.fromkeys(("bert", "roberta", "xlm-roberta", "camembert", "electra", "amos"), _BERT),
    "deberta": Places(
        "attention.output.dense",
        (Part("attention.self.in_proj", "heads", 1), Part("attention.self.in_proj", "heads", 2)),
    ),
    "deberta-v2": Places(
        "attention.output.dense",
        (Part("attention.self.key_proj", "whole"), Part("attention.self.value_proj", "whole")),
    ),
    "distilbert": Places("attention.out_lin", (Part("attention.k_lin", "whole"), Part("attention.v_lin", "whole"))),
    "albert": Places("attention.dense", (Part("attention.key", "whole"), Part("attention.value", "whole"))),
    "modernbert": Places("attn.Wo", (Part("attn.Wqkv", "qkv", 1), Part("attn.Wqkv", "qkv", 2))),
}


# Names that other architectures use for the same. What they name is proven before it is used.
_ROTARY = Places("self_attn.o_proj", (Part("self_attn.k_proj", "whole"), Part("self_attn.v_proj", "whole")))
_MPNET = Places("attn.o", (Part("attn.k", "whole"), Part("attn.v", "whole")))
_BARE = Places("out_lin", (Part("k_lin", "whole"), Part("v_lin", "whole")))
USUAL = (_BERT, _ROTARY, _MPNET, _BARE)
TOLERANCE = 1e-4


def places_of(encoder: Encoder) -> Places:
    """The table's line, or the usual names that are proven to be right; any other encoder is refused."""
    if encoder.kind in PLACES:
        return PLACES[encoder.kind]
    if encoder.places is None:
        fitting = [places for places in USUAL if fits(encoder, places)]
        if not fitting or not prove(encoder, fitting[0]):
            raise UserError(
                f"heads: the attention heads of {encoder.kind} cannot be reached: it has no projection that joins the "
                "outputs of separate heads, each with keys and values of its own"
            )
        encoder.places = fitting[0]
    found: Places = encoder.places
    return found


def fits(encoder: Encoder, places: Places) -> bool:
    """Whether every layer has these modules, as wide as heads with own keys and values need them."""
    endings = (places.output, *(part.module for part in places.parts))
    each = [[m for name, m in encoder.net.named_modules() if f".{name}".endswith(f".{end}")] for end in endings]
    if any(len(found) != encoder.layers or any(type(m) is not nn.Linear for m in found) for found in each):
        return False
    return all(
        output.in_features == key.out_features == value.out_features for output, key, value in zip(*each, strict=True)
    )


@torch.no_grad()
def prove(encoder: Encoder, places: Places) -> bool:
    """A head whose output is taken away must be the same as one whose values are zero."""
    ids, mask = probe(encoder)
    count, name = heads_of(encoder), places.parts[1].module

    def silent(_layer: int, context: Tensor) -> Tensor:
        each = cut(context, count, -1).clone()
        each[..., 0, :] = 0
        return each.flatten(-2)

    def states() -> Tensor:
        return encoder.net(input_ids=ids, attention_mask=mask.long()).last_hidden_state[mask]  # type: ignore[no-any-return]

    with unpacked(encoder), resting(encoder.net), torch.random.fork_rng(devices=[]):
        try:
            plain = states()
            with hooked(encoder, places.output, silent):
                without_head = states()
        except RuntimeError:  # the modules are called otherwise than layer by layer
            return False
        values: list[Any] = modules_of(encoder, name)
        with ExitStack() as stack:
            for module in values:
                stack.enter_context(zeroed(module, module.out_features // count))
            without_values = states()
    size = max(1.0, float(plain.abs().max()))
    differs = float((plain - without_head).abs().max()) > 0
    return differs and float((without_head - without_values).abs().max()) < TOLERANCE * size


@contextmanager
def zeroed(module: Any, rows: int) -> Iterator[None]:
    """Inside, the first rows of a layer give zero."""
    kept = [(p, p[:rows].clone()) for p in (module.weight, module.bias) if p is not None]
    for parameter, _ in kept:
        parameter[:rows] = 0
    try:
        yield
    finally:
        for parameter, before in kept:
            parameter[:rows] = before


def modules_of(encoder: Encoder, ending: str) -> list[nn.Module]:
    """All modules whose name ends like this, in order; at least one."""
    found = [m for name, m in encoder.net.named_modules() if name == ending or name.endswith("." + ending)]
    if not found:
        raise UserError(f"heads: this {encoder.kind} has no module {ending}; its architecture is not the expected one")
    return found


def rows_of(encoder: Encoder) -> int:
    """How often a pass goes through heads: the layers (ALBERT: times the layers of a group)."""
    return encoder.layers * int(getattr(encoder.net.config, "inner_group_num", 1))


def heads_of(encoder: Encoder) -> int:
    """Heads of a layer."""
    return int(encoder.net.config.num_attention_heads)


def cut(values: Tensor, *sizes: int) -> Tensor:
    """The last axis cut into several."""
    return values.reshape(*values.shape[:-1], *sizes)


Seen = Callable[[int, Any], Any]  # the number of the layer and what is there; what to put in its place, or None


@contextmanager
def hooked(encoder: Encoder, ending: str, seen: Seen, *, output: bool = False) -> Iterator[None]:
    """`seen` is called at the input (or output) of each layer's module, in the order of the layers, in every pass.

    Gradient checkpointing would call it again in the backward pass, out of order: it is off inside.
    """
    modules, wanted, calls = modules_of(encoder, ending), rows_of(encoder), [0]

    def begin(*_: Any) -> None:
        calls[0] = 0

    def before(_module: nn.Module, given: tuple[Any, ...]) -> Any:
        calls[0] += 1
        changed = seen(calls[0] - 1, given[0])
        return None if changed is None else (changed, *given[1:])

    def after(_module: nn.Module, given: tuple[Any, ...], result: Any) -> Any:
        calls[0] += 1
        return seen(calls[0] - 1, (given[0], result))

    def end(*_: Any) -> None:
        if calls[0] != wanted:
            raise RuntimeError(f"heads: {ending} of this {encoder.kind} was called {calls[0]} times, not {wanted}")

    handles = [encoder.net.register_forward_pre_hook(begin), encoder.net.register_forward_hook(end)]
    for module in modules:
        handles.append(module.register_forward_hook(after) if output else module.register_forward_pre_hook(before))
    was = checkpointing(encoder)
    for module in was:
        module.gradient_checkpointing = False
    try:
        yield
    finally:
        for module in was:
            module.gradient_checkpointing = True
        for handle in handles:
            handle.remove()


def checkpointing(encoder: Encoder) -> list[Any]:
    """Modules that keep nothing for the backward pass and compute it again."""
    return [module for module in encoder.net.modules() if getattr(module, "gradient_checkpointing", False)]


@contextmanager
def without(encoder: Encoder, heads: Sequence[Head]) -> Iterator[None]:
    """Inside, these heads say nothing: their output is zero in every sequence."""
    places, layers, count = places_of(encoder), rows_of(encoder), heads_of(encoder)
    wrong = [f"{layer}.{head}" for layer, head in heads if not (0 <= layer < layers and 0 <= head < count)]
    if wrong:
        raise UserError(f"heads: there is no {wrong[0]}: layers 0 to {layers - 1}, heads 0 to {count - 1}")
    device = next(encoder.parameters()).device
    mask = torch.ones(layers, count, device=device)
    for layer, head in heads:
        mask[layer, head] = 0.0

    def seen(layer: int, context: Tensor) -> Tensor:
        each = mask[layer].to(context.dtype)
        return (cut(context, count, -1) * each[:, None]).flatten(-2)

    with hooked(encoder, places.output, seen):
        yield


def parse(text: str) -> list[Head]:
    """`3.4,5.0`: layer 3 head 4 and layer 5 head 0."""
    try:
        pairs = [tuple(int(number) for number in pair.split(".")) for pair in text.split(",")]
        if not pairs or any(len(pair) != 2 for pair in pairs):
            raise ValueError
    except ValueError:
        raise UserError(f"heads: {text!r} is not layer.head,…, such as 3.4,5.0 (both from 0 on)") from None
    return [(pair[0], pair[1]) for pair in pairs]
