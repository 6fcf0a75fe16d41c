"""Loss, gradient and samples from a few rows of logits at a time equal those from all of them."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from encodery.objectives.parts import vocabulary_loss
from encodery.objectives.parts.vocabulary_loss import Sampler, divergence, draw, read_vocabulary


def made(
    rows: int, width: int, vocabulary: int, seed: int = 0, dtype: torch.dtype = torch.float64
) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    sizes = [(rows, width), (vocabulary, width), (vocabulary,)]
    found = [torch.randn(*size, generator=generator, dtype=dtype).requires_grad_() for size in sizes]
    return [*found, torch.randint(vocabulary, (rows,), generator=generator)]


@pytest.mark.slow
@given(rows=st.integers(1, 20), vocabulary=st.integers(2, 700), seed=st.integers(0, 99))
def test_loss_and_gradient_equal_cross_entropy_on_all_logits(rows: int, vocabulary: int, seed: int) -> None:
    v, w, b, truth = made(rows, 5, vocabulary, seed)
    weights = torch.rand(rows, dtype=torch.float64) if seed % 2 else None
    wanted = F.cross_entropy(F.linear(v, w, b), truth, reduction="none")
    wanted = (wanted * (1 if weights is None else weights)).sum()
    grads = torch.autograd.grad(wanted * 3, (v, w, b))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vocabulary_loss, "CELLS", 7 * vocabulary)
        found = read_vocabulary(v, w, b, truth, weights)
    torch.testing.assert_close(found.loss, wanted)
    for one, other in zip(torch.autograd.grad(found.loss * 3, (v, w, b)), grads, strict=True):
        torch.testing.assert_close(one, other)
    assert torch.equal(found.best, F.linear(v, w, b).argmax(1))


def test_nothing_is_kept_for_a_gradient_that_nobody_wants() -> None:
    v, w, b, truth = made(4, 5, 30)
    with torch.no_grad():
        found = read_vocabulary(v, w, b, truth)
    assert not found.loss.requires_grad
    torch.testing.assert_close(found.nll.sum(), found.loss)


@pytest.mark.slow
@pytest.mark.parametrize(("temperature", "vocabulary"), [(2.0, 300), (1.0, 600)])
def test_P11_samples_follow_the_softmax(temperature: float, vocabulary: int) -> None:
    n = 100_000
    v, w, b, _ = made(1, 5, vocabulary, 3, torch.float32)
    logits = F.linear(v, w * 0.5, b)[0].detach()
    logits[7] = 30.0  # the mask token, likely above all: it must not come
    p = (logits / temperature).clone()
    p[7] = -torch.inf
    p = p.softmax(0).double().numpy()
    uniform = torch.rand(n, generator=torch.Generator().manual_seed(1))
    sampler = Sampler(uniform, 7, temperature)
    rows = torch.eye(1, dtype=torch.float32).expand(n, 1).contiguous()
    found = read_vocabulary(
        rows, logits[:, None], torch.zeros(vocabulary), torch.zeros(n, dtype=torch.long), None, sampler
    ).sample
    counts = np.bincount(found.numpy(), minlength=vocabulary)
    assert counts[7] == 0
    often = p * n >= 5
    chi = ((counts[often] - p[often] * n) ** 2 / (p[often] * n)).sum()
    degrees = often.sum() - 1
    assert chi < degrees + 4 * np.sqrt(2 * degrees)
    assert counts.max() < 0.99 * n  # greedy would fail


def test_draws_keep_to_tokens_with_weight() -> None:
    weights = torch.zeros(6, 1000)
    for row, token in enumerate((0, 255, 256, 767, 768, 999)):
        weights[row, token] = 1e-3
    for u in (0.0, 0.5, 1.0):
        found = draw(weights, torch.full((6,), u), forbidden=5)
        assert found.tolist() == [0, 255, 256, 767, 768, 999]


def test_the_true_token_can_be_ruled_out() -> None:
    v, w, b, truth = made(300, 5, 40, dtype=torch.float32)
    uniform = torch.rand(300, generator=torch.Generator().manual_seed(0))
    plain = read_vocabulary(v, w, b, truth, None, Sampler(uniform, 39)).sample
    without = read_vocabulary(v, w, b, truth, None, Sampler(uniform, 39, disallow_correct=True)).sample
    assert (plain == truth).any()
    assert not (without == truth).any()


def test_P12_sampling_is_float32_under_autocast() -> None:
    v, w, b, truth = made(50, 8, 500, dtype=torch.float32)
    uniform = torch.rand(50, generator=torch.Generator().manual_seed(0))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = read_vocabulary(v.bfloat16(), w, b, truth, None, Sampler(uniform, 3))
    assert found.nll.dtype == found.loss.dtype == torch.float32
    logits = torch.addmm(b.bfloat16(), v.bfloat16(), w.bfloat16().t()).float()
    wanted = draw((logits - logits.amax(1, keepdim=True)).exp(), uniform, 3)
    assert torch.equal(found.sample, wanted)
    found.loss.backward()
    assert v.grad is not None
    assert w.grad is not None


def test_divergence_is_that_of_the_softmaxes() -> None:
    v, w, b, _ = made(9, 5, 33)
    other = v.detach() + 0.3
    x, y = (F.linear(z, w, b).log_softmax(1) for z in (v, other))
    wanted = (x.exp() * (x - y)).sum(1) + (y.exp() * (y - x)).sum(1)
    found = divergence(v, other, w, b)
    torch.testing.assert_close(found, wanted)
    grads = [torch.autograd.grad(z.sum(), (v, w), retain_graph=True) for z in (found, wanted)]
    for one, two in zip(*grads, strict=True):
        torch.testing.assert_close(one, two)
