"""What every objective must keep. Each file of the package is found by itself; what it needs is added here."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from encodery.config.components import find, names
from encodery.data.batches import Batch
from encodery.models.model import Model
from encodery.objectives.base import Objective
from tests.toolbox.models import batcher_for, furthest, gradients, random_table, small_encoder
from tests.toolbox.tokenizers import word_tokenizer

LENGTHS = [9, 4, 17, 2, 9, 30, 6]

# Options without which an objective means nothing, several sets where it has several forms.
NEEDED: dict[str, list[dict[str, Any]]] = {
    "classification": [
        {"labels": ["a", "b", "c"]},
        {"labels": ["a", "b", "c"], "class_weights": [1.0, 2.0, 0.5], "label_smoothing": 0.1, "head": "linear"},
        {"labels": ["a", "b", "c"], "form": "multilabel", "head": "mlp_tanh"},
        {"form": "regression", "head": "mlp_gelu"},
        {"labels": ["a", "b", "c"], "pool": "mean", "head": "linear"},
        {"labels": ["a", "b", "c"], "pool": "max", "class_weights": [1.0, 2.0, 0.5]},
    ],
    "tagging": [{"labels": ["a", "b", "c"]}, {"labels": ["a", "b", "c"], "label_smoothing": 0.1}],
    "span": [
        {},
        {"mask_question": False},
        {"span_head": "joint", "inner": 8, "beam": 3},
        {"span_head": "joint", "inner": 8, "impossible": False},
    ],
    "ranking": [{}, {"head": "linear"}],
    "mlm": [{}, {"masking": {"whole_words": "hf", "probability": 0.3}}],
    "electra": [
        {},
        {"embedding_sharing": "none", "disallow_correct": True, "masking": {"positions": "with_replacement"}},
        {"embedding_sharing": "gdes", "temperature": 2.0},
        {"uniform_generator": True},
    ],
    "amos": [
        {},
        {"mixture": "fixed"},
        {"readouts": [1, 2, 4], "mlm_weights": [1.0, 0.5, 2.0], "stop_gradients": False, "reversal": 0.5},
        {"readouts": [1], "mixture": "random", "masking": {"mask": 0.5, "random": 0.2}},
    ],
}
CASES = [(kind, options) for kind in names("objectives") for options in NEEDED.get(kind, [{}])]


@pytest.fixture(params=CASES, ids=str)
def case(request: pytest.FixtureRequest) -> tuple[Objective, dict[str, Any]]:
    kind, options = request.param
    objective = find("objectives", kind).model_validate(options)
    assert isinstance(objective, Objective)
    return objective, options


def asked(objective: Objective, options: dict[str, Any], layout: str = "packed") -> tuple[Model, list[Batch], Batch]:
    """A model in float64, the rows cut into micro-batches, and all rows in one."""
    encoder = small_encoder("bert", layout)
    torch.manual_seed(0)
    model = Model(encoder, {"t": objective.build(encoder, word_tokenizer())}).double().eval()
    kind = type(objective).__module__.rpartition(".")[2]
    form = "pooled" if options.get("pool") else options.get("form", "single") if kind == "classification" else kind
    table = random_table(LENGTHS, form=form)
    rows = np.arange(len(table))
    return (
        model,
        batcher_for(encoder, budget=25).split(table, rows, "t", 0),
        batcher_for(encoder).batch(table, rows, "t", 0),
    )


def test_options_are_frozen_documented_and_survive_json(case: tuple[Objective, dict[str, Any]]) -> None:
    objective, _ = case
    assert type(objective).__doc__
    assert type(objective).model_validate_json(objective.model_dump_json()) == objective
    for name in type(objective).model_fields:
        assert type(objective).documented().get(name), f"{name} has no docstring"
        with pytest.raises(ValueError, match="frozen"):
            setattr(objective, name, getattr(objective, name))


def test_counts_and_losses_have_the_same_names_and_are_sums(case: tuple[Objective, dict[str, Any]]) -> None:
    model, micro, whole = asked(*case)
    assert len(micro) > 2
    question = model.objective("t")
    terms = question.losses(model.outputs(whole), whole)
    assert terms.keys() == question.counts(whole).keys()
    for name, term in terms.items():
        assert term.shape == ()
        assert torch.isfinite(term)
        parts = [question.losses(model.outputs(batch), batch)[name] for batch in micro]
        torch.testing.assert_close(torch.stack(parts).sum(), term, rtol=1e-12, atol=1e-12)
        assert sum(question.counts(batch)[name] for batch in micro) == pytest.approx(question.counts(whole)[name])


@pytest.mark.slow
def test_layouts_make_no_difference(case: tuple[Objective, dict[str, Any]]) -> None:
    found = []
    for layout in ("packed", "rows", "padded"):
        model, micro, _ = asked(*case, layout)
        for batch in micro:
            torch.stack(list(model(batch)[1].values())).sum().backward()
        found.append(gradients(model))
    assert furthest(found[0], found[1]) < 1e-12
    assert furthest(found[0], found[2]) < 1e-12


def test_answers_are_one_row_per_sequence(case: tuple[Objective, dict[str, Any]]) -> None:
    model, _, whole = asked(*case)
    for value in model.objective("t").answers(model.outputs(whole), whole).values():
        assert len(value) == len(LENGTHS)


def test_distance_is_symmetric_zero_at_equality_and_one_per_example(case: tuple[Objective, dict[str, Any]]) -> None:
    model, _, whole = asked(*case)
    question, outputs = model.objective("t"), model.outputs(whole)
    other: dict[str, Tensor] = {
        name: value + torch.randn_like(value) if value.is_floating_point() else value for name, value in outputs.items()
    }
    there = question.distance(outputs, other, whole)
    assert there.shape == (len(LENGTHS),)
    torch.testing.assert_close(there, question.distance(other, outputs, whole))
    assert not question.distance(outputs, outputs, whole).any()


def test_equal_seeds_build_equal_weights(case: tuple[Objective, dict[str, Any]]) -> None:
    one, two = (asked(*case)[0].objective("t").state_dict() for _ in range(2))
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_targets_are_not_changed(case: tuple[Objective, dict[str, Any]]) -> None:
    model, _, whole = asked(*case)
    kept = replace(whole, targets={name: value.clone() for name, value in whole.targets.items()})
    model(whole)
    for name, value in whole.targets.items():
        assert torch.equal(value, kept.targets[name])
