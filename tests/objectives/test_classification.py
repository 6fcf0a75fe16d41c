"""The loss is the formula, written anew here in plain numpy; heads begin as their sources say."""

import json
import math
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from encodery.data.batches import Batch
from encodery.errors import UserError
from encodery.models.model import Model
from encodery.objectives.classification import Classification
from encodery.tasks.base import HIDDEN
from tests.toolbox.models import KINDS, batcher_for, random_table, small_encoder, small_model

LABELS = ["a", "b", "c"]
WEIGHTS = [0.5, 2.0, 1.25]
ENCODER = small_encoder("bert")


def batch_of(labels: Any, form: str = "single") -> Batch:
    table = random_table([4] * len(labels), form=form)
    table.targets["label"] = np.asarray(labels)
    return batcher_for(ENCODER).batch(table, np.arange(len(labels)), "t", 0)


@cache
def cached(options: str) -> Model:
    return small_model(small_encoder("bert"), **json.loads(options))


def model_of(**options: Any) -> Model:
    """A model whose logits are not used, only its loss; made once."""
    return cached(json.dumps(options))


def loss_of(model: Model, logits: np.ndarray, batch: Batch) -> tuple[float, float]:
    outputs = {"logits": torch.tensor(logits, dtype=torch.float64)}
    question = model.double().objective("t")
    return float(question.losses(outputs, batch)["loss"]), question.counts(batch)["loss"]


def log_softmax(row: np.ndarray) -> np.ndarray:
    return row - math.log(sum(math.exp(x) for x in row))


@pytest.mark.slow(0.5)
@given(
    st.lists(st.sampled_from([0, 1, 2, HIDDEN]), min_size=1, max_size=6),
    st.sampled_from([0.0, 0.1, 0.3]),
    st.sampled_from([None, WEIGHTS]),
    st.integers(0, 99),
)
def test_cross_entropy_is_the_formula(labels: list[int], smoothing: float, weights: Any, seed: int) -> None:
    logits = np.random.default_rng(seed).normal(size=(len(labels), 3)) * 3
    model = model_of(label_smoothing=smoothing, class_weights=weights)
    total, count = 0.0, 0.0
    w = weights or [1.0, 1.0, 1.0]
    for row, label in zip(logits, labels, strict=True):
        if label == HIDDEN:
            continue
        log_p = log_softmax(row)
        total += (1 - smoothing) * w[label] * -log_p[label] + smoothing / 3 * sum(-log_p[c] * w[c] for c in range(3))
        count += w[label]
    assert loss_of(model, logits, batch_of(labels)) == pytest.approx((total, count), rel=1e-12, abs=1e-12)


@pytest.mark.slow(0.5)
@given(st.lists(st.integers(0, 7), min_size=1, max_size=6), st.sampled_from([0.0, 0.2]), st.integers(0, 99))
def test_multilabel_is_the_formula(rows: list[int], smoothing: float, seed: int) -> None:
    labels = np.array([[r & 1, r >> 1 & 1, r >> 2 & 1] for r in rows], dtype=np.float32)
    logits = np.random.default_rng(seed).normal(size=(len(rows), 3)) * 3
    target = labels.astype(np.float64) * (1 - smoothing) + smoothing / 2
    p = 1 / (1 + np.exp(-logits))
    wanted = -(target * np.log(p) + (1 - target) * np.log(1 - p)).mean(1).sum()
    model = model_of(form="multilabel", label_smoothing=smoothing)
    found = loss_of(model, logits, batch_of(labels, "multilabel"))
    assert found == pytest.approx((wanted, len(rows)), rel=1e-6)


@pytest.mark.slow(0.5)
@given(st.lists(st.floats(-5, 5, width=32), min_size=1, max_size=6), st.integers(0, 99))
def test_regression_is_the_squared_error(values: list[float], seed: int) -> None:
    logits = np.random.default_rng(seed).normal(size=(len(values), 1))
    wanted = sum((logits[i, 0] - v) ** 2 for i, v in enumerate(values))
    labels = np.array(values, dtype=np.float32)
    found = loss_of(model_of(form="regression"), logits, batch_of(labels, "regression"))
    assert found == pytest.approx((wanted, len(values)), rel=1e-12)


@pytest.mark.parametrize(
    ("form", "known", "hidden"),
    [
        ("single", 1, HIDDEN),
        ("regression", np.float32(0.5), np.float32("nan")),
        ("multilabel", np.array([1, 0, 1], np.float32), np.full(3, np.nan, np.float32)),
    ],
)
def test_hidden_labels_contribute_nothing(form: str, known: Any, hidden: Any) -> None:
    model = model_of(form=form, class_weights=WEIGHTS if form == "single" else None)
    both, alone = batch_of(np.stack([known, hidden]), form), batch_of(np.stack([known]), form)
    logits = np.random.default_rng(0).normal(size=(2, 1 if form == "regression" else 3))
    assert loss_of(model, logits, both) == pytest.approx(loss_of(model, logits[:1], alone), rel=1e-12)
    nobody = batch_of(np.stack([hidden, hidden]), form)
    assert loss_of(model, logits, nobody) == (0.0, 0.0)
    outputs = {"logits": torch.tensor(logits, requires_grad=True)}
    model.objective("t").losses(outputs, both)["loss"].backward()
    gradient = outputs["logits"].grad
    assert gradient is not None
    assert torch.isfinite(gradient).all()
    assert not gradient[1].any()


def test_importance_weights_multiply_each_example() -> None:
    from dataclasses import replace

    logits = np.random.default_rng(0).normal(size=(2, 3))
    batch = batch_of([0, 2])
    one, _ = loss_of(model_of(), logits[:1], batch_of([0]))
    two, _ = loss_of(model_of(), logits[1:], batch_of([2]))
    both, count = loss_of(model_of(), logits, replace(batch, weights=torch.tensor([3.0, 0.5])))
    assert (both, count) == (pytest.approx(3 * one + 0.5 * two, rel=1e-9), 2.0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_losses_of_half_precision_logits_are_float32(dtype: torch.dtype) -> None:
    question = model_of(class_weights=WEIGHTS).objective("t")
    loss = question.losses({"logits": torch.randn(2, 3).to(dtype)}, batch_of([0, 1]))["loss"]
    assert loss.dtype == torch.float32


# Class weights


def test_balanced_weights_are_rows_over_classes_times_count() -> None:
    labels = np.array([0, 0, 0, 1, 2, 2, HIDDEN])
    fitted = Classification(labels=LABELS, class_weights="balanced").fitted({"label": labels})
    assert fitted.class_weights == pytest.approx([6 / (3 * 3), 6 / (3 * 1), 6 / (3 * 2)])
    assert Classification(**fitted.to_dict()) == fitted


def test_weights_that_do_not_fit_are_refused() -> None:
    balanced = Classification(labels=LABELS, class_weights="balanced")
    with pytest.raises(UserError, match="no training row has the label 'b'"):
        balanced.fitted({"label": np.array([0, 2])})
    with pytest.raises(UserError, match="2 numbers for 3 labels"):
        Classification(labels=LABELS, class_weights=[1.0, 2.0]).build(small_encoder(), None)
    for weights in ([1.0, -2.0, 1.0], [0.0, 0.0, 0.0]):
        with pytest.raises(UserError, match="all must be 0 or more"):
            Classification(labels=LABELS, class_weights=weights).build(small_encoder(), None)
    with pytest.raises(UserError, match="label_smoothing: is for labels"):
        model_of(form="regression", labels=[], label_smoothing=0.1)
    for form in ("multilabel", "regression"):
        with pytest.raises(UserError, match=f"class_weights: they need single labels, not {form}"):
            model_of(form=form, labels=["a", "b"] if form == "multilabel" else [], class_weights=[1.0, 2.0])


# Distance


@pytest.mark.slow
@pytest.mark.parametrize("form", ["single", "multilabel", "regression"])
@given(seed=st.integers(0, 99))
def test_distance_is_symmetric_and_zero_at_equality(form: str, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    question = model_of(form=form).objective("t")
    a, b = ({"logits": torch.randn(4, question.options.outputs, generator=generator) * 3} for _ in range(2))
    batch = batch_of([0] * 4)
    there, back = question.distance(a, b, batch), question.distance(b, a, batch)
    assert there.shape == (4,)
    torch.testing.assert_close(there, back)
    assert (there > 0).all()
    assert not question.distance(a, a, batch).any()


def test_distance_is_the_sum_of_both_divergences() -> None:
    x, y = np.array([0.3, -1.0, 2.0]), np.array([1.0, 0.5, 0.0])
    p, q = np.exp(log_softmax(x)), np.exp(log_softmax(y))
    wanted = (p * np.log(p / q)).sum() + (q * np.log(q / p)).sum()
    a, b = ({"logits": torch.tensor(v)[None]} for v in (x, y))
    assert float(model_of().objective("t").distance(a, b, batch_of([0]))) == pytest.approx(wanted, rel=1e-6)
    p, q = 1 / (1 + np.exp(-x)), 1 / (1 + np.exp(-y))
    kl = lambda p, q: (p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))).sum()  # noqa: E731
    found = model_of(form="multilabel").objective("t").distance(a, b, batch_of([0]))
    assert float(found) == pytest.approx(kl(p, q) + kl(q, p), rel=1e-6)


# Heads


@pytest.mark.parametrize(("width", "labels"), [(16, 3), (32, 2), (16, 7)])
def test_F1_the_linear_head_is_one_glorot_layer(width: int, labels: int) -> None:
    encoder = small_encoder("electra", hidden_size=width)
    model = small_model(encoder, head="linear", labels=[str(i) for i in range(labels)])
    head = model.objective("t").head
    assert sum(p.numel() for p in head.parameters()) == width * labels + labels
    bound = math.sqrt(6 / (width + labels))
    assert float(head.out.weight.detach().abs().max()) <= bound
    assert float(head.out.weight.detach().abs().max()) > 0.7 * bound
    assert not head.out.bias.detach().any()


@pytest.mark.parametrize("head", ["mlp_tanh", "mlp_gelu"])
def test_two_layer_heads_begin_with_a_deviation_of_two_hundredths(head: str) -> None:
    model = small_model(small_encoder("bert", hidden_size=64), head=head)
    found = model.objective("t").head
    assert sum(p.numel() for p in found.parameters()) == 64 * 64 + 64 + 64 * 3 + 3
    assert float(found.dense.weight.detach().std()) == pytest.approx(0.02, rel=0.1)
    assert not found.dense.bias.detach().any()
    x = torch.randn(2, 64)
    activation = torch.tanh if head == "mlp_tanh" else torch.nn.functional.gelu
    wanted = found.eval().out(activation(found.dense(x)))
    hidden = torch.zeros(1, 8, 64)
    hidden[0, [0, 4]] = x
    assert torch.equal(found(hidden, batch_of([0, 1])), wanted)


@pytest.mark.parametrize("head", ["linear", "mlp_tanh"])
def test_an_unused_pooler_is_taken_out(head: str) -> None:
    encoder = small_encoder("bert")
    small_model(encoder, head=head)
    assert not [n for n, _ in encoder.net.named_parameters() if "pooler" in n]


@pytest.mark.parametrize("kind", KINDS)
def test_stock_heads_are_initialised_whole_and_by_the_seed(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights are made on the meta device first: what the initialisation forgets would stay as it lies in memory."""
    plain = torch.nn.Module.to_empty

    def poisoned(module: torch.nn.Module, **options: Any) -> torch.nn.Module:
        module = plain(module, **options)
        for tensor in [*module.parameters(), *module.buffers()]:
            tensor.data.fill_(float("nan"))
        return module

    monkeypatch.setattr(torch.nn.Module, "to_empty", poisoned)
    heads = [small_model(small_encoder(kind), seed=seed).objective("t").head.state_dict() for seed in (1, 1, 2)]
    for name, tensor in heads[0].items():
        assert torch.isfinite(tensor).all(), name
        assert torch.equal(tensor, heads[1][name]), name
        if tensor.ndim == 2:
            assert not torch.equal(tensor, heads[2][name]), name
            assert 0.005 < float(tensor.std()) < 0.3, name
        elif "norm" in name and name.endswith("weight"):
            assert (tensor == 1).all(), name
        else:
            assert not tensor.any(), name


@pytest.mark.parametrize("kind", KINDS)
def test_every_parameter_of_a_stock_model_gets_a_gradient(kind: str) -> None:
    model = small_model(small_encoder(kind))
    batch = batcher_for(model.encoder).batch(random_table([5, 19]), np.arange(2), "t", 0)
    model(batch)[1]["t", "loss"].backward()
    idle = [n for n, p in model.named_parameters() if p.grad is None]
    assert idle == []


def test_a_class_that_reads_more_than_hidden_states_is_refused() -> None:
    """Longformer's classifier lets the first token attend to everything, which its bare encoder does not."""
    encoder = small_encoder("longformer", attention_window=8)
    with pytest.raises(UserError, match=r"LongformerForSequenceClassification reads more than .* use head: linear"):
        small_model(encoder)


def test_an_architecture_without_a_class_for_labels_is_refused() -> None:
    encoder = small_encoder("neomme", sliding_window=8, embedding_rank=8, embedding_dim=16, num_key_value_heads=1)
    with pytest.raises(UserError, match="transformers has no ForSequenceClassification for neomme; use head: linear"):
        small_model(encoder)
