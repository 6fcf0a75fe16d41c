"""The linear probe sees what an encoder knows, and only that."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from encodery import optim, probe
from encodery.build import build, find_inputs, make_optimizer
from encodery.errors import UserError
from encodery.loop import TrainState, train
from encodery.methods.plain import Plain
from encodery.tasks.toy import Toy
from tests.helpers import resolve, run
from tests.test_pretraining import SMALL, settings


@pytest.mark.parametrize("form", ["single", "multilabel", "regression"])
def test_the_regression_is_at_its_optimum(form: str) -> None:
    generator = torch.Generator().manual_seed(0)
    x = probe.with_one(torch.randn(60, 4, generator=generator, dtype=torch.float64))
    labels = {
        "single": torch.randint(3, (60,), generator=generator),
        "multilabel": torch.randint(2, (60, 3), generator=generator).float(),
        "regression": torch.randn(60, generator=generator),
    }[form]
    w = probe.regression(x, labels, form, 1 if form == "regression" else 3).requires_grad_()
    logits = x @ w
    loss = {
        "single": lambda: F.cross_entropy(logits, labels),
        "multilabel": lambda: (
            F.binary_cross_entropy_with_logits(logits, labels.double(), reduction="none").mean(1).mean()
        ),
        "regression": lambda: (logits[:, 0] - labels).square().mean() / 2,
    }[form]() + probe.DECAY / 2 * w[:-1].square().sum()
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


def test_what_cannot_be_probed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no toy/moods"):
        run(settings({"kind": "mlm"}, probe={"tasks": ["toy/moods"]}), tmp_path / "a")


@pytest.mark.slow
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
    probes = [probe.prepare(task, built.pieces, 48, 1000) for task in tasks]
    before = probe.run(probes, built.model.encoder, built.cutter)
    optimizer, state = make_optimizer(built.model, resolved.config), TrainState(600)
    schedule = optim.schedule(resolved.config.optim, 600)
    for _ in train(built.model, Plain(), built.batches, optimizer, schedule, state):
        pass
    after = probe.run(probes, built.model.encoder, built.cutter)
    lifts = {name: after[name] - before[name] for name in before}
    assert lifts["probe.toy/acceptability.accuracy"] > 0.08, lifts  # measured with three seeds: 0.13 and more
    assert lifts["probe.toy/nli.accuracy"] > 0.05, lifts  # 0.09 and more
