"""Word embeddings that passes share."""

import torch

from encodery.models.perturb import Words
from tests.methods.attacks import bench
from tests.toolbox.models import gradients, small_encoder


def test_shared_words_give_the_same_gradient_and_write_it_once() -> None:
    made = bench("roberta", "packed")
    model, batch = made.model, made.micro[0]
    table = model.encoder.net.get_input_embeddings().weight
    delta = torch.randn(*batch.inputs["input_ids"].shape, 16) * 0.1
    model.zero_grad()
    for factor in (1.0, 2.0):
        with model.encoder.perturbed(delta * factor):
            model(batch)[1]["t", "loss"].backward()
    wanted = gradients(model)
    model.zero_grad()
    words = Words()
    for factor in (1.0, 2.0):
        with model.encoder.perturbed(delta * factor, words=words):
            model(batch)[1]["t", "loss"].backward()
        assert table.grad is None
    words.settle()
    got = gradients(model)
    assert wanted.keys() == got.keys()
    assert all(torch.allclose(got[name], wanted[name], atol=1e-6) for name in wanted)


def test_other_ids_are_other_words() -> None:
    """A generator may sample other tokens in the next pass."""
    table = small_encoder().net.get_input_embeddings()
    words, ids = Words(), torch.tensor([[3, 4]])
    first = words.leaf(ids, table(ids))
    assert words.leaf(ids.clone(), table(ids)) is first
    assert words.leaf(ids + 1, table(ids + 1)) is not first
    frozen = table(ids).detach()
    assert words.leaf(ids, frozen) is frozen
