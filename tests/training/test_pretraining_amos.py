"""Whole runs of AMOS: what is logged, folders, fine-tuning with methods, going on, its optimiser's settings."""

from pathlib import Path

import numpy as np
import pytest

from encodery.errors import UserError
from encodery.models import flops
from encodery.runs.directory import RunDir
from encodery.tasks.forms.pretraining_scores import ELECTRA
from tests.toolbox.runs import resolve, run
from tests.training.test_pretraining import ADAM, settings

READOUT = ("mlm_loss", "mlm_accuracy", "replaced", "share")


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """A finished AMOS run with relative positions; only read from."""
    return run(settings({"kind": "amos"}, "amos"), tmp_path_factory.mktemp("pretrained") / "run")


@pytest.mark.slow
def test_readouts_and_mixture_are_logged_over_time(pretrained: RunDir) -> None:
    found = pretrained.read_scores()["scores"]["toy/corpus:dev"]
    assert set(found) == {*ELECTRA, "mixture_entropy", *(f"{name}_{depth}" for name in READOUT for depth in (1, 2))}
    assert found["share_1"] + found["share_2"] == pytest.approx(1)
    assert 0 < found["mixture_entropy"] <= np.log(2) + 1e-9
    whole = found["mlm_loss_1"] + found["mlm_loss_2"] + 50 * found["discriminator_loss"]
    assert found["loss"] == pytest.approx(whole)
    evaluated = [line for line in pretrained.metrics() if "eval.share_1" in line]
    assert len(evaluated) == 2
    steps = [line for line in pretrained.metrics() if "loss.toy/corpus/mlm_2" in line]
    assert len(steps) == 12
    assert [line["flops"] for line in steps] == sorted(line["flops"] for line in steps)


@pytest.mark.slow
def test_a_modernbert_trunk_is_pretrained_and_learns_a_task(tmp_path: Path) -> None:
    done = run(settings({"kind": "amos"}, "modernbert", train={"max_steps": 2, "evaluate": "end"}), tmp_path / "run")
    found = done.read_scores()["scores"]["toy/corpus:dev"]
    assert found["loss"] == pytest.approx(found["mlm_loss_1"] + found["mlm_loss_2"] + 50 * found["discriminator_loss"])
    task = {"name": "toy/nli", "train_rows": 40, "dev_rows": 20}
    tuned = run({"model": {"name": str(done.path)}, "tasks": [task], "train": {"max_steps": 2}}, tmp_path / "task")
    assert np.isfinite(tuned.read_scores()["scores"]["toy/nli:dev"]["nll"])


def test_cost_of_a_run_is_that_of_the_formula() -> None:
    from encodery.training.build import build, find_inputs

    resolved = resolve(settings({"kind": "amos"}, "amos"))
    made = build(resolved, find_inputs(resolved))
    lengths = np.array([40, 20])
    net, side = flops.Net(32, 64, 32, made.model.encoder.net.config.vocab_size, (None,) * 2), 2
    wanted = flops.amos(net, flops.Net(32, 64, 32, net.vocabulary, (None,) * side), 2, lengths, 9.0, linear=True)
    assert flops.step(made.model.objective("toy/corpus"), made.model.encoder.net.config, lengths) == wanted


@pytest.mark.slow
def test_a_task_begins_from_it_in_both_layouts_and_with_a_method(pretrained: RunDir, tmp_path: Path) -> None:
    tree = {
        "model": {"name": str(pretrained.path)},
        "tasks": [{"name": "toy/nli", "train_rows": 40, "dev_rows": 20}],
        "method": {"kind": "freelb"},
        "train": {"max_steps": 2, "batch_size": 8, "max_length": 32},
    }
    scores = []
    for layout in ("packed", "rows"):
        tree["train"]["layout"] = layout  # type: ignore[index]
        tree["model"]["dropout"] = tree["model"]["attention_dropout"] = 0.0  # type: ignore[index]
        done = run(tree, tmp_path / layout)
        scores.append(done.read_scores()["scores"]["toy/nli:dev"]["nll"])
        assert "left out: discriminator_predictions.dense_prediction" in done.log_file.read_text()
    assert scores[0] == pytest.approx(scores[1], abs=1e-5)
    from transformers import AutoModelForSequenceClassification

    _, report = AutoModelForSequenceClassification.from_pretrained(done.model, output_loading_info=True)
    assert not report["missing_keys"]


@pytest.mark.slow
def test_pretraining_goes_on_with_generator_mixture_and_head(pretrained: RunDir, tmp_path: Path) -> None:
    tree = settings({"kind": "amos"}, train={"max_steps": 1, "evaluate": "end"})
    tree["model"] = {"name": str(pretrained.path)}
    tree["optim"] = ADAM | {"warmup": 0.9}  # the first step moves nothing: what is scored is what was taken over
    again = run(tree, tmp_path / "again")
    before, after = (x.read_scores()["scores"]["toy/corpus:dev"] for x in (pretrained, again))
    assert after == pytest.approx(before, abs=1e-5)
    assert "is new" not in again.log_file.read_text()


def test_other_trunks_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="amos works on amos, electra, bert, modernbert encoders, not on roberta"):
        run(settings({"kind": "amos"}, "roberta"), tmp_path / "c")


def test_recipes_are_as_published() -> None:
    names = ("base", "base++", "small")
    base, plus, small = (resolve({"extends": f"recipe:pretrain/amos-{name}"}).config for name in names)
    assert (base.train.max_steps, base.train.batch_size, base.train.max_length) == (125_000, 2048, 512)
    assert (plus.train.max_steps, plus.train.batch_size, plus.train.max_length) == (1_950_000, 2048, 512)
    assert (base.optim.lr, plus.optim.lr) == (5e-4, 2e-4)
    for one in (base, plus, small):
        optim = one.optim
        assert (optim.betas, optim.eps, optim.bias_correction, optim.clip) == ((0.9, 0.98), 1e-6, True, 2.0)
        assert (optim.weight_decay, optim.decay) == (0.01, "all")
        assert (optim.warmup, optim.warmup_style) == (10_000, "sequential")
        assert one.model.new is not None
        assert one.model.new.kind == "amos"
    assert plus.model.new is not None
    assert plus.model.new.config == {"rel_pos_bins": 64}


@pytest.mark.parametrize("size", ["tiny", "mini"])
def test_small_recipes_are_twins_of_electras(size: str) -> None:
    one, two = (resolve({"extends": f"recipe:pretrain/{kind}-{size}"}).config for kind in ("amos", "electra"))
    assert (one.model, one.optim, one.train, one.seed) == (two.model, two.optim, two.train, two.seed)
    assert [{k: v for k, v in task.items() if k != "objective"} for task in one.tasks] == [
        {k: v for k, v in task.items() if k != "objective"} for task in two.tasks
    ]
