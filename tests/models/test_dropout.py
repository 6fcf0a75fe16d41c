"""Our dropout does what torch's does."""

from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from encodery.models.kernels.dropout import Draws, Dropout, cheaper, dropout


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rate", [0.001, 0.1, 0.5, 0.9])
def test_rate_scale_and_gradient(rate: float, dtype: torch.dtype) -> None:
    """In half precision too, in which the numbers that are drawn could not be told apart."""
    torch.manual_seed(1)
    x = torch.ones(2001, 999, dtype=dtype, requires_grad=True)
    y = dropout(x, rate)
    dropped = float((y == 0).float().mean())
    sd = (rate * (1 - rate) / x.numel()) ** 0.5
    assert abs(dropped - rate) < 5 * sd + 1 / 65536
    kept = y[y != 0].detach()
    assert torch.equal(kept, kept[0].expand_as(kept))
    assert float(kept[0]) == pytest.approx(1 / (1 - rate), rel=2e-4 if dtype == torch.float32 else 4e-3)
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())


def test_neighbours_are_dropped_independently() -> None:
    """Four values share 64 drawn bits."""
    torch.manual_seed(2)
    zero = (dropout(torch.ones(400_000), 0.3) == 0).double().view(-1, 4)
    correlation = torch.corrcoef(zero.T) - torch.eye(4, dtype=torch.float64)
    assert float(correlation.abs().max()) < 0.02


def test_the_same_seed_gives_the_same_mask_and_another_another() -> None:
    masks = []
    for seed in (3, 3, 4):
        torch.default_generator.manual_seed(seed)
        masks.append(dropout(torch.ones(5, 7, dtype=torch.float64), 0.5))
    assert torch.equal(masks[0], masks[1])
    assert not torch.equal(masks[0], masks[2])


def test_it_stands_wherever_torchs_stood_and_rests_in_evaluation() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Dropout(0.2)), nn.Dropout(0.0))
    cheaper(net)
    assert [type(m) for m in net.modules() if isinstance(m, nn.Dropout)] == [Dropout, Dropout]
    assert [m.p for m in net.modules() if isinstance(m, nn.Dropout)] == [0.2, 0.0]
    x = torch.ones(64, 2)
    assert not torch.equal(net[1](x), x)
    assert torch.equal(net[2](x), x)
    assert torch.equal(net.eval()[1](x), x)


def passes(sharing: bool) -> list[torch.Tensor]:
    """Three passes with one seed through our dropout and torch's in turn, and what is drawn after each."""
    draws, found = Draws(), []
    for _ in range(3):
        torch.default_generator.manual_seed(5)
        with draws.shared() if sharing else nullcontext():
            found += [dropout(torch.ones(7, 3), 0.4), F.dropout(torch.ones(9), 0.5), dropout(torch.ones(2, 2, 5), 0.1)]
        found.append(torch.rand(3))
    return found


def test_shared_draws_change_nothing_but_the_work() -> None:
    """Others draw from the same generator: it must stand where it would stand."""
    shared = passes(sharing=True)
    assert all(torch.equal(a, b) for a, b in zip(shared, passes(sharing=False), strict=True))
    assert all(torch.equal(a, b) for a, b in zip(shared, shared[4:] + shared[:4], strict=True))


def test_shared_draws_are_refused_by_another_shape_and_forgotten_outside() -> None:
    draws = Draws()
    with draws.shared():
        first = dropout(torch.ones(50), 0.5)
    assert not torch.equal(first, dropout(torch.ones(50), 0.5))
    with pytest.raises(RuntimeError, match="earlier pass"), draws.shared():
        dropout(torch.ones(51), 0.5)
    assert not torch.equal(first, dropout(torch.ones(50), 0.5))
