"""Attention with dropout, and in half precision, equals the written-out formula, and so do its gradients."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from encodery.models.kernels.attention import attend_in_half, attend_with_dropout
from encodery.models.kernels.dropout import draw


@pytest.mark.slow
@given(
    n=st.integers(1, 3), heads=st.integers(1, 3), length=st.integers(1, 9), rate=st.sampled_from([0.0, 0.1, 0.5, 0.9]),
    kind=st.sampled_from(["none", "padding", "window"]), seed=st.integers(0, 99),
    dtype=st.sampled_from([torch.float64, torch.bfloat16, torch.float16]),
)  # fmt: skip
def test_values_and_gradients_are_those_of_the_formula(
    n: int, heads: int, length: int, rate: float, kind: str, seed: int, dtype: torch.dtype
) -> None:
    """In half precision too, up to 3 % of the largest number: several roundings of 1 / 256 each."""
    generator = torch.Generator().manual_seed(seed)
    q, k, v, g = (torch.randn(n, length, heads, 4, generator=generator, dtype=torch.float64) for _ in range(4))
    q, k, v, g = (x.transpose(1, 2).to(dtype) for x in (q, k, v, g))
    given = [x.detach().clone().requires_grad_() for x in (q, k, v)]
    q, k, v = (x.double().requires_grad_() for x in (q, k, v))
    attend = attend_with_dropout if dtype == torch.float64 else attend_in_half
    rate = rate or (0.1 if dtype == torch.float64 else 0.0)  # which torch's own kernel does
    place = torch.arange(length)
    mask = {
        "none": None,
        "padding": (place < torch.randint(1, length + 1, (n, 1), generator=generator))[:, None, None],
        "window": ((place[:, None] - place).abs() < 3)[None, None],
    }[kind]
    torch.manual_seed(seed)
    found = attend(*given, mask, rate, 0.7)
    scores = q @ k.transpose(2, 3) * 0.7
    weights = (scores if mask is None else scores.masked_fill(~mask, -torch.inf)).softmax(-1)
    torch.manual_seed(seed)
    drawn, cut, factor = draw(weights.flatten(0, 1), rate)
    kept = (drawn >= cut).view_as(weights) * factor if rate else 1.0
    wanted = (weights * kept) @ v

    def require_near(one: torch.Tensor, two: torch.Tensor) -> None:
        near = {} if dtype == torch.float64 else {"rtol": 0.0, "atol": 0.03 * max(1.0, float(two.abs().max()))}
        torch.testing.assert_close(one.double(), two, **near)

    require_near(found, wanted)
    ours, theirs = torch.autograd.grad(found, given, g), torch.autograd.grad(wanted, (q, k, v), g.double())
    for one, two in zip(ours, theirs, strict=True):
        require_near(one, two)


def test_one_number_a_pair_is_kept() -> None:
    q = torch.randn(2, 3, 50, 8, requires_grad=True)
    kept: dict[int, int] = {}

    def pack(x: torch.Tensor) -> torch.Tensor:
        kept[x.data_ptr()] = x.numel()
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        attend_with_dropout(q, q, q, None, 0.1, 1.0)
    assert sum(kept.values()) <= 2 * 3 * (50 * 50 + 4 * 50 * 8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dropped_weights_do_not_come_back_as_negative_zeros(dtype: torch.dtype) -> None:
    """A weight that underflows is kept or dropped like any other: nothing is negative, nothing is NaN."""
    q = torch.tensor([[[[200.0], [-200.0]]]], dtype=dtype, requires_grad=True)
    torch.manual_seed(0)
    out = attend_with_dropout(q, q, torch.ones_like(q), None, 0.5, 1.0)
    out.sum().backward()
    assert ((out == 0) | (out == 2)).all()
    assert torch.isfinite(q.grad).all()  # type: ignore[arg-type]
