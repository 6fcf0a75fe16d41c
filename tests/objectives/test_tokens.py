"""Heads on tokens: equal to transformers' own classes, ELECTRA's joint head (F16), ranking, pooled windows."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForQuestionAnswering, AutoModelForTokenClassification

from encodery.data.batches import Batch
from encodery.models.model import Model
from encodery.objectives.classification import Classification
from encodery.objectives.ranking import Ranking
from encodery.objectives.span import Joint, Span
from encodery.objectives.tagging import Tagging
from tests.toolbox.models import KINDS, batcher_for, random_table, small_encoder
from tests.toolbox.tokenizers import word_tokenizer

LENGTHS = [9, 4, 17, 2, 30]


def asked(objective: Any, form: str, kind: str = "bert", layout: str = "auto") -> tuple[Model, Batch]:
    encoder = small_encoder(kind, layout)
    torch.manual_seed(0)
    model = Model(encoder, {"t": objective.build(encoder, None)}).eval()
    table = random_table(LENGTHS, form=form)
    return model, batcher_for(encoder).batch(table, np.arange(len(table)), "t", 0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", ["tagging", "span"])
def test_the_saved_folder_gives_equal_logits_in_transformers(kind: str, form: str, tmp_path: Path) -> None:
    objective = Tagging(labels=["a", "b", "c"]) if form == "tagging" else Span(mask_question=False)
    model, batch = asked(objective, form, kind)
    model.save(tmp_path / "m", word_tokenizer(), {})
    auto = AutoModelForTokenClassification if form == "tagging" else AutoModelForQuestionAnswering
    stock = auto.from_pretrained(tmp_path / "m").eval()
    ours = model.outputs(batch)
    table = random_table(LENGTHS, form=form)
    for row in range(len(LENGTHS)):
        here = slice(table.starts[row], table.starts[row + 1])
        inputs = {"input_ids": torch.from_numpy(table.ids[here].astype(np.int64))[None]}
        if model.encoder.form.types:
            inputs["token_type_ids"] = torch.from_numpy(table.types[here].astype(np.int64))[None]
        with torch.no_grad():
            theirs = stock(**inputs)
        n = LENGTHS[row]
        if form == "tagging":
            mine = batch.rows(ours["logits"])[0][row, :n]
            torch.testing.assert_close(mine, theirs.logits[0], rtol=1e-4, atol=1e-5)
        else:
            torch.testing.assert_close(ours["start"][row, :n], theirs.start_logits[0], rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(ours["end"][row, :n], theirs.end_logits[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("layout", ["packed", "rows"])
def test_F16_the_end_depends_on_the_start_and_beam_squared_are_looked_at(layout: str) -> None:
    model, batch = asked(Span(span_head="joint", beam=5, inner=8), "span", layout=layout)
    head = model.objective("t")
    assert isinstance(head, Joint)
    with torch.no_grad():
        outputs = model.outputs(batch)
        rows, allowed = outputs["hidden"], head.allowed(batch)
        ends = head.joint.ends(rows, torch.tensor([[5, 6]]).expand(len(LENGTHS), -1).clamp(max=1), allowed)
        other = head.joint.ends(rows, torch.zeros(len(LENGTHS), 2, dtype=torch.long), allowed)
    known = batch.targets["start"]
    with torch.no_grad():
        at_gold = head.joint.ends(rows, known[:, None], allowed)[:, 0]
    torch.testing.assert_close(outputs["end"], at_gold)  # in training the right start is given
    assert not torch.allclose(ends[0, 0].softmax(0), other[0, 0].softmax(0))
    answers = head.answers(outputs, batch)
    assert answers["ends"].shape == answers["end_scores"].shape == (len(LENGTHS), 5, 5)
    first = head.joint.ends(rows, answers["starts"], allowed).log_softmax(2)
    picked = first.gather(2, answers["ends"])
    torch.testing.assert_close(picked, answers["end_scores"])


def test_F16_the_joint_loss_is_the_published_one() -> None:
    model, batch = asked(Span(span_head="joint", inner=8), "span")
    outputs, target = model.outputs(batch), batch.targets
    log = torch.nn.functional.log_softmax
    total = torch.zeros(())
    for row in range(len(LENGTHS)):
        start = -log(outputs["start"][row], 0)[target["start"][row]]
        end = -log(outputs["end"][row], 0)[target["end"][row]]
        coin = outputs["null"][row].sigmoid()
        bce = -(coin if target["impossible"][row] else 1 - coin).log()
        total = total + (start + end) / 2 + 0.5 * bce
    torch.testing.assert_close(model.objective("t").losses(outputs, batch)["loss"], total, rtol=1e-5, atol=1e-5)


def test_tokens_that_cannot_be_chosen_have_no_probability() -> None:
    for name in ("simple", "joint"):
        model, batch = asked(Span(span_head=name, inner=8), "span")  # type: ignore[arg-type]
        allowed = batch.rows(batch.targets["allowed"])[0] == 1
        real = batch.rows(batch.targets["allowed"])[1]
        chances = model.outputs(batch)["start"].softmax(1)
        assert not chances[~(allowed & real)].any()
        assert chances.sum(1).tolist() == pytest.approx([1.0] * len(LENGTHS))


def test_hidden_answers_count_nothing() -> None:
    model, batch = asked(Span(span_head="joint", inner=8), "span")
    batch.targets["start"][:2] = batch.targets["end"][:2] = -100
    batch.targets["impossible"][:2] = float("nan")
    assert model.objective("t").counts(batch) == {"loss": len(LENGTHS) - 2}
    assert torch.isfinite(model(batch)[1]["t", "loss"])


def test_ranking_is_cross_entropy_over_the_candidates() -> None:
    model, batch = asked(Ranking(), "ranking")
    logits = model.outputs(batch)["logits"][:, 0]
    total = torch.zeros(())
    for example in range(batch.examples):
        mine = batch.example_of_sequence == example
        right = batch.targets["right"][mine].argmax()
        total = total + torch.nn.functional.cross_entropy(logits[mine][None], right[None])
    torch.testing.assert_close(model(batch)[1]["t", "loss"], total)
    assert model.objective("t").counts(batch) == {"loss": batch.examples}


@pytest.mark.parametrize("pool", ["mean", "max"])
def test_pooled_windows_are_one_example(pool: str) -> None:
    model, batch = asked(Classification(labels=["a", "b", "c"], pool=pool), "pooled")  # type: ignore[arg-type]
    alone = model.objective("t").head(model.encoder(batch), batch)
    outputs = model.outputs(batch)
    for example in range(batch.examples):
        mine = alone[batch.example_of_sequence == example]
        by_hand = mine.mean(0) if pool == "mean" else mine.amax(0)
        torch.testing.assert_close(outputs["logits"][example], by_hand)
    assert model.objective("t").counts(batch) == {"loss": batch.examples}
    answers = model.objective("t").answers(outputs, batch)["logits"]
    torch.testing.assert_close(answers, outputs["logits"][batch.example_of_sequence])
