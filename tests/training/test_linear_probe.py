"""The linear probe sees what an encoder knows, and only that."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from encodery.errors import UserError
from encodery.methods.plain import Plain
from encodery.tasks.toy import Toy
from encodery.training import linear_probe, optim
from encodery.training.build import build, find_inputs, make_optimizer
from encodery.training.loop import TrainState, train
from tests.toolbox.runs import resolve, run
from tests.training.test_pretraining import SMALL, settings


@pytest.mark.parametrize("form", ["single", "multilabel", "regression"])
def test_the_regression_is_at_its_optimum(form: str) -> None:
    generator = torch.Generator().manual_seed(0)
    x = linear_probe.with_one(torch.randn(60, 4, generator=generator, dtype=torch.float64))
    labels = {
        "single": torch.randint(3, (60,), generator=generator),
        "multilabel": torch.randint(2, (60, 3), generator=generator).float(),
        "regression": torch.randn(60, generator=generator),
    }[form]
    w = linear_probe.regression(x, labels, form, 1 if form == "regression" else 3).requires_grad_()
    logits = x @ w
    loss = {
        "single": lambda: F.cross_entropy(logits, labels),
        "multilabel": lambda: (
            F.binary_cross_entropy_with_logits(logits, labels.double(), reduction="none").mean(1).mean()
        ),
        "regression": lambda: (logits[:, 0] - labels).square().mean() / 2,
    }[form]() + linear_probe.DECAY / 2 * w[:-1].square().sum()
    (gradient,) = torch.autograd.grad(loss, w)
    assert float(gradient.abs().max()) < 1e-5


@pytest.mark.slow
def test_probes_are_recorded_at_kept_models_and_the_end(tmp_path: Path) -> None:
    """Also of disentangled words, which must be whole again afterwards: the run is as if nobody had looked."""
    objective = {"kind": "electra", "embedding_sharing": "gdes"}
    short = {"max_steps": 6, "evaluate": "end"}
    looked = {"tasks": ["toy/sentiment"], "every": 5, "train_rows": 50, "max_length": 24}
    done = run(settings(objective, train=short, probe=looked), tmp_path / "looked")
    found = {line["step"]: line for line in done.metrics() if "probe.toy/sentiment.accuracy" in line}
    assert sorted(found) == [1, 2, 3, 5, 6]
    plain = run(settings(objective, train=short), tmp_path / "plain")
    assert plain.read_scores()["scores"] == done.read_scores()["scores"]


def test_of_two_texts_apart_the_features_are_u_v_and_their_distance() -> None:
    u, v = torch.tensor([[1.0, 5.0]]), torch.tensor([[3.0, 4.0]])
    assert linear_probe.compared([u, v]).tolist() == [[1, 5, 3, 4, 2, 1]]
    assert linear_probe.compared([u]) is u


@pytest.mark.slow
def test_pairs_can_be_probed_apart(tmp_path: Path) -> None:
    resolved = resolve(settings({"kind": "mlm"}, train={"max_steps": 1}))
    built = build(resolved, find_inputs(resolved))
    task = Toy(part="paraphrase", train_rows=60, dev_rows=20, test_rows=10)
    joined, apart = (linear_probe.prepare(task, built.pieces, 24, 50, apart=apart) for apart in (False, True))
    assert [len(tables) for tables in apart.tables.values()] == [2, 2]
    first, second = apart.tables["train"]
    assert len(first) == len(second) == len(joined.tables["train"][0]) == 50
    x, weights = apart.fit(built.model.encoder, built.batcher)
    width = built.model.encoder.width
    assert (x.shape, weights.shape) == ((20, 3 * width + 1), (3 * width + 1, 2))
    alone = linear_probe.features(built.model.encoder, first, built.batcher)
    texts = [example.texts[0] for example in task.examples("train")[:50]]
    same = [(i, j) for i in range(50) for j in range(i) if texts[i] == texts[j]]
    assert all(torch.allclose(alone[i], alone[j], atol=1e-6) for i, j in same)
    assert set(apart.scores(built.model.encoder, built.batcher)) == set(
        joined.scores(built.model.encoder, built.batcher)
    )


def test_what_cannot_be_probed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no toy/moods"):
        run(settings({"kind": "mlm"}, probe={"tasks": ["toy/moods"]}), tmp_path / "a")


@pytest.mark.slow(25)
def test_a_tiny_electra_on_toy_text_knows_more_than_random_weights(tmp_path: Path) -> None:
    """Two layers of width 64, about a quarter of a minute of one core; 1,500 dev rows, so 0.013 is one deviation."""
    fields = {**SMALL, "hidden_size": 64, "intermediate_size": 128, "embedding_size": 32}
    still = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    tree = settings({"kind": "electra", "generator_size": 0.5, "masking": {"probability": 0.2}})
    tree["model"]["new"]["config"] = fields | still
    tree["tasks"][0] |= {"documents": 4000, "held_out": 0.0}
    tree["optim"] = {"lr": 2e-3, "warmup": 0.1}
    tree["train"] = {"max_steps": 600, "batch_size": 32, "max_length": 32, "keep_at": []}
    resolved = resolve(tree)
    built = build(resolved, find_inputs(resolved))
    tasks = [Toy(part=part, train_rows=1000, dev_rows=1500, test_rows=10) for part in ("acceptability", "nli")]
    probes = [linear_probe.prepare(task, built.pieces, 48, 1000) for task in tasks]
    before = linear_probe.run(probes, built.model.encoder, built.batcher)
    optimizer, state = make_optimizer(built.model, resolved.config), TrainState(600)
    schedule = optim.schedule(resolved.config.optim, 600)
    for _ in train(built.model, Plain(), built.batches, optimizer, schedule, state):
        pass
    after = linear_probe.run(probes, built.model.encoder, built.batcher)
    lifts = {name: after[name] - before[name] for name in before}
    assert lifts["probe.toy/acceptability.accuracy"] > 0.08, lifts  # measured with three seeds: 0.13 and more
    assert lifts["probe.toy/nli.accuracy"] > 0.05, lifts  # 0.09 and more
