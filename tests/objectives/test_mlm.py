"""Masked language modelling equals transformers' own class, and never makes logits of all positions."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForMaskedLM

from encodery.errors import UserError
from encodery.objectives.parts import vocabulary_loss
from encodery.objectives.parts.masking import mask
from tests.objectives.pretraining import asked, batch_of, text_table
from tests.toolbox.models import KINDS, batcher_for, small_encoder
from tests.toolbox.tokenizers import word_tokenizer

LENGTHS = [9, 30, 4, 17, 30]


def stock_loss(folder: Path, model: Any, batch: Any) -> tuple[float, Any]:
    """Loss of transformers' class on the same masked rows."""
    question = model.objective("t")
    masked = mask(batch, question.options.masking, question.vocabulary)
    labels = torch.full_like(batch.inputs["input_ids"].flatten(), -100)
    labels[masked.cells] = masked.truth
    net, report = AutoModelForMaskedLM.from_pretrained(folder, output_loading_info=True, dtype=torch.float32)
    inputs = {**batch.inputs, "input_ids": masked.ids}
    with torch.no_grad():
        loss = net.eval()(**inputs, labels=labels.view_as(batch.inputs["input_ids"])).loss
    return float(loss), report


@pytest.mark.parametrize("kind", KINDS)
def test_P2_the_saved_folder_is_the_stock_class_with_the_same_loss(kind: str, tmp_path: Path) -> None:
    model = asked("mlm", kind=kind, layout="rows")
    batch = batch_of(model, text_table(LENGTHS))
    question = model.objective("t")
    assert question.head.weight is model.encoder.net.get_input_embeddings().weight
    names = [n for n, p in model.named_parameters() if p is question.head.weight]
    assert len(names) == 1
    model.save(tmp_path / "m", word_tokenizer(), {})
    wanted, report = stock_loss(tmp_path / "m", model, batch)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    terms = question.losses(model.outputs(batch), batch)
    assert float(terms["mlm"]) / question.counts(batch)["mlm"] == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_every_parameter_of_the_head_begins_whole_and_learns(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = torch.nn.Module.to_empty

    def poisoned(module: torch.nn.Module, **options: Any) -> torch.nn.Module:
        module = plain(module, **options)
        for tensor in [*module.parameters(), *module.buffers()]:
            tensor.data.fill_(float("nan"))
        return module

    monkeypatch.setattr(torch.nn.Module, "to_empty", poisoned)
    model = asked("mlm", kind=kind)
    assert all(torch.isfinite(p).all() for p in model.parameters())
    batch = batch_of(model, text_table(LENGTHS))
    model(batch)[1]["t", "mlm"].backward()
    assert [n for n, p in model.named_parameters() if p.grad is None] == []


def test_no_logits_of_all_positions_are_ever_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """No tensor with a row per token and a column per word: rows are asked positions, in chunks of their own."""
    model = asked("mlm", kind="bert")
    batch = batch_of(model, text_table([30] * 8))
    monkeypatch.setattr(vocabulary_loss, "CELLS", 10 * model.encoder.net.config.vocab_size)
    largest, words = 0, model.encoder.net.config.vocab_size

    class Watch(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal largest
            result = func(*args, **(kwargs or {}))
            if isinstance(result, torch.Tensor) and result.ndim == 2 and func is not torch.Tensor.t:
                largest = max(largest, len(result)) if result.shape[1] == words else largest
            return result

    with Watch():
        model(batch)[1]["t", "mlm"].backward()
    assert 0 < largest <= 10


def test_answers_are_sums_over_each_sequence() -> None:
    model = asked("mlm", kind="bert")
    table = text_table(LENGTHS)
    whole = batch_of(model, table)
    found = model.objective("t").answers(model.outputs(whole), whole)
    for row in range(len(table)):
        alone = batch_of(model, table, [row])
        mine = model.objective("t").answers(model.outputs(alone), alone)
        for name, values in found.items():
            assert float(values[row]) == pytest.approx(float(mine[name][0]), rel=1e-5), name
    assert float(found["mlm_loss"].sum()) == pytest.approx(float(model.outputs(whole)["loss"]), rel=1e-6)


def test_positions_that_show_the_mask_are_also_counted_by_themselves() -> None:
    model, table = asked("mlm", kind="bert"), text_table(LENGTHS)
    whole = batch_of(model, table)
    question = model.objective("t")
    outputs = model.outputs(whole)
    shown = mask(whole, question.options.masking, question.vocabulary)
    hidden = shown.ids.flatten()[shown.cells] == question.vocabulary.mask_id
    assert 0 < int(hidden.sum()) < len(hidden)
    found = question.answers(outputs, whole)
    assert float(found["masked_asked"].sum()) == int(hidden.sum())
    assert float(found["masked_mlm_loss"].sum()) == pytest.approx(float(outputs["nll"][hidden].sum()), rel=1e-6)
    assert float(found["masked_mlm_right"].sum()) == int((outputs["right"] & hidden).sum())


@pytest.mark.slow
def test_going_on_takes_the_head_over_where_there_is_one(tmp_path: Path) -> None:
    model = asked("mlm", kind="bert")
    model.save(tmp_path / "m", word_tokenizer(), {})
    other = asked("mlm", kind="bert")
    with torch.no_grad():
        other.objective("t").head.cls.predictions.bias.fill_(3.0)
    assert other.objective("t").load_heads(other.encoder, tmp_path / "m") == []
    own, given = other.objective("t").head.state_dict(), model.objective("t").head.state_dict()
    assert all(torch.equal(own[name], given[name]) for name in own)
    model.encoder.net.save_pretrained(tmp_path / "body")
    assert "no masked-language head" in other.objective("t").load_heads(other.encoder, tmp_path / "body")[0]


def test_a_class_that_does_not_end_with_one_product_is_refused() -> None:
    """MobileBERT multiplies with two matrices, one of them not the word embeddings."""
    from encodery.objectives.mlm import Mlm

    sizes = {"true_hidden_size": 16, "intra_bottleneck_size": 16, "embedding_size": 16}
    encoder = small_encoder("mobilebert", **sizes)
    with pytest.raises(UserError, match="MobileBertForMaskedLM does not end with a product with one matrix"):
        Mlm().build(encoder, word_tokenizer())
    assert batcher_for(encoder).layout


def test_an_architecture_without_a_class_is_refused() -> None:
    from encodery.objectives.mlm import Mlm

    encoder = small_encoder("markuplm", xpath_unit_hidden_size=4, max_depth=4)
    with pytest.raises(UserError, match="transformers has no masked language model of markuplm"):
        Mlm().build(encoder, word_tokenizer())
