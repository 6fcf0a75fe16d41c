"""Heads that read the mean or the maximum of all tokens: the formula, layouts, architectures, saved folders."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import AutoModelForSequenceClassification

from encodery.analysis.head_importance import HeadOptions, importances
from encodery.config.schema import ModelOptions
from encodery.errors import UserError
from encodery.inference.open_model import make_objective
from encodery.models import packed
from encodery.models.encoder import Encoder
from encodery.models.kernels.first_token import last_output
from encodery.models.model import Model
from encodery.models.pooling import by_folder
from encodery.objectives.parts.heads import ends_with_first
from encodery.objectives.ranking import Ranking
from tests.analysis.gates import gated
from tests.toolbox.models import KINDS, batcher_for, gradients, random_table, small_encoder, small_model

LENGTHS = [5, 3, 8, 1, 8]
TABLE = random_table(LENGTHS)
LAYOUTS = [(k, layout) for k in KINDS for layout in ("packed", "rows") if layout == "rows" or k in packed.PROVEN]


def by_row(values: Tensor, ids: Tensor) -> Tensor:
    """Values of sequences in the order of the table."""
    found = torch.empty_like(values)
    found[ids] = values
    return found


def answers(model: Model, layout: str | None = None) -> Tensor:
    """Logits of all sequences in the order of the table."""
    batch = batcher_for(model.encoder, layout).batch(TABLE, np.arange(len(LENGTHS)), "t", 0)
    return by_row(model.outputs(batch)["logits"], batch.ids)


def vector(encoder: Encoder, row: int, pooling: str) -> list[float]:
    """The formula, token by token, of a sequence that goes through the encoder alone: nothing can be padded."""
    batch = batcher_for(encoder).batch(TABLE, np.array([row]), "t", 0)
    tokens = encoder(batch)[0].tolist()
    assert len(tokens) == LENGTHS[row]
    if pooling == "first":
        return list(tokens[0])
    columns = list(zip(*tokens, strict=True))
    return [sum(column) / len(column) if pooling == "mean" else max(column) for column in columns]


@pytest.mark.parametrize("pooling", ["first", "mean", "max"])
@pytest.mark.parametrize(("kind", "layout"), LAYOUTS)
def test_F24_the_head_reads_the_formula(kind: str, layout: str, pooling: str) -> None:
    model = small_model(small_encoder(kind, layout), head="linear", pooling=pooling).eval().double()
    with torch.no_grad():
        found, out = answers(model), model.objective("t").head.out
        for row in range(len(LENGTHS)):
            wanted = out(torch.tensor(vector(model.encoder, row, pooling), dtype=torch.float64))
            torch.testing.assert_close(found[row], wanted, rtol=0, atol=1e-10)


@pytest.mark.parametrize("pooling", ["mean", "max"])
@pytest.mark.parametrize("head", ["stock", "linear", "mlp_tanh"])
@pytest.mark.parametrize("kind", sorted(packed.PROVEN & set(KINDS)))
def test_F24_packed_is_rows_with_its_gradient(kind: str, head: str, pooling: str) -> None:
    found = []
    for layout in ("packed", "rows"):
        model = small_model(small_encoder(kind, layout), head=head, pooling=pooling).eval().double()
        logits = answers(model)
        (logits * torch.arange(1.0, 4.0)).sum().backward()
        found.append((logits.detach(), gradients(model)))
    torch.testing.assert_close(found[0][0], found[1][0], rtol=0, atol=1e-10)
    for name, grad in found[0][1].items():
        torch.testing.assert_close(grad, found[1][1][name], rtol=0, atol=1e-9, msg=name)


@pytest.mark.parametrize("head", ["stock", "linear", "mlp_gelu"])
def test_a_head_that_reads_all_tokens_gets_the_whole_last_layer(head: str) -> None:
    tokens: list[int] = []
    for pooling, wanted in (("first", len(LENGTHS)), ("mean", sum(LENGTHS)), ("max", sum(LENGTHS))):
        model = small_model(small_encoder("bert"), head=head, pooling=pooling).eval()
        last_output(model.encoder).register_forward_hook(lambda _m, _i, out: tokens.append(out.shape[:-1].numel()))
        answers(model)
        assert ends_with_first(model.objective("t").head, model.encoder) == (pooling == "first")
        assert tokens.pop() == wanted


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_head_importance_sees_every_token_of_the_last_layer(pooling: str) -> None:
    """What a gate on a head changes, by a difference quotient of the loss."""

    model = small_model(small_encoder("bert"), pooling=pooling).eval().double()
    batcher, step = batcher_for(model.encoder), 1e-5
    found = importances(model, TABLE, batcher, "t", HeadOptions())
    batch = batcher.batch(TABLE, np.array([2]), "t", 0)
    for layer in range(2):
        for head in range(2):
            losses = []
            for sign in (1, -1):
                open_ = torch.ones(1, 2, 2, dtype=torch.float64)
                open_[0, layer, head] += sign * step
                with gated(model.encoder, batch, open_), torch.no_grad():
                    losses.append(float(model(batch)[1]["t", "loss"]))
            assert found[2, layer, head] == pytest.approx(abs(losses[0] - losses[1]) / (2 * step), rel=1e-4, abs=1e-7)


@pytest.mark.parametrize("pooling", ["first", "mean", "max"])
@pytest.mark.parametrize("kind", KINDS)
def test_F25_a_saved_folder_opens_with_the_auto_class(kind: str, pooling: str, tmp_path: Path) -> None:
    model = small_model(small_encoder(kind), pooling=pooling).eval()
    model.objective("t").head.saved.save_pretrained(tmp_path)
    net, report = AutoModelForSequenceClassification.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values())
    stock = pooling == "first" or (kind, pooling) == ("modernbert", "mean")
    assert type(net).__module__.startswith("transformers" if stock and kind != "amos" else "encodery")
    if kind == "modernbert":
        assert net.base_model.config.classifier_pooling == ("mean" if pooling == "mean" else "cls")
    assert not list(tmp_path.glob("*.py"))
    assert "auto_map" not in json.loads((tmp_path / "config.json").read_text())
    batch = batcher_for(model.encoder, "rows").batch(TABLE, np.arange(len(LENGTHS)), "t", 0)
    with torch.no_grad():
        theirs = by_row(net.eval()(**batch.inputs, labels=batch.targets["label"]).logits, batch.ids)
        torch.testing.assert_close(theirs, answers(model), rtol=0, atol=1e-6)
    assert net.config.id2label == {0: "a", 1: "b", 2: "c"}


def test_the_saved_class_has_a_loss_and_takes_texts_without_a_mask(tmp_path: Path) -> None:
    model = small_model(small_encoder("bert", "rows"), pooling="mean").eval()
    model.objective("t").head.saved.save_pretrained(tmp_path)
    net = AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    batch = batcher_for(model.encoder, "rows").batch(TABLE, np.array([2, 4]), "t", 0)
    bare = {name: value for name, value in batch.inputs.items() if name != "attention_mask"}
    given = net(**bare, labels=batch.targets["label"])
    wanted = torch.nn.functional.cross_entropy(model.outputs(batch)["logits"], batch.targets["label"])
    torch.testing.assert_close(given.loss, wanted)


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_rankings_too(pooling: str) -> None:
    table = random_table(LENGTHS, form="ranking")
    found = []
    for layout in ("packed", "rows"):
        encoder = small_encoder("bert", layout)
        torch.manual_seed(0)
        model = Model(encoder, {"t": Ranking(pooling=pooling, head="linear").build(encoder, None)}).eval().double()  # type: ignore[arg-type]
        batch = batcher_for(encoder).batch(table, np.arange(len(LENGTHS)), "t", 0)
        logits = by_row(model.outputs(batch)["logits"], batch.ids)
        wanted = model.objective("t").head.out(torch.tensor(vector(encoder, 0, pooling), dtype=torch.float64))
        torch.testing.assert_close(logits[0], wanted, rtol=0, atol=1e-10)
        found.append(logits)
    torch.testing.assert_close(*found, rtol=0, atol=1e-10)


def folder_with(tmp_path: Path, plain: Any) -> Path:
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps(plain))
    return tmp_path


@pytest.mark.parametrize(
    ("plain", "wanted"),
    [
        ({"word_embedding_dimension": 8, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}, "mean"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "first"),
        ({"pooling_mode_max_tokens": True, "include_prompt": True}, "max"),
        ({"pooling_mode": "mean"}, "mean"),
        ({"pooling_mode": "cls"}, "first"),
    ],
)
def test_F26_auto_follows_sentence_transformers(plain: Any, wanted: str, tmp_path: Path) -> None:
    found, (line,) = by_folder(folder_with(tmp_path, plain))
    assert found == wanted
    assert wanted in line
    assert "1_Pooling" in line


def test_F26_what_auto_cannot_follow_is_said(tmp_path: Path) -> None:
    found, (line,) = by_folder(folder_with(tmp_path, {"pooling_mode_lasttoken": True, "pooling_mode_max_tokens": True}))
    assert found is None
    assert "lasttoken and max_tokens" in line
    assert "model.pooling" in line
    (tmp_path / "1_Pooling" / "config.json").write_text("{")
    with pytest.raises(UserError, match=r"1_Pooling.config\.json: is not JSON"):
        by_folder(tmp_path)


def test_F26_auto_follows_modernbert_else_first() -> None:
    for pooling, wanted in (("cls", "first"), ("mean", "mean")):
        encoder = small_encoder("modernbert", classifier_pooling=pooling)
        assert small_model(encoder).objective("t").head.pooling == wanted
    assert small_model(small_encoder("bert")).objective("t").head.pooling == "first"


def test_a_card_without_the_key_means_what_it_meant() -> None:
    encoder = small_encoder("modernbert", classifier_pooling="mean")
    torch.manual_seed(0)
    for head, wanted in (("stock", "mean"), ("linear", "first")):
        objective = make_objective({"kind": "classification", "labels": ["a", "b"], "head": head})
        assert objective.build(encoder, None).head.pooling == wanted


def test_the_san_head_reads_every_token() -> None:
    class Tokenizer:
        sep_token_id = 2

    plain = {"kind": "classification", "labels": ["a", "b"], "head": "san"}
    make_objective(plain, None, ModelOptions(pooling="mean")).build(small_encoder("bert"), Tokenizer())
    with pytest.raises(UserError, match="san reads every token"):
        make_objective({**plain, "pooling": "mean"}).build(small_encoder("bert"), Tokenizer())
