"""FreeLB shares work between its passes; a FreeLB that shares nothing gives the same gradients."""

import pytest
import torch
from torch import Tensor

from encodery.methods.freelb import FreeLB
from tests.methods.attacks import PLACES, Bench, Gradients, bench
from tests.toolbox.layouts import spread
from tests.toolbox.models import furthest, gradients


def written_out(made: Bench, method: FreeLB) -> Gradients:
    """As the paper has it: each pass looks its words up again and writes its own gradient."""
    model, (batch,) = made.model.train(), made.micro
    model.zero_grad(set_to_none=True)
    layout = batch.layout
    delta = layout.from_tokens(method.space(model, batch).draw(method.init_mag))

    def sizes(values: Tensor) -> Tensor:
        return spread(layout, batch.per_sequence(values.double().square().sum(2), "sum").sqrt())[..., None]

    for k in range(method.steps):
        here = delta.detach().requires_grad_()
        words = model.encoder.net.get_input_embeddings()
        hook = words.register_forward_hook(lambda *given, here=here: given[2] + here)
        loss = sum(model(batch)[1].values()) / len(batch) / method.steps
        hook.remove()
        loss.backward()
        if k + 1 < method.steps:
            assert here.grad is not None
            moved = here.detach().double() + method.adv_lr * here.grad / sizes(here.grad).clamp(min=1e-30)
            assert method.max_norm
            delta = (moved * (method.max_norm / sizes(moved).clamp(min=1e-30)).clamp(max=1)).float()
    return gradients(model)


@pytest.mark.parametrize(("kind", "layout"), PLACES)
def test_B6_freelb_equals_one_that_shares_nothing(kind: str, layout: str) -> None:
    made = bench(kind, layout)
    method = FreeLB(steps=3, adv_lr=0.2, init_mag=0.1, max_norm=0.25)
    expected = written_out(made, method)
    assert furthest(made.step(method)[0], expected) < 1e-5
    assert furthest(made.step(FreeLB(steps=3, adv_lr=0.0, init_mag=0.1))[0], expected) > 1e-4  # the ascents matter
    assert torch.isfinite(next(iter(expected.values()))).all()
