"""AMOS's details that are easy to overlook (P25-P36): where gradients go, what is mixed, what is shared."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from encodery.models.model import Model
from encodery.objectives._masking import mask
from encodery.objectives._mixture import noise_of
from tests.helpers import furthest, gradients
from tests.objectives.pretraining import TOKENS, asked, batch_of, text_table

LENGTHS = [9, 30, 4, 17, 30]
DEEP = {"readouts": [1, 2, 3]}


def amos(options: dict[str, Any] | None = None, **of_trunk: Any) -> Model:
    """A model in float64 with a mixture that prefers some readouts."""
    model = asked("amos", DEEP | (options or {}), **of_trunk).double()
    torch.manual_seed(1)
    with torch.no_grad():
        if (mixture := model.question("t").mixture) is not None:
            mixture.copy_(torch.randn_like(mixture))
        for name, parameter in model.question("t").named_parameters():
            if "head" in name or "detect" in name:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


# The whole objective once more, in plain autograd: with one-hot samples, a product with all words, all logits at once


def hidden_states(net: Any, batch: Any, ids: Tensor, depths: list[int], stop: bool) -> list[Tensor]:
    """Hidden states after some layers, layer by layer; rows layout."""
    bias = (1.0 - batch.inputs["attention_mask"][:, None, None].double()) * -1e30
    x = net.embeddings(input_ids=ids, token_type_ids=batch.inputs["token_type_ids"])
    x = net.embeddings_project(x) if hasattr(net, "embeddings_project") else x
    found = []
    for depth, layer in enumerate(net.encoder.layer, start=1):
        x = layer(x, bias)
        if depth in depths:
            found.append(x)
            x = x.detach() if stop else x
    return found


def written_out(model: Model, batch: Any) -> dict[str, Tensor]:
    """All loss terms as sums."""
    question = model.question("t")
    options, known, generator = question.options, question.known, question.generator
    masked = mask(batch, options.masking, known)
    states = hidden_states(generator.encoder.net, batch, masked.ids, question.readouts, options.stop_gradients)
    features = [state.flatten(0, 1)[masked.cells] for state in states]
    words = model.encoder.net.get_input_embeddings().weight
    logits = [generator.head(f) @ words.T + generator.head.bias for f in features]
    seen = [f.detach() if options.mixture_detach_features else f for f in features]
    alpha = torch.stack([f @ question.mixture for f in seen], 1).softmax(1)
    z = sum(alpha[:, k, None] * one.detach() for k, one in enumerate(logits))
    z = z.index_fill(1, torch.tensor([known.mask_id]), float("-inf"))
    gumbel = -noise_of(batch, masked).exponential(slice(None), TOKENS).double().log()
    soft = ((z + gumbel) / options.temperature).softmax(1)
    hard = F.one_hot(soft.argmax(1), TOKENS).double()
    sample = Reverse.apply(hard + soft - soft.detach(), options.reversal)
    fake = batch.inputs["input_ids"].flatten().clone()
    fake[masked.cells] = soft.argmax(1)
    rows = words[fake].index_put((masked.cells,), sample @ words)
    fake = fake.view_as(masked.ids)
    hidden = model.encoder.net(
        **{**batch.inputs, "input_ids": None}, inputs_embeds=rows.view(*fake.shape, -1)
    ).last_hidden_state
    label = (fake != batch.inputs["input_ids"]).double()[batch.layout.mask]
    found = F.binary_cross_entropy_with_logits(question.detect(hidden[batch.layout.mask]), label, reduction="sum")
    terms = {"discriminator": 50 * found}
    for depth, one in zip(question.readouts, logits, strict=True):
        terms[f"mlm_{depth}"] = F.cross_entropy(one, masked.truth, reduction="sum")
    return terms


class Reverse(torch.autograd.Function):
    """The gradient of a sample times a factor; that of the words it is multiplied with stays."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad * ctx.factor, None


def moved(model: Model) -> dict[str, Tensor]:
    """The gradients that are not exactly zero."""
    return {name: grad for name, grad in gradients(model).items() if grad.any()}


@pytest.mark.parametrize(
    "options",
    [{}, {"stop_gradients": False, "reversal": 0.5, "temperature": 1.0}, {"mixture_detach_features": True}],
    ids=str,
)
def test_every_gradient_of_every_term_equals_plain_autograd(options: dict[str, Any]) -> None:
    model = amos(options, layout="rows")
    batch = batch_of(model, text_table(LENGTHS))
    theirs = written_out(model, batch)
    for name, term in theirs.items():
        term.backward(retain_graph=True)
        wanted = moved(model)
        model.zero_grad()
        mine = model(batch)[1]["t", name]
        mine.backward()
        assert float(mine.detach()) == pytest.approx(float(term.detach()), rel=1e-12)
        found = moved(model)
        assert found.keys() == wanted.keys(), name
        assert furthest(found, wanted) < 1e-10, name
        model.zero_grad()
