"""S12: values that no run can use are refused with their key, and labels that no model can learn with their line."""

import json
from pathlib import Path
from typing import Any

import pytest

from encodery.config.load import load
from encodery.errors import UserError
from tests.toolbox.faults import command
from tests.toolbox.runs import resolve, settings

BAD = [
    ("optim.betas=[0.9]", "optim.betas"), ("optim.betas=[0.9,0.99,0.999]", "optim.betas"),
    ("optim.betas=[0.9,1.0]", "optim.betas"), ("optim.betas=[-0.1,0.9]", "optim.betas"),
    ("model.new.config={hidden_size: 0}", "model.new.config"),
    ("model.new.config={hidden_size: -4}", "model.new.config"),
    ("model.new.config={num_attention_heads: 3}", "model.new"),
    ("model.new.config={hidden_size: 2.5}", "model.new.config"),
    ("model.new.config={vocab_size: 1000000000000}", "model.new.config"),
    ("model.new.config={num_hidden_layers: lots}", "model.new.config"),
    ("model.new.config={hidden_dropout_prob: 2}", "model.new.config"),
    ("threads=100000", "threads"), ("train.epochs=1e18", "train.epochs"), ("train.holdout=0.999", "train.holdout"),
    ("train.max_steps=1000000000000000000", "train.max_steps"), ("train.patience=2 train.evaluate=end", "patience"),
    ("train.patience=2 train.evaluate=never", "patience"), ("optim.warmup=50 train.max_steps=20", "optim.warmup"),
    ("optim.floor=0.1 optim.schedule=constant", "optim.floor"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "key"), BAD)
def test_S12_config_refuses_values_that_no_run_can_use(words: str, key: str, tmp_path: Path) -> None:
    model = [] if "model.new" in words else ["--model.new.size", "tiny"]
    ended = command(["config", *model, "--tasks", "toy/nli", *(f"--{word}" for word in split(words))], tmp_path)
    assert ended.code == 2, ended.output
    assert not ended.is_bug
    assert key in ended.output


def split(words: str) -> list[str]:
    return [words] if "{" in words or "[" in words else words.split()


@pytest.mark.parametrize(
    "words", ["optim.betas=[0,0.98]", "train.epochs=1000000", "threads=1", "train.patience=1", "optim.warmup=0.5",
              "model.new.config={hidden_size: 48, num_attention_heads: 3}", "train.holdout=0.5", "optim.floor=0.1"],
)  # fmt: skip
def test_S12_values_at_the_edge_are_taken(words: str) -> None:
    load({"model": {"new": {}}, "tasks": "toy/nli"}, [words])


def test_S12_a_warm_up_longer_than_the_epochs_is_refused_before_training(tmp_path: Path) -> None:
    from encodery.training.run import train_run

    with pytest.raises(UserError, match=r"optim\.warmup: 500 steps are more than the run's 12"):
        train_run(resolve(settings(tmp_path, optim={"warmup": 500})), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_S12_more_rows_than_there_are_is_refused_before_training(tmp_path: Path) -> None:
    from encodery.training.run import train_run

    with pytest.raises(UserError, match=r"tasks\.count: 1,000 rows are requested, but the training set has 96"):
        train_run(resolve(settings(tmp_path, task={"count": 1000})), tmp_path / "out")
    assert not (tmp_path / "out").exists()


NUMBERS: list[Any] = [1e39, -1e39, 10**400, "1e39", "1e400", "9" * 400, "\ud800"]
LABELS: list[Any] = [10**400, "9" * 400, "\ud800", "x" * 1000]


@pytest.mark.parametrize(
    ("form", "label"), [("regression", one) for one in NUMBERS] + [("single", one) for one in LABELS]
)
def test_S12_labels_that_cannot_be_learnt_are_named_by_line(form: str, label: Any, tmp_path: Path) -> None:
    tree = settings(tmp_path, train={"max_steps": 1}, task={"form": form, "train": "t.jsonl", "dev": None})
    good: list[Any] = [1.0, 2.0] if form == "regression" else ["a", "b"]
    rows = [{"text": f"w{i}", "label": good[i % 2]} for i in range(20)]
    rows[6]["label"] = label
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "c.yaml").write_text(json.dumps(tree))
    ended = command(["train", "c.yaml", "-o", "out"], tmp_path)
    assert ended.code == 2, ended.output
    assert not ended.is_bug
    assert "t.jsonl:7" in ended.output or "line 7" in ended.output, ended.output
