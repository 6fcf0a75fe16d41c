"""The back ends of packed attention: each gives what groups give, and what a kernel cannot take is said."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch

from encodery.data.layouts import Offsets
from encodery.models import packed
from encodery.models.packed import Call, Choice, choose, describe
from tests.models.test_packed import LENGTHS, PACKED, pass_through
from tests.toolbox.attention import About, attention, gradient
from tests.toolbox.models import furthest, small_config, small_encoder

GPU = Call("cuda", (8, 0), torch.bfloat16, 64)
BIASED = {"amos"}


@contextmanager
def forced(monkeypatch: pytest.MonkeyPatch, backend: str) -> Iterator[None]:
    """Inside, this back end takes whatever it can on a GPU."""

    def taken(call: Call) -> Choice:
        dtype = torch.bfloat16 if backend == "varlen" else torch.float32
        size = max(call.size // 8 * 8, 8)  # heads of the tests are small
        return choose(replace(call, device="cuda", capability=(8, 0), dtype=dtype, size=size))

    with monkeypatch.context() as patch:
        patch.setattr(packed, "choose", taken)
        yield


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("kind", PACKED)
def test_nested_gives_what_groups_give(kind: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted, wanted_grads, _ = pass_through(small_encoder(kind, "packed").to(dtype), "packed")
    calls = []
    inner = packed.nested_attention
    monkeypatch.setattr(packed, "nested_attention", lambda *a: calls.append(1) or inner(*a))
    encoder = small_encoder(kind, "packed").to(dtype)
    with forced(monkeypatch, "nested"):
        hidden, grads, _ = pass_through(encoder, "packed")
    windows = sum(one == "sliding_attention" for one in getattr(encoder.net.config, "layer_types", None) or ())
    assert len(calls) == (0 if kind in BIASED else encoder.layers - windows)
    bound = 1e-6 if dtype == torch.float32 else 1e-12
    assert float((hidden - wanted).abs().max()) < bound * max(1, float(wanted.abs().max()))
    assert furthest(grads, wanted_grads) < 10 * bound


@pytest.mark.parametrize("kind", PACKED)
def test_varlen_is_called_as_its_kernel_wants_and_gives_what_groups_give(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, wanted_grads, _ = pass_through(small_encoder(kind, "packed"), "packed")
    encoder = small_encoder(kind, "packed")
    seen: list[tuple[int, int]] = []

    def kernel(
        query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, cu_seq_q: torch.Tensor, cu_seq_k: torch.Tensor,
        max_q: int, max_k: int, *, scale: float, window_size: tuple[int, int],
    ) -> torch.Tensor:  # fmt: skip
        heads = encoder.net.config.num_attention_heads
        for one in (query, key, value):
            assert one.shape == (sum(LENGTHS), heads, encoder.width // heads)
            assert one.stride(-1) == 1
        assert cu_seq_q is cu_seq_k
        assert cu_seq_q.dtype == torch.int32
        assert cu_seq_q.tolist() == [sum(LENGTHS[:i]) for i in range(len(LENGTHS) + 1)]
        assert (type(max_q), max_q, max_k) == (int, max(LENGTHS), max(LENGTHS))
        assert scale == pytest.approx((encoder.width // heads) ** -0.5)
        seen.append(window_size)
        return attention(query, key, value, About(cu_seq_q, scale, window_size))

    monkeypatch.setattr(packed.varlen, "varlen_attn", kernel)
    with forced(monkeypatch, "varlen"):
        hidden, grads, _ = pass_through(encoder, "packed")
    assert len(seen) == (0 if kind in BIASED else encoder.layers)
    if kind == "modernbert":  # 3 tokens to each side, itself not counted
        assert sorted(seen) == [(-1, -1), (3, 3)]
    windows = sum(one == "sliding_attention" for one in getattr(encoder.net.config, "layer_types", None) or ())
    assert sum(near != (-1, -1) for near in seen) == windows
    assert float((hidden - wanted).abs().max()) < 2e-6 * max(1, float(wanted.abs().max()))
    assert furthest(grads, wanted_grads) < 1e-5


def test_the_call_has_the_keywords_that_torch_has() -> None:
    import inspect

    from torch.nn.attention.varlen import varlen_attn

    inspect.signature(varlen_attn).bind(*range(7), scale=1.0, window_size=(-1, -1))


@pytest.mark.slow(0.5)
def test_nested_draws_dropout_and_its_mean_is_attention_without() -> None:
    torch.manual_seed(0)
    lengths = torch.tensor([7, 3, 1])
    offsets = Offsets.of(lengths, lengths.numpy())
    q, k, v = (torch.randn(11, 2, 8, requires_grad=True) for _ in range(3))
    wanted = attention(q, k, v, About(offsets.wide, 0.3))
    assert torch.allclose(packed.nested_attention(q, k, v, offsets, 0.3, 0.0), wanted, atol=1e-6)
    often = lengths.repeat(150)  # as many sequences in one call, each with masks of its own
    many, rows = Offsets.of(often, often.numpy()), [x.repeat(150, 1, 1) for x in (q, k, v)]
    drawn = torch.cat([packed.nested_attention(*rows, many, 0.3, 0.2).view(150, *q.shape) for _ in range(20)])
    assert not torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[150])  # of the next call
    error = (drawn.mean(0) - wanted).abs() / (drawn.std(0) / 3000**0.5 + 1e-6)
    assert float(error.max()) < 6
    drawn[0].sum().backward()
    assert all(x.grad is not None and bool(x.grad.isfinite().all()) for x in (q, k, v))


@pytest.mark.parametrize(
    ("changed", "backend", "why"),
    [
        ({}, "varlen", ""),
        ({"dtype": torch.float16}, "varlen", ""),
        ({"window": True}, "varlen", ""),
        ({"dropout": True}, "nested", ""),
        ({"dtype": torch.float32}, "nested", ""),
        ({"dtype": torch.float16, "capability": (7, 5)}, "nested", ""),
        ({"dropout": True, "window": True}, "groups", "no kernel supports a window with dropout"),
        ({"dtype": torch.float32, "window": True}, "groups", "no kernel supports a window in fp32"),
        ({"bias": True}, "groups", "no kernel supports a position bias"),
        ({"size": 20}, "groups", "no kernel supports a head size of 20 (multiples of 8 up to 256)"),
        ({"capability": (7, 5)}, "groups", "this GPU has no kernel for bf16"),
        ({"device": "cpu"}, "groups", ""),
        ({"device": "mps"}, "groups", ""),
    ],
)
def test_who_takes_a_call(changed: dict[str, Any], backend: str, why: str) -> None:
    assert choose(replace(GPU, **changed)) == Choice(backend, why)  # type: ignore[arg-type]


def test_an_encoder_says_which_back_ends_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "capability_of", lambda _: (8, 0))
    there, half = torch.device("cuda"), torch.bfloat16
    assert describe(small_config("bert"), there, half) == {"training": "varlen", "evaluation": "varlen"}
    assert describe(small_config("bert", dropout=0.1), there, half) == {"training": "nested", "evaluation": "varlen"}
    assert describe(small_config("modernbert", dropout=0.1), there, half) == {
        "training": "nested, groups", "evaluation": "varlen", "why": "no kernel supports a window with dropout",
    }  # fmt: skip
    assert describe(small_config("amos"), there, half) == {
        "training": "groups", "evaluation": "groups", "why": "no kernel supports a position bias",
    }  # fmt: skip
    assert describe(small_config("bert"), torch.device("cpu"), torch.float32) == {
        "training": "groups", "evaluation": "groups",
    }  # fmt: skip


def test_heads_that_share_keys_and_values_are_packed_too() -> None:
    more = {"num_key_value_heads": 1}
    hidden, grads, _ = pass_through(small_encoder("eurobert", "packed", **more), "packed")
    wanted, wanted_grads, _ = pass_through(small_encoder("eurobert", "padded", **more), "padded")
    assert float(wanted.abs().max()) > 0.1
    assert float((hidden - wanted).abs().max()) < 1e-6 * max(1, float(wanted.abs().max()))
    assert furthest(grads, wanted_grads) < 1e-5


def test_autocast_reaches_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rotary positions leave single precision behind; torch's own attention lowers it by itself, a kernel does not."""
    seen = []

    def kernel(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        seen.append({query.dtype, key.dtype, value.dtype})
        return value

    monkeypatch.setattr(packed.varlen, "varlen_attn", kernel)
    with forced(monkeypatch, "varlen"), torch.autocast("cpu", torch.bfloat16):
        x, offsets = torch.randn(1, 2, 4, 8), Offsets(torch.tensor([4]), 4, 4)
        packed.packed_attention(torch.nn.Identity(), x, x, x.bfloat16(), None, groups=[], offsets=offsets)
    assert seen == [{torch.bfloat16}]


@pytest.mark.parametrize("near", [(-1, -1), (2, 2)])
def test_the_gradient_of_the_reference_is_that_of_autograd(near: tuple[int, int]) -> None:
    """The pretend GPU computes with it."""
    torch.manual_seed(0)
    about = About(torch.tensor([0, 7, 10, 11]), 0.3, near, 0.2, 5)
    q, k, v = (torch.randn(11, 2, 8, requires_grad=True) for _ in range(3))
    grad = torch.randn(11, 2, 8)
    wanted = torch.autograd.grad(attention(q, k, v, about), (q, k, v), grad)
    for one, other in zip(gradient(grad, q.detach(), k.detach(), v.detach(), about), wanted, strict=True):
        assert torch.allclose(one, other, atol=1e-6)
