"""The R-Drop recipes against the table of the authors' README; the weight against their loss: test_consistency.py."""

import pytest

from encodery import recipes
from encodery.config.load import load

# batch, updates, warm-up
TABLE = {
    "mnli": (32, 123873, 7432),
    "qnli": (32, 33112, 1986),
    "qqp": (32, 113272, 28318),
    "rte": (8, 2036, 122),
    "sst2": (32, 20935, 1256),
    "mrpc": (16, 2296, 137),
    "cola": (16, 5336, 320),
    "stsb": (16, 3598, 214),
}


def test_every_task_is_there() -> None:
    there = {name for name in recipes.names() if name.startswith("rdrop/")}
    assert there == {f"rdrop/bert-base-cased/{task}" for task in TABLE}


@pytest.mark.parametrize("task", TABLE)
def test_A28_settings_and_weight_are_those_of_the_authors(task: str) -> None:
    got = load(f"recipe:rdrop/bert-base-cased/{task}").config
    batch, updates, warmup = TABLE[task]
    assert (got.train.batch_size, got.train.max_steps, got.optim.warmup) == (batch, updates, warmup)
    assert (got.optim.lr, got.optim.betas, got.optim.eps, got.optim.weight_decay) == (1e-5, (0.9, 0.98), 1e-6, 0.01)
    assert got.method["kind"] == "rdrop"
    assert got.method["weight"] == (1.0 if task == "stsb" else 0.25 * batch)
