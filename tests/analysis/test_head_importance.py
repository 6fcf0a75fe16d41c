"""Head importance: equal to the definition, one by one and in batches, in both layouts, for every architecture."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModel

from encodery.analysis.head_importance import HeadOptions, importances, of_gates, of_weights, total_loss
from encodery.core.rank_correlation import correlations
from encodery.data.batches import Batch
from encodery.errors import UserError
from encodery.models import attention_heads, packed
from encodery.models.encoder import Encoder
from encodery.models.model import Model
from encodery.objectives.ranking import Ranking
from encodery.objectives.tagging import Tagging
from encodery.runs.head_matrices import by_layer, flat, normalised
from tests.analysis.gates import gated
from tests.toolbox.models import batcher_for, gradients, random_table, small_config, small_encoder, small_model

KINDS = ["bert", "roberta", "xlm-roberta", "electra", "albert", "distilbert", "deberta", "deberta-v2", "modernbert"]
DEBERTA = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_biased_input": False}
BOTH = [(kind, layout) for kind in KINDS for layout in ("packed", "rows") if layout == "rows" or kind in packed.PROVEN]
LENGTHS = [17, 9, 5, 12, 9, 2]
MASK = HeadOptions()


def encoder_of(kind: str, layout: str = "auto", fresh: bool = False, **more: Any) -> Encoder:
    """A tiny one of any kind; fresh: with the small weights of a new model, whose loss is nearly straight."""
    more = {**(DEBERTA if kind == "deberta" else {}), **more}
    if not fresh:
        return small_encoder(kind, layout, **more)
    torch.manual_seed(0)
    return Encoder(AutoModel.from_config(small_config(kind, **more)), layout)


def model_of(kind: str, layout: str = "auto", **more: Any) -> Model:
    return small_model(encoder_of(kind, layout, **more)).eval()


def batch_of(model: Model, lengths: list[int] = LENGTHS, rows: list[int] | None = None) -> Batch:
    table = random_table(lengths)
    return batcher_for(model.encoder).batch(table, np.array(rows or range(len(lengths))), "t", 0)


@contextmanager
def ones(model: Model, batch: Batch) -> Iterator[torch.Tensor]:
    """Gates that ask for their gradient."""
    weight = next(model.parameters())
    shape = (len(batch), attention_heads.rows_of(model.encoder), attention_heads.heads_of(model.encoder))
    found = torch.ones(shape, dtype=weight.dtype, requires_grad=True)
    with gated(model.encoder, batch, found):
        yield found


@pytest.mark.parametrize(("kind", "layout"), BOTH)
def test_G1_G2_G4_G5_ones_change_no_bit_and_many_are_as_one_by_one(kind: str, layout: str) -> None:
    model, table = model_of(kind, layout), random_table(LENGTHS)
    batch = batch_of(model)
    plain = model.outputs(batch)["logits"]
    with ones(model, batch) as gate:
        gated = model.outputs(batch)["logits"]
        loss = total_loss(model, batch)
    assert torch.equal(plain, gated)
    (wanted,) = torch.autograd.grad(loss, gate)
    found = of_gates(model, batch)
    assert float((found - wanted).abs().max()) < 1e-6 * float(wanted.abs().max())
    assert not model.encoder.net._forward_hooks
    assert torch.equal(model.outputs(batch)["logits"], plain)
    alone = np.stack([of_gates(model, batch_of(model, rows=[i]))[0].abs().numpy() for i in range(len(LENGTHS))])
    for size, budget in ((6, 1 << 30), (4, 24)):
        many = importances(model, table, batcher_for(model.encoder, budget=budget), "t", MASK, batch_size=size)
        assert many.shape == (len(LENGTHS), 2, 2)
        assert np.abs(many - alone).max() < 1e-5 * alone.max()


@pytest.mark.parametrize("kind", KINDS)
def test_G3_G14_the_gradient_is_that_of_finite_differences(kind: str) -> None:
    model = model_of(kind, fresh=True).double()
    batch = batch_of(model, [9, 5])
    found = of_gates(model, batch)
    step, tolerance = (0.1, 1e-6) if kind == "deberta" else (1e-3, 1e-9)  # DeBERTa's first one has norms in float32
    for place in np.ndindex(*found.shape):
        with torch.no_grad(), ones(model, batch) as gate:
            losses = []
            for sign in (1, -1):
                gate[place] += sign * step
                losses.append(float(total_loss(model, batch)))
                gate[place] -= sign * step
        slope = (losses[0] - losses[1]) / (2 * step)
        assert abs(slope - float(found[place])) < tolerance
    assert float((found[:, 0] - found[:, 1]).abs().min()) > 0  # ALBERT too: one module, two rows


def weight_gradients(model: Model, row: int, by_column: bool) -> np.ndarray:
    """As the release computes them: one example, all gradients, mean |∂W| over blocks of the key and value matrices."""
    model.zero_grad()
    total_loss(model, batch_of(model, rows=[row])).backward()
    heads, layers = attention_heads.heads_of(model.encoder), []
    for layer in range(attention_heads.rows_of(model.encoder)):
        found = torch.zeros(heads)
        for part in attention_heads.places_of(model.encoder).parts:
            grad = attention_heads.modules_of(model.encoder, part.module)[layer].weight.grad.abs()
            if part.cut == "qkv":
                grad = grad.unflatten(0, (3, heads, -1))[part.number].flatten(0, 1)
            elif part.cut == "heads":
                grad = grad.unflatten(0, (heads, 3, -1))[:, part.number].flatten(0, 1)
            blocks = grad.unflatten(int(by_column), (heads, -1))
            found += blocks.mean((0, 2) if by_column else (1, 2))
        layers.append(found)
    model.zero_grad()
    return torch.stack(layers).numpy()


@pytest.mark.parametrize("kind", ["bert", "distilbert", "modernbert", "deberta", "deberta-v2"])
@pytest.mark.parametrize("estimator", ["kv_weight", "kv_weight_released"])
def test_the_weight_estimators_are_the_gradients_of_single_examples(kind: str, estimator: str) -> None:
    more = {"share_att_key": False} if kind == "deberta-v2" else {}
    model = model_of(kind, **more)
    wanted = np.stack([weight_gradients(model, i, estimator != "kv_weight") for i in range(len(LENGTHS))])
    options = HeadOptions(estimator=estimator)
    found = importances(model, random_table(LENGTHS), batcher_for(model.encoder), "t", options)
    assert np.abs(found - wanted).max() < 1e-5 * wanted.max()


def test_the_weight_estimators_refuse_a_key_matrix_that_serves_positions_too() -> None:
    model = model_of("deberta-v2")
    with pytest.raises(UserError, match="use mask"):
        of_weights(model, batch_of(model), False)


def tagging_model() -> Model:
    encoder = small_encoder("bert")
    torch.manual_seed(0)
    return Model(encoder, {"t": Tagging(labels=["a", "b", "c"]).build(encoder, None)}).eval()


def test_G6_losses_are_summed_over_examples_and_averaged_over_the_words_of_one() -> None:
    model, table = tagging_model(), random_table(LENGTHS, form="tagging")
    found = importances(model, table, batcher_for(model.encoder), "t", MASK)
    for row in (0, 3):
        batch = batcher_for(model.encoder).batch(table, np.array([row]), "t", 0)
        words = int((batch.targets["tag"] != -100).sum())
        assert words > 1
        wanted = (of_gates(model, batch)[0] / words).abs().numpy()
        assert np.abs(found[row] - wanted).max() < 1e-5 * found.max()


def test_candidates_of_one_example_are_one_loss() -> None:
    encoder = small_encoder("bert")
    torch.manual_seed(0)
    model = Model(encoder, {"t": Ranking().build(encoder, None)}).eval()
    table = random_table([9, 7, 5, 8], form="ranking")
    table.__dict__.update(example=np.array([0, 0, 1, 1]), example_ids=["x", "y"])
    found = importances(model, table, batcher_for(encoder), "t", MASK)
    both = of_gates(model, batcher_for(encoder).batch(table, np.array([0, 1]), "t", 0)).sum(0).abs().numpy()
    assert found.shape == (2, 2, 2)
    assert np.abs(found[0] - both).max() < 1e-5 * both.max()
    with pytest.raises(UserError, match="one sequence each"):
        importances(model, table, batcher_for(encoder), "t", HeadOptions(estimator="kv_weight"))


def test_G7_a_head_that_nobody_reads_is_worth_nothing() -> None:
    model = model_of("bert")
    size = model.encoder.width // 2
    with torch.no_grad():
        attention_heads.modules_of(model.encoder, "attention.output.dense")[1].weight[:, :size] = 0
    batch = batch_of(model)
    loss = total_loss(model, batch).detach()
    for found in (of_gates(model, batch), of_weights(model, batch, False)):
        assert float(found[:, 1, 0].abs().max()) == 0
        assert float(found[:, 1, 1].abs().min()) > 0
    assert float(of_weights(model, batch, True)[:, 1, 0].min()) > 0  # the released cut does not see heads
    with attention_heads.without(model.encoder, [(1, 0)]):
        assert torch.equal(total_loss(model, batch).detach(), loss)
    with attention_heads.without(model.encoder, [(1, 1)]):
        assert not torch.equal(total_loss(model, batch).detach(), loss)


def swap_heads(model: Model, layer: int) -> None:
    """The same function with two heads in each other's place."""
    inner = model.encoder.net.encoder.layer[layer].attention
    size = model.encoder.width // 2
    with torch.no_grad():
        for module in (inner.self.query, inner.self.key, inner.self.value):
            module.weight.copy_(torch.cat([module.weight[size:], module.weight[:size]]))
            module.bias.copy_(torch.cat([module.bias[size:], module.bias[:size]]))
        out = inner.output.dense.weight
        out.copy_(torch.cat([out[:, size:], out[:, :size]], 1))


def test_G8_importance_follows_its_head_but_not_in_the_released_cut() -> None:
    model = model_of("bert").double()
    batch = batch_of(model)
    before = [of_gates(model, batch), of_weights(model, batch, False), of_weights(model, batch, True)]
    swap_heads(model, 1)
    after = [of_gates(model, batch), of_weights(model, batch, False), of_weights(model, batch, True)]
    for old, new in zip(before[:2], after[:2], strict=True):
        assert float((old[:, 1].flip(-1) - new[:, 1]).abs().max()) < 1e-10 * float(old.abs().max())
        assert float((old[:, 0] - new[:, 0]).abs().max()) < 1e-10 * float(old.abs().max())
    assert float((before[2] - after[2]).abs().max()) < 1e-10 * float(before[2].abs().max())


def test_G9_a_larger_loss_changes_the_size_and_not_the_ranking(monkeypatch: pytest.MonkeyPatch) -> None:
    model, table = model_of("bert"), random_table(LENGTHS)
    one = importances(model, table, batcher_for(model.encoder), "t", MASK)
    question = model.objective("t")
    losses = question.losses
    monkeypatch.setattr(question, "losses", lambda o, b: {k: 3 * v for k, v in losses(o, b).items()})
    three = importances(model, table, batcher_for(model.encoder), "t", MASK)
    assert np.allclose(three, 3 * one, rtol=1e-5)
    assert np.allclose(normalised(three.mean(0)), normalised(one.mean(0)), rtol=1e-5)


def test_G11_G12_the_task_is_the_mean_of_raw_matrices_in_any_order() -> None:
    model = model_of("bert")
    raw = importances(model, random_table(LENGTHS), batcher_for(model.encoder), "t", MASK).astype(float)
    signed = of_gates(model, batch_of(model)).double().numpy()
    task = normalised(raw.mean(0))
    assert np.abs(task - normalised(np.abs(signed.mean(0)))).max() > 1e-3
    assert np.abs(task - normalised(raw).mean(0)).max() > 1e-3
    rows = [3, 1, 5, 0, 2, 4]
    table = random_table(LENGTHS)
    order = np.concatenate([np.arange(table.starts[i], table.starts[i + 1]) for i in rows])
    lengths = np.array(LENGTHS)[rows]
    table.__dict__.update(
        ids=table.ids[order], types=table.types[order], starts=np.concatenate([[0], np.cumsum(lengths)]),
        targets={"label": table.targets["label"][rows]},
    )  # fmt: skip
    shuffled = importances(model, table, batcher_for(model.encoder), "t", MASK)
    assert np.allclose(shuffled, raw[rows], rtol=1e-4, atol=1e-7)
    assert np.abs(normalised(shuffled.mean(0)) - task).max() < 1e-5


def test_G13_a_pass_leaves_no_trace_and_gives_the_same_again() -> None:
    model = small_model(small_encoder("bert", dropout=0.3))
    total_loss(model.train(), batch_of(model)).backward()
    before, asking = gradients(model), [p.requires_grad for p in model.parameters()]
    found = [importances(model, random_table(LENGTHS), batcher_for(model.encoder), "t", MASK) for _ in range(2)]
    assert (found[0] == found[1]).all()
    assert model.training
    assert all(torch.equal(before[name], grad) for name, grad in gradients(model).items())
    assert asking == [p.requires_grad for p in model.parameters()]
    noisy = [
        importances(model, random_table(LENGTHS), batcher_for(model.encoder), "t", HeadOptions(dropout=True, seed=s))
        for s in (1, 1, 2)
    ]
    assert (noisy[0] == noisy[1]).all()
    assert (noisy[0] != noisy[2]).any()
    assert (noisy[0] != found[0]).any()


def test_G15_checkpointing_and_kernels_change_nothing() -> None:
    model, table = model_of("bert", "rows"), random_table(LENGTHS)
    found = importances(model, table, batcher_for(model.encoder), "t", MASK)
    model.encoder.net.set_attn_implementation("eager")
    eager = importances(model, table, batcher_for(model.encoder), "t", MASK)
    assert np.abs(eager - found).max() < 1e-5 * found.max()
    model.encoder.net.gradient_checkpointing_enable({"use_reentrant": False})
    model.encoder.train()
    again = importances(model, table, batcher_for(model.encoder), "t", MASK)
    assert (again == eager).all()
    assert attention_heads.checkpointing(model.encoder)


def test_G10_layers_sum_to_one_and_the_whole_lies_in_0_1() -> None:
    raw = np.random.default_rng(0).random((5, 3, 4))
    raw[0, 1] = 0
    layers = by_layer(raw, "l1")
    assert np.allclose(layers.sum(-1), 1)
    assert (layers[0, 1] == 0.25).all()
    assert np.allclose(np.linalg.norm(by_layer(raw, "l2")[1:], axis=-1), 1)
    whole = normalised(raw)
    assert (whole.min((1, 2)) == 0).all()
    assert (whole.max((1, 2)) == 1).all()
    assert np.allclose(correlations(flat(whole), flat(whole)), correlations(flat(layers), flat(layers)))


def test_unknown_encoders_and_heads_are_refused() -> None:
    model = model_of("convbert")
    with pytest.raises(UserError, match="the attention heads of convbert cannot be reached"):
        of_gates(model, batch_of(model))
    encoder = small_encoder("bert")
    with pytest.raises(UserError, match=r"there is no 2\.0: layers 0 to 1"), attention_heads.without(encoder, [(2, 0)]):
        pass
    with pytest.raises(UserError, match=r"is not layer\.head"):
        attention_heads.parse("3")
    assert attention_heads.parse("3.4,5.0") == [(3, 4), (5, 0)]
    with (
        pytest.raises(ValueError, match="gates"),
        gated(encoder, batch_of(model_of("bert")), torch.ones(1, 2, 2)),
    ):
        pass
