from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import encodery as en
from encodery.analysis.attack import Attack, Point, look, points, under_attack
from encodery.config.load import load
from encodery.errors import UserError
from encodery.inference import open_model
from encodery.inference.classifier import Classifier, open_classifier
from encodery.inference.evaluate import evaluate
from encodery.inference.task_argument import TaskSplit, named
from tests.methods.attacks import bench
from tests.toolbox.runs import config_for
from tests.toolbox.tasks import single_task

FORMS = ["single", "pair", "multilabel", "regression"]
RADII = [0.0, 0.1, 0.3, 1.0]


def task_of(run: Path) -> TaskSplit:
    return TaskSplit(load(run).tasks[0][0], "dev")


@pytest.fixture(scope="module")
def learnt(tmp_path_factory) -> Path:
    """A run that has learnt something: an attack on chance level would show nothing."""
    folder = tmp_path_factory.mktemp("learnt")
    settings = config_for(folder, single_task(folder), train={"max_steps": 60, "evaluate": "end"})
    return en.train(settings | {"optim": {"lr": 3e-3}}, folder / "run").path


def levels(run: Path, kind: str = "pgd", radii=RADII, **more) -> list:
    return under_attack(open_classifier(run), task_of(run), radii, Attack(kind, **more))


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_radius_zero_is_the_clean_evaluation_and_attacks_raise_the_loss(form, trained):
    run = trained(form)
    found = levels(run, radii=[0.0, 1.0], steps=2)
    assert found[0].scores == evaluate([open_classifier(run)], task_of(run)).scores
    assert found[0].per_embedding_norm == 0
    assert found[1].loss > found[0].loss
    assert found[1].per_embedding_norm > 0
    assert found[1].per_neighbour_distance > 0


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_loss_does_not_fall_with_the_radius(norm, learnt):
    radii = RADII if norm == "l2" else [0.0, 0.003, 0.01, 0.05]
    found = levels(learnt, norm=norm, radii=radii)
    losses = [level.loss for level in found]
    assert losses == sorted(losses)
    assert losses[-1] > 2 * losses[0]
    assert found[0].scores["accuracy"] > found[-1].scores["accuracy"]


@pytest.mark.slow
def test_more_gradient_finds_worse_points(learnt):
    loss = {kind: levels(learnt, kind, radii=[0.5])[0].loss for kind in ("pgd", "fgsm", "random")}
    clean = levels(learnt, radii=[0.0])[0].loss
    assert clean <= loss["random"] < loss["fgsm"] <= loss["pgd"] * 1.02


@pytest.mark.slow
def test_a_figure_does_not_depend_on_time_or_on_the_other_radii(learnt):
    for kind in ("pgd", "random"):
        first = levels(learnt, kind)
        assert levels(learnt, kind) == first
        assert levels(learnt, kind, radii=[0.3]) == [first[2]]


@pytest.mark.slow
def test_both_layouts_agree(learnt):
    packed = open_classifier(learnt)
    model, tokenizer, card = open_model.load_model(learnt / "model", layout="rows")
    rows = Classifier(model, tokenizer, card, packed.head, packed.source)
    assert (packed.model.encoder.layout, model.encoder.layout) == ("packed", "rows")
    pair = [under_attack(one, task_of(learnt), RADII, Attack(steps=2)) for one in (packed, rows)]
    for a, b in zip(*pair, strict=True):
        assert a.loss == pytest.approx(b.loss, rel=1e-3)


def test_nothing_is_left_behind(learnt):
    model = open_classifier(learnt)
    before = {name: value.clone() for name, value in model.model.state_dict().items()}
    under_attack(model, task_of(learnt), [0.0, 0.3], Attack(steps=2))
    assert all(torch.equal(value, before[name]) for name, value in model.model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.model.parameters())
    assert not model.encoder.get_input_embeddings()._forward_hooks
    assert model.model.encoder.delta is None


@pytest.mark.slow
@settings(max_examples=15)
@given(st.floats(1e-3, 3), st.sampled_from(["pgd", "fgsm", "random"]), st.sampled_from(["l2", "linf"]), st.booleans())
def test_perturbations_stay_in_the_ball_and_losses_above_the_clean_one(radius, kind, norm, packed):
    made = bench(layout="packed" if packed else "rows")
    made.model.eval()
    batch = made.micro[0]
    with made.spied() as seen:
        ((_, clean), (_, worst)) = points(made.model, batch, [0.0, radius], Attack(kind, 3, norm))
    assert seen
    for values in seen:
        size = made.norms(values) if norm == "l2" else batch.per_sequence(values.double().abs().amax(2), "max")
        assert (size <= radius * (1 + 1e-5)).all()
    assert (worst.losses >= clean.losses).all()
    assert (worst.losses > clean.losses).any()
    again = look(made.model, batch, worst.delta, climb=False)[0]
    torch.testing.assert_close(again.losses, worst.losses)
    torch.testing.assert_close(again.answers["logits"], worst.answers["logits"], rtol=1e-4, atol=1e-5)


def test_each_sequence_keeps_its_own_worst_point():
    made = bench()
    made.model.eval()
    batch = made.micro[0]
    clean, slope = look(made.model, batch, None, climb=True)
    high = clean.losses.clone()
    high[0] += 100  # nothing is found that is worse for this one
    worst = Attack(steps=2).worst(made.model, batch, Point(clean.delta, high, clean.answers), slope, 0.5)
    sizes = batch.layout.from_tokens(worst.delta).square().sum((1, 2))
    assert sizes[0] == 0
    assert (sizes[1:] > 0).any()
    torch.testing.assert_close(worst.answers["logits"][0], clean.answers["logits"][0])


def test_hidden_labels_are_refused(learnt):
    asked = task_of(learnt)
    examples = [replace(example, label=None) for example in asked.task.examples("dev")]

    class Hidden(type(asked.task)):
        def examples(self, split):
            return examples

    hidden = Hidden(**asked.task.model_dump())
    with pytest.raises(UserError, match=r"labels are hidden .* no loss to attack"):
        under_attack(open_classifier(learnt), TaskSplit(hidden, "dev"), [0.1], Attack())


def test_labels_that_the_head_does_not_give_are_refused(trained):
    hans = TaskSplit(named("toy/hans").model_copy(update={"rows": 12}), "dev")
    with pytest.raises(UserError, match=r"label non-entailment is not a label of this head \(entailment, neutral, con"):
        under_attack(open_classifier(trained("pair")), hans, [0.1], Attack())


@pytest.mark.slow
def test_windows_of_a_text_share_one_loss(tmp_path):
    task = single_task(tmp_path) | {"window_stride": 3}
    run = en.train(config_for(tmp_path, task, train={"max_length": 8}), tmp_path / "run").path
    model, asked = open_classifier(run), task_of(run)
    clean, hard = under_attack(model, asked, [0.0, 1.0], Attack(steps=2))
    nll = evaluate([model], asked).scores["nll"]  # of texts, whatever their windows
    assert clean.loss == pytest.approx(nll, rel=1e-5)
    assert hard.loss > clean.loss
    assert hard.loss == pytest.approx(hard.scores["nll"], rel=1e-5)
