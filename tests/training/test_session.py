"""A run at work: what is chosen, when it is scored and saved, what is alarming, and that equal seeds are equal runs."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from encodery.config import schema
from encodery.errors import RunFailed, Stopped, UserError
from encodery.inference import outputs
from encodery.models.model import Model
from encodery.runs.directory import RunDir
from encodery.training import build, checkpoint, loop
from encodery.training.loop import StepReport
from encodery.training.session import Session
from tests.toolbox.runs import metrics_of, resolve, run, settings, weights_of


def evaluations(folder: RunDir) -> list[int]:
    return [line["step"] for line in folder.metrics() if "eval.accuracy" in line]


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[n], b[n]) for n in a)


def stop_at(step: int) -> Callable[[StepReport], None]:
    """Dies as a killed process would: nothing is saved any more."""

    def watch(report: StepReport) -> None:
        if report.step == step:
            raise KeyboardInterrupt

    return watch


# When


@pytest.mark.parametrize(
    ("text", "per_epoch", "due"),
    [
        ("3 steps", 10, [3, 6, 9, 12]),
        ("1 step", 10, list(range(1, 13))),
        ("1 epoch", 5, [5, 10]),
        ("1/2 epoch", 5, [3, 5, 8, 10]),
        ("2 epochs", 5, [10]),
        ("1/9 epoch", 5, list(range(1, 13))),
        ("end", 5, []),
        ("never", 5, []),
    ],
)
def test_intervals_are_arithmetic_on_the_step(text: str, per_epoch: int, due: list[int]) -> None:
    interval = schema.interval(text, per_epoch)
    assert [step for step in range(1, 13) if interval.due(step)] == due


def test_minutes_go_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(schema.time, "monotonic", lambda: now[0])
    interval = schema.interval("2 min", 5)
    assert interval.seconds == 120
    interval.last = 100.0
    assert not interval.due(1)
    now[0] = 220.0
    assert interval.due(2)
    assert not interval.due(3)
    assert not schema.Every().due(1)


@pytest.mark.parametrize("key", ["evaluate", "save"])
@pytest.mark.parametrize("value", ["0 steps", "1/0 epoch", "0 epochs", "0 min", "soon"])
def test_intervals_that_mean_nothing_are_refused(tmp_path: Path, key: str, value: str) -> None:
    with pytest.raises(UserError, match=f"train.{key}"):
        resolve(settings(tmp_path, train={key: value}))


@pytest.mark.slow(0.5)
@pytest.mark.parametrize(
    ("evaluate", "steps"),
    [("5 steps", [5, 10, 12]), ("1/2 epoch", [3, 6, 9, 12]), ("1 epoch", [6, 12]), ("end", [12]), ("never", [])],
)
def test_the_dev_set_is_scored_when_asked(tmp_path: Path, evaluate: str, steps: list[int]) -> None:
    assert evaluations(run(settings(tmp_path, train={"evaluate": evaluate}), tmp_path / "run")) == steps


@pytest.mark.slow(0.5)
def test_the_log_has_the_mean_of_the_steps_since(tmp_path: Path) -> None:
    fine = run(settings(tmp_path, train={"log": 1, "evaluate": "never"}), tmp_path / "fine").metrics()
    coarse = run(settings(tmp_path, train={"log": 5, "evaluate": "never"}), tmp_path / "coarse").metrics()
    assert [line["step"] for line in coarse] == [5, 10, 12]
    assert coarse[0]["loss"] == pytest.approx(math.fsum(line["loss"] for line in fine[:5]) / 5)


# What is chosen


def scripted(monkeypatch: pytest.MonkeyPatch, scores: list[float]) -> None:
    """Dev scores that are known beforehand: one per evaluation, the last one for good."""
    from encodery.tasks.table import Table

    turn = iter(scores)
    last = [0.0]

    def score(self: Any, *_: Any) -> dict[str, float]:
        last[0] = next(turn, last[0])
        return {"accuracy": last[0], "nll": 1 - last[0]}

    monkeypatch.setattr(Table, "score", score)
    monkeypatch.setattr(outputs, "majority", lambda *_: {"accuracy": 0.0, "nll": 0.0})


def snapshots(monkeypatch: pytest.MonkeyPatch) -> dict[int, dict[str, torch.Tensor]]:
    """The weights at every evaluation."""
    found: dict[int, dict[str, torch.Tensor]] = {}
    evaluate = Session.evaluate

    def watched(self: Session) -> bool:
        found[self.state.step] = {
            n: t.clone() for n, t in self.built.model.objective("table/train").head.state_dict().items()
        }
        return evaluate(self)

    monkeypatch.setattr(Session, "evaluate", watched)
    return found


@pytest.mark.slow(0.5)
@pytest.mark.parametrize(
    ("select", "metric", "scores", "step"),
    [
        ("last", None, [0.5, 0.9, 0.6, 0.7], 12),
        ("best", None, [0.5, 0.9, 0.6, 0.7], 6),
        ("best", None, [0.9, 0.9, 0.6, 0.7], 3),  # ties: the first
        ("best", "nll", [0.5, 0.6, 0.9, 0.7], 9),  # less is better
    ],
)
def test_the_last_or_the_best_checkpoint_becomes_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, select: str, metric: str | None, scores: list[float], step: int
) -> None:
    scripted(monkeypatch, scores)
    seen = snapshots(monkeypatch)
    options = {"select": select, "select_metric": metric, "evaluate": "3 steps", "save": "2 steps"}
    done = run(settings(tmp_path, train=options), tmp_path / "run")
    chosen = done.read_scores()["chosen"]
    assert (chosen["select"], chosen["step"]) == (select, step)
    assert chosen.get("chosen_on") == ("dev" if select == "best" else None)
    stored = weights_of(done)
    assert all(torch.equal(stored[name], tensor) for name, tensor in seen[step].items())
    assert ("best on dev, reported on dev" in done.log_file.read_text()) == (select == "best")


@pytest.mark.slow(0.5)
def test_a_holdout_is_chosen_on_and_not_trained_on(tmp_path: Path) -> None:
    tree = settings(tmp_path, train={"holdout": 0.25, "select": "best", "evaluate": "3 steps"})
    resolved = resolve(tree)
    built = build.build(resolved, build.find_inputs(resolved))
    assert built.choice
    assert (built.choice.name, len(built.choice.examples)) == ("holdout", 24)
    trained = set(built.batches.table.example_ids)
    assert len(built.batches.rows) == 72
    assert not trained & {e.id for e in built.choice.examples}
    done = run(tree, tmp_path / "run")
    scores = done.read_scores()
    assert scores["chosen"]["chosen_on"] == "holdout"
    assert list(scores["scores"]) == ["table/train:dev"]
    assert "reported on dev" not in done.log_file.read_text()


@pytest.mark.slow(0.5)
def test_a_holdout_is_scored_where_asked_so_that_a_sweep_can_choose_on_it(tmp_path: Path) -> None:
    tree = settings(tmp_path, train={"holdout": 0.25, "evaluate": "end"})
    tree["tasks"][0]["evaluate_on"] = ["holdout"]
    done = run(tree, tmp_path / "run")
    scores = done.read_scores()["scores"]
    assert list(scores) == ["table/train:holdout"]
    last = [line for line in done.metrics() if line.get("split") == "holdout"][-1]
    assert scores["table/train:holdout"]["accuracy"] == last["eval.accuracy"]
    assert len(done.read_predictions("table/train", "holdout")) == 24
    with pytest.raises(UserError, match=r"tasks.evaluate_on: holdout needs train.holdout"):
        run({**tree, "train": {**tree["train"], "holdout": 0}}, tmp_path / "none")


@pytest.mark.slow
def test_patience_stops_early_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch, [0.5, 0.9, 0.6, 0.7, 0.95])
    options = {"patience": 2, "evaluate": "2 steps", "select": "best"}
    done = run(settings(tmp_path, train=options), tmp_path / "run")
    assert evaluations(done) == [2, 4, 6, 8]
    chosen = done.read_scores()["chosen"]
    assert (chosen["stopped_early"], chosen["step"]) == (True, 4)
    assert "stopping early: no better accuracy in 2 evaluations" in done.log_file.read_text()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"train": {"select": "best", "evaluate": "never"}}, r"train\.select: best needs .*train\.evaluate"),
        ({"train": {"patience": 2, "evaluate": "never"}}, r"train\.patience: .*train\.evaluate"),
        ({"train": {"select_metric": "f9"}}, r"train\.select_metric: table/train has no f9; it has accuracy"),
        ({"task": {"evaluate_on": ["dev", "test"]}}, r"evaluate_on: table/train has no test here"),
        ({"task": {"evaluate_on": ["nonsense"]}}, r"evaluate_on: .*nonsense"),
    ],
)
def test_what_cannot_be_done_at_the_end_is_refused_at_the_start(
    tmp_path: Path, change: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "gradient", lambda *_: pytest.fail("a step was taken"))
    with pytest.raises(UserError, match=said):
        run(settings(tmp_path, **change), tmp_path / "run")


def test_a_shorter_encoder_shortens_the_texts_with_a_note(tmp_path: Path) -> None:
    tree = settings(tmp_path, train={"max_length": 512, "max_steps": 1})
    done = run(tree, tmp_path / "run")
    assert "max_length 512 is more than the positions of this encoder; using 64" in done.log_file.read_text()
    assert json.loads((done.model / "encodery.json").read_text())["tasks"]["table/train"]["max_length"] == 64


# R15


def test_R15_constant_predictions_are_alarming(tmp_path: Path) -> None:
    done = run(settings(tmp_path, optim={"lr": 1e-9}, train={"max_steps": 2}), tmp_path / "run")
    (alarm,) = done.read_scores()["alarms"]
    assert alarm.startswith("table/train:dev: every prediction is")
    assert f"ALARM: collapsed? {alarm}" in done.log_file.read_text()


@pytest.mark.slow(0.5)
def test_R15_a_loss_that_stays_at_ln_classes_is_alarming(tmp_path: Path) -> None:
    tree = settings(tmp_path, noise=True, optim={"lr": 1e-6}, train={"max_steps": 40}, task={"weight": 0.5})
    done = run(tree, tmp_path / "run")
    alarms = [a for a in done.read_scores()["alarms"] if "near ln 2 = 0.6931" in a]
    assert len(alarms) == 1
    assert f"ALARM: collapsed? {alarms[0]}" in done.log_file.read_text()


@pytest.mark.slow
def test_R15_learning_is_not_alarming(tmp_path: Path) -> None:
    tree = settings(tmp_path, optim={"lr": 1e-2}, train={"max_steps": 60, "batch_size": 32}, task={"weight": 2.0})
    done = run(tree, tmp_path / "run")
    scores = done.read_scores()
    assert scores["scores"]["table/train:dev"]["accuracy"] > 0.9
    assert scores["alarms"] == []
    assert "ALARM" not in done.log_file.read_text()


@pytest.mark.slow(0.5)
def test_R15_nothing_is_said_of_the_loss_before_warm_up_is_over(tmp_path: Path) -> None:
    tree = settings(tmp_path, noise=True, optim={"lr": 1e-6, "warmup": 30}, train={"max_steps": 30})
    alarms = run(tree, tmp_path / "run").read_scores()["alarms"]
    assert not [a for a in alarms if "near ln" in a]


# F20 and resuming


@pytest.mark.slow(0.5)
def test_F20_equal_seeds_are_equal_runs_and_others_are_not(tmp_path: Path) -> None:
    a, b = (run(settings(tmp_path, seed=3), tmp_path / name) for name in ("a", "b"))
    assert a.read_scores() == b.read_scores()
    assert metrics_of(a) == metrics_of(b)
    assert same(weights_of(a), weights_of(b))
    other = run(settings(tmp_path, seed=4), tmp_path / "other")
    assert not same(weights_of(a), weights_of(other))


def built_with(tmp_path: Path, seed: Any) -> tuple[Model, list[int], int]:
    resolved = resolve(settings(tmp_path, seed=seed))
    built = build.build(resolved, build.find_inputs(resolved))
    return built.model, built.batches.rows_at(0).tolist(), built.batches.at(0)[0].seed


@pytest.mark.slow
def test_F20_seeds_of_weights_and_data_are_separate(tmp_path: Path) -> None:
    model, rows, noise = built_with(tmp_path, {"init": 1, "data": 1})
    data, data_rows, data_noise = built_with(tmp_path, {"init": 1, "data": 2})
    init, init_rows, init_noise = built_with(tmp_path, {"init": 2, "data": 1})
    assert same(model.state_dict(), data.state_dict())
    assert (data_rows != rows, data_noise) == (True, noise)
    head = [n for n in model.state_dict() if n.startswith("questions") and n.endswith("classifier.weight")]
    assert all(not torch.equal(model.state_dict()[n], init.state_dict()[n]) for n in head)
    assert (init_rows, init_noise != noise) == (rows, True)


def test_F20_one_seed_changes_head_and_order(tmp_path: Path) -> None:
    one, rows, _ = built_with(tmp_path, 1)
    two, other_rows, _ = built_with(tmp_path, 2)
    assert rows != other_rows
    assert not same(one.objective("table/train").state_dict(), two.objective("table/train").state_dict())


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"select": "best", "evaluate": "2 steps"},
        pytest.param({"precision": "bf16"}, marks=pytest.mark.slow),
        pytest.param({"micro_batch": 3}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_R4_a_killed_run_goes_on_to_the_same_bits_and_records(tmp_path: Path, change: dict[str, Any]) -> None:
    tree = settings(tmp_path, train={"save": "3 steps", "evaluate": "4 steps", "keep_checkpoints": True, **change})
    straight = run(tree, tmp_path / "straight")
    for step in (2, 8):
        with pytest.raises(KeyboardInterrupt):
            run(tree, tmp_path / "killed", watch=stop_at(step))
    killed = run(tree, tmp_path / "killed")
    assert "resuming at step" in killed.log_file.read_text()
    assert metrics_of(killed) == metrics_of(straight)
    assert killed.read_scores() == straight.read_scores()
    assert same(weights_of(killed), weights_of(straight))


@pytest.mark.slow(0.5)
def test_a_run_that_was_told_to_stop_saves_and_goes_on(tmp_path: Path) -> None:
    import os
    import signal

    tree = settings(tmp_path, train={"save": "end"})
    straight = run(tree, tmp_path / "straight")

    def polite(report: StepReport) -> None:
        if report.step == 5:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Stopped, match="stopped at step 5 of 12, checkpoint saved"):
        run(tree, tmp_path / "run", watch=polite)
    again = run(tree, tmp_path / "run")
    assert metrics_of(again) == metrics_of(straight)
    assert same(weights_of(again), weights_of(straight))


@pytest.mark.slow
def test_lora_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    tree = settings(tmp_path, model={"tune": "lora"}, train={"save": "3 steps", "max_steps": 8})
    straight = run(tree, tmp_path / "straight")
    with pytest.raises(KeyboardInterrupt):
        run(tree, tmp_path / "killed", watch=stop_at(5))
    assert same(weights_of(run(tree, tmp_path / "killed")), weights_of(straight))
    assert not [n for n in weights_of(straight) if "lora" in n]


@pytest.mark.slow(0.5)
def test_R6_a_run_that_fails_keeps_a_finite_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gradient = loop.gradient

    def broken(model: Model, method: Any, batches: Any, state: Any, reduction: str, *more: Any) -> Any:
        found = gradient(model, method, batches, state, reduction, *more)
        if state.step == 7:
            next(p for p in model.parameters() if p.grad is not None).grad.fill_(math.nan)  # type: ignore[union-attr]
        return found

    monkeypatch.setattr(loop, "gradient", broken)
    with pytest.raises(RunFailed, match=r"step 8: the gradient norm is not finite; task table/train, examples \d+"):
        run(settings(tmp_path, train={"save": "1 step"}), tmp_path / "run")
    found, skipped = checkpoint.newest_intact(tmp_path / "run" / "checkpoints")
    assert found
    assert (found.step, skipped) == (7, [])
    assert all(torch.isfinite(t).all() for group in found.groups for t in found.tensors(group).values())


# F22 and F23


@pytest.mark.slow(0.5)
def test_F22_init_from_brings_the_encoder_and_not_the_head(tmp_path: Path) -> None:
    first = run(settings(tmp_path), tmp_path / "first")
    tree = settings(tmp_path, seed=2)
    tree["model"] = {"name": str(first.model), "init_from": "first"}
    tree["model"]["init_from"] = str(first.path)
    resolved = resolve(tree)
    model = build.build(resolved, build.find_inputs(resolved)).model
    stored = weights_of(first)
    for name, tensor in model.encoder.net.state_dict().items():
        assert torch.equal(tensor, stored[f"bert.{name}"]), name
    head = model.objective("table/train").head.state_dict()
    assert not torch.equal(head["classifier.weight"], stored["classifier.weight"])


@pytest.mark.slow
def test_F23_a_model_carries_task_labels_head_length_and_tokenizer(tmp_path: Path) -> None:
    done = run(settings(tmp_path, model={"head": "linear"}), tmp_path / "run")
    card = json.loads((done.model / "encodery.json").read_text())
    about = card["tasks"]["table/train"]
    assert (about["labels"], about["head"], about["max_length"]) == (["bad", "good"], "linear", 16)
    assert about["task"]["train"] == "train.csv"
    assert len(card["tokenizer"]) == 64


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        {"model": {"tune": "head"}},
        {"model": {"tune": "top:1"}},
        {"train": {"gradient_checkpointing": True}},
        {"train": {"precision": "fp16"}},
        {"train": {"loss_reduction": "sum"}},
        {"task": {"objective": {"class_weights": "balanced", "label_smoothing": 0.1}}},
        {"task": {"objective": {"head": "mlp_gelu"}}, "model": {"head_dropout": 0.3}},
        {"task": {"fraction": 0.5}},
        {"optim": {"kind": "adamax", "schedule": "wsd", "layer_decay": 0.8}},
    ],
    ids=str,
)
def test_every_kind_of_run_ends_with_a_model_and_scores(tmp_path: Path, change: dict[str, Any]) -> None:
    tree = settings(tmp_path, **{**change, "train": {"max_steps": 3, **change.get("train", {})}})
    done = run(tree, tmp_path / "run")
    assert done.is_done
    assert 0 <= done.read_scores()["scores"]["table/train:dev"]["accuracy"] <= 1
    assert done.problem() is None


def test_an_objectives_own_head_keeps_the_models_dropout(tmp_path: Path) -> None:
    resolved = resolve(settings(tmp_path, task={"objective": {"head": "linear"}}, model={"head_dropout": 0.3}))
    built = build.build(resolved, build.find_inputs(resolved))
    assert built.model.objective("table/train").head.dropout.p == 0.3


def test_gradient_checkpointing_of_albert_is_a_sentence(tmp_path: Path) -> None:
    tree = settings(tmp_path, train={"gradient_checkpointing": True})
    tree["model"]["new"]["kind"] = "albert"
    with pytest.raises(UserError, match="gradient_checkpointing: albert has none"):
        run(tree, tmp_path / "run")
