"""The FreeLB recipes against the published tables, written anew."""

import math

import pytest

from encodery import recipes
from encodery.config.load import load
from encodery.training.optim import schedule

TASKS = ["cola", "mnli", "mrpc", "qnli", "qqp", "rte", "sst2", "stsb"]

# fairseq part, per task: updates, warm-up, lr, batch (GPUs × sentences × accumulation), adv_lr, ascents, init, radius.
# Where fp16 and fp32 have lines of their own: fp32.
ROBERTA = """
mnli 123873  7432 1e-5 33 0.1   2 0.1  0.3
qnli  33112  1986 1e-5 32 0.075 2 0.15 0.15
qqp  113272 28318 1e-5 32 0.2   2 0.32 0.7
rte    2036   122 1e-5 16 0.06  3 0.16 0.14
sst2  20935  1256 1e-5 32 0.1   2 1.0  0.6
mrpc   2296   137 5e-6 16 0.04  3 0.64 0.4
cola   5536   320 1e-5 16 0.025 3 0.4  0.3
stsb   3598   214 2e-5 16 0.1   3 0.16 0.28
"""
# transformers part, per task: adv_lr, init, radius (0: none), passes, lr, batch, attention dropout, steps, warm-up.
ALBERT = """
sst2 0.1  0.6  0   2 1e-5  32 0   20935 1256
mrpc 0.03 0    0   4 2e-5  16 0     800  200
cola 0.04 0.05 0   3 1e-5  16 0    5336  320
stsb 0.1  0.2  0   3 2e-5  16 0    3598  214
mnli 0.04 0.08 0   3 3e-5 128 0   10000 1000
qqp  0.2  0.32 0.7 3 5e-5 128 0.1 14000 1000
rte  0.1  0    0   3 3e-5  32 0.1   800  200
qnli 0.05 0.1  0   3 1e-5  32 0   33112 1986
"""


def rows(table: str) -> list[tuple[str, list[float]]]:
    lines = (line.split() for line in table.strip().splitlines())
    return [(task, [float(word) for word in words]) for task, *words in lines]


def test_every_table_is_whole() -> None:
    wanted = {f"freelb/{model}/{task}" for model in ("roberta-large", "albert-xxlarge", "minilm-l3") for task in TASKS}
    assert {name for name in recipes.names() if name.startswith("freelb/")} == wanted | {"freelb/paragen/rte"}


# Where ten epochs of the official rows, which all of these scripts have, are fewer updates than their schedule.
TEN_EPOCHS = {"rte": 2490, "cola": 8551, "mnli": 392702, "qnli": 104743}
STEPS = {"sst2": 67349, "mrpc": 3668, "qqp": 363846, "stsb": 5749}


@pytest.mark.parametrize(("task", "row"), rows(ROBERTA))
def test_A27_roberta_large_ends_and_chooses_as_its_script(task: str, row: list[float]) -> None:
    got = load(f"recipe:freelb/roberta-large/{task}").config
    updates = 10 * math.ceil((TEN_EPOCHS | STEPS)[task] / row[3])
    assert (updates < row[0]) == (task in TEN_EPOCHS)
    if task in TEN_EPOCHS:
        assert (got.train.epochs, got.train.max_steps, got.optim.schedule_steps) == (10, None, row[0])
        assert schedule(got.optim, updates)(updates) > 0  # its rate has not come down to zero
    else:
        assert (got.train.max_steps, got.optim.schedule_steps) == (row[0], None)
    assert got.model.head_dropout == 0
    assert got.train.select_metric == ("pearson" if task == "stsb" else None)


@pytest.mark.parametrize(("task", "row"), rows(ROBERTA))
def test_roberta_large(task: str, row: list[float]) -> None:
    got = load(f"recipe:freelb/roberta-large/{task}").config
    method, optim, train = got.method, got.optim, got.train
    strength = [method["adv_lr"], method["steps"] - 1, method["init_mag"], method["max_norm"]]
    assert [train.max_steps or optim.schedule_steps, optim.warmup, optim.lr, train.batch_size, *strength] == row
    assert got.model.name == "FacebookAI/roberta-large"
    assert (optim.betas, optim.eps, optim.weight_decay, optim.decay) == ((0.9, 0.999), 1e-6, 0.1, "all")
    assert (optim.clip, optim.schedule, got.model.dropout, got.model.attention_dropout) == (0, "linear", 0.1, 0.1)
    assert (method["kind"], method["norm"], method["site"], method["consistent_dropout"]) == (
        "freelb",
        "l2",
        "word",
        True,
    )
    assert (train.select, train.max_length) == ("best", 512)


@pytest.mark.parametrize(("task", "row"), rows(ALBERT))
def test_albert_xxlarge(task: str, row: list[float]) -> None:
    got = load(f"recipe:freelb/albert-xxlarge/{task}").config
    method, optim, train = got.method, got.optim, got.train
    strength = [method["adv_lr"], method["init_mag"], method["max_norm"] or 0, method["steps"]]
    length = [train.max_steps, optim.warmup]
    assert [*strength, optim.lr, train.batch_size, got.model.attention_dropout, *length] == row
    assert (got.model.name, got.model.dropout) == ("albert/albert-xxlarge-v2", 0.1)
    assert (optim.weight_decay, optim.clip, train.max_length) == (0.01, 1.0, 512)
    assert (method["kind"], method["norm"]) == ("freelb", "l2")


def test_paragen() -> None:
    got = load("recipe:freelb/paragen/rte").config
    method, optim, train = got.method, got.optim, got.train
    assert (method["steps"], method["adv_lr"], method["init_mag"], method["max_norm"]) == (3, 0.01, 0.05, 0.01)
    assert method["consistent_dropout"] is False
    assert (optim.lr, optim.betas, optim.weight_decay, optim.warmup) == (2e-5, (0.9, 0.98), 1e-3, 122)
    assert (train.max_steps, train.select, got.model.name) == (2036, "best", "FacebookAI/roberta-base")


@pytest.mark.parametrize("task", TASKS)
def test_cpu_twins_differ_from_plain_training_in_the_method_only(task: str) -> None:
    twin, plain = load(f"recipe:freelb/minilm-l3/{task}").config, load(f"recipe:glue/{task}/minilm-l3").config
    assert twin.method["kind"] == "freelb"
    assert twin.model_copy(update={"method": plain.method}) == plain
    assert "ours" in recipes.describe(f"freelb/minilm-l3/{task}").source


def test_the_published_numbers_carry_their_spread() -> None:
    assert "five seeds" in recipes.describe("freelb/roberta-large/rte").expect
    assert "single seeds" in recipes.describe("freelb/paragen/rte").expect
