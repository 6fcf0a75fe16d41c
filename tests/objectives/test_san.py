"""MT-DNN's SAN head, against its formulas example by example; and learning from a teacher, against torch."""

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from encodery.errors import UserError
from encodery.objectives.classification import Classification
from encodery.objectives.parts.distill import Distill
from encodery.objectives.parts.heads import SanHead
from tests.toolbox.models import batcher_for, random_table, small_encoder, stream

SEP = 2
LENGTHS = [7, 11, 9, 5]


class Pieces:
    """A tokenizer that knows its separator."""

    sep_token_id = SEP


def pairs_of(lengths: list[int]) -> Any:
    """[CLS] a … [SEP] b … [SEP]."""
    found = random_table(lengths)
    for start, length in zip(found.starts, lengths, strict=False):
        found.ids[start + length - 1] = found.ids[start + length // 2] = SEP
    return found


def built(layout: str) -> tuple[Any, Any, Any]:
    encoder = small_encoder("bert", layout)
    torch.manual_seed(3)
    question: Any = Classification(labels=["a", "b", "c"], head="san", head_dropout=0.0).build(encoder, Pieces())
    return encoder, question, stream(pairs_of(LENGTHS), batcher_for(encoder), 4).at(0)[0]


def by_hand(head: SanHead, row: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """One example, as the page says."""
    ends = [i for i, token in enumerate(ids.tolist()) if token == SEP]
    x, y = row[1 : ends[0]], row[ends[0] + 1 : ends[1]]
    h = (head.begin(y).softmax(0) * y).sum(0)
    said = []
    for _ in range(head.turns):
        c = ((x @ head.look(h)).softmax(0)[:, None] * x).sum(0)
        said.append(head.out(torch.cat([c, h, (c - h).abs(), c * h])).softmax(0))
        h = head.think(c[None], h[None])[0]
    return torch.stack(said).mean(0).log()


@pytest.mark.parametrize("layout", ["packed", "rows"])
def test_san_is_its_formula_in_both_layouts(layout: str) -> None:
    encoder, question, batch = built(layout)
    encoder.eval(), question.eval()
    hidden = encoder(batch)
    rows, mask = batch.rows(hidden)
    ids, _ = batch.rows(batch.inputs["input_ids"])
    found = question(encoder, batch)["logits"]
    wanted = torch.stack([by_hand(question.head, r[m], i[m]) for r, m, i in zip(rows, mask, ids, strict=True)])
    assert torch.allclose(found, wanted, atol=1e-6)
    assert torch.allclose(found.exp().sum(1), torch.ones(4), atol=1e-6)


def test_turns_are_dropped_in_training_but_never_all() -> None:
    _, question, _ = built("rows")
    head = question.head.train()
    head.turn_dropout = 0.9
    torch.manual_seed(0)
    kept = head.kept(torch.ones(500, 5, 3))
    assert kept.shape == (500, 5, 1)
    assert (kept > 0).any(1).all()
    assert sorted(kept.unique().tolist()) == [0.0, pytest.approx(10.0)]
    assert 0.26 < float((kept > 0).float().mean()) < 0.30, "one of five always, a tenth of the other four"
    assert (head.eval().kept(torch.ones(2, 5, 3)) == 1).all()


def test_san_wants_pairs_and_labels() -> None:
    encoder, question, batch = built("rows")
    ids = batch.inputs["input_ids"].clone()
    ids[ids == SEP] = 9
    with pytest.raises(UserError, match="san reads pairs of texts"):
        question(encoder, replace(batch, inputs={**batch.inputs, "input_ids": ids}))
    alone = stream(pairs_of([4]), batcher_for(encoder), 1).at(0)[
        0
    ]  # its second text is empty, and nobody else is in the batch
    assert torch.isfinite(question(encoder, alone)["logits"]).all()
    with pytest.raises(UserError, match="san needs single labels"):
        Classification(form="regression", head="san").build(encoder, Pieces())


def test_distillation_is_the_divergence_from_the_teacher() -> None:
    torch.manual_seed(0)
    student, teacher = torch.randn(6, 4), torch.randn(6, 4)
    found = Distill(temperature=2.0).apart(student, teacher, "single")
    wanted = F.kl_div((student / 2).log_softmax(1), (teacher / 2).log_softmax(1), log_target=True, reduction="none")
    assert torch.allclose(found, 4 * wanted.sum(1), atol=1e-6)
    assert torch.allclose(Distill().apart(teacher, teacher, "multilabel"), torch.zeros(6), atol=1e-6)
    assert torch.allclose(Distill(loss="mse").apart(student, teacher, "single"), (student - teacher).square().mean(1))


def test_a_teacher_adds_a_term_that_counts_every_example() -> None:
    encoder = small_encoder("bert", "rows")
    question: Any = Classification(labels=["a", "b", "c"], head="linear", distill=Distill(weight=0.5)).build(
        encoder, None
    )
    batch = stream(random_table(LENGTHS), batcher_for(encoder), 4).at(0)[0]
    label = batch.targets["label"].clone()
    label[0] = -100
    teacher = torch.randn(4, 3)
    batch = replace(batch, targets={"label": label, "teacher": teacher})
    outputs = question(encoder, batch)
    losses = question.losses(outputs, batch)
    assert question.counts(batch) == {"loss": 3.0, "distill": 4.0}
    wanted = 0.5 * Distill().apart(outputs["logits"], teacher, "single").sum()
    assert torch.allclose(losses["distill"], wanted)
