"""ParaGen's dotted names: understood on the command line, said aloud, refused where they would mean something else."""

import pytest

from encodery import paragen
from encodery.config import load
from encodery.errors import UserError

pytestmark = pytest.mark.usefixtures("small_rooms")
BASE = {"model": "bert", "tasks": "fake/rte", "method": "freelb"}
SAMPLES = {
    "model.name": "roberta-base",
    "model.tokenizer": "roberta-base",
    "optim.betas": "(0.9, 0.98)",
    "device": "cpu",
}


def refusal(words: list[str]) -> str:
    with pytest.raises(UserError) as error:
        load(BASE, words)
    assert error.value.exit_code == 2
    return str(error.value)


@pytest.mark.parametrize("name", sorted(paragen.KEYS))
def test_W4_every_name_works_in_all_three_styles(name: str) -> None:
    ours = paragen.KEYS[name]
    text = "True" if name == "env.fp16" else SAMPLES.get(ours, "3")
    one, two, three = (load(BASE, words) for words in ([f"--{name}", text], [f"--{name}={text}"], [f"{name}={text}"]))
    assert one == two == three
    assert one.notes == two.notes == three.notes
    key, typed, note = paragen.translate(name, text)
    plain = load(BASE, [f"{key}={typed}"])
    assert one == plain
    assert plain.notes == []
    assert one.notes == [note]
    assert name in note
    assert ours in note


def test_the_places_of_translated_values_name_what_was_typed() -> None:
    got = load(BASE, ["--task.model.init_mag", "0.03", "--env.seed", "7"])
    assert got.method.init_mag == 0.03  # type: ignore[attr-defined]
    assert (got.config.seed.init, got.config.seed.data) == (7, 7)
    assert got.origins["method.init_mag"] == "command line, task.model.init_mag"
    assert got.origins["seed.init"] == "command line, env.seed"
    assert "command line, task.model.init_mag: method.init_mag: expected a number" in refusal(["task.model.init_mag=a"])


def test_values_are_written_our_way() -> None:
    words = ["--task.trainer.optimizer.betas", "(0.9, 0.98)", "--task.trainer.validate_interval_epoch", "2"]
    got = load(BASE, [*words, "--env.fp16", "False", "--task.trainer.optimizer.lr.max_rate", "2e-5"]).config
    assert got.optim.betas == (0.9, 0.98)
    assert got.train.evaluate == "2 epochs"
    assert got.train.precision == "fp32"
    assert got.optim.lr == 2e-5
    assert load(BASE, ["task.trainer.validate_interval_step=500"]).config.train.evaluate == "500 steps"
    assert load(BASE, ["env.fp16=True"]).config.train.precision == "fp16"


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("task.model.init_mga", "task.model.init_mag"),
        ("task.model.adv_1r", "task.model.adv_lr"),
        ("task.optimizer.lr.max_rate", "task.trainer.optimizer.lr.max_rate"),
        ("env.sed", "env.seed"),
        ("task.fraction", "tasks.fraction"),
        ("task.max_length", "tasks.max_length"),
    ],
)
def test_W2_an_unknown_name_is_refused_with_the_nearest(typed: str, meant: str) -> None:
    for words in ([f"--{typed}", "1"], [f"--{typed}=1"], [f"{typed}=1"]):
        message = refusal(words)
        assert message.startswith(f"command line: {typed}: ")
        assert message.endswith(f"did you mean {meant}?")


def test_W2_a_name_like_no_other_lists_them_all() -> None:
    assert "there are: task.model.pretrained_model, " in refusal(["env.zzzzzzzzzz=1"])


def test_names_without_a_counterpart_say_what_to_do() -> None:
    assert "multiply" in refusal(["--task.trainer.optimizer.update_frequency", "4"])
    assert "--method freelb" in refusal(["task.model.class=AdvHuggingfaceSequenceClassificationModel"])


@pytest.mark.parametrize("zero", ["0", "0.0", ".0", "0e5"])
def test_a_zero_that_means_the_opposite_is_refused(zero: str) -> None:
    """F8 of the adversarial facts: in ParaGen it forces the perturbation to 0, here it is no limit."""
    assert "in ParaGen 0 means no perturbation, here no limit" in refusal([f"task.model.max_norm={zero}"])
    assert load(BASE, ["task.model.max_norm=0.01"]).method.max_norm == 0.01  # type: ignore[attr-defined]


def test_two_names_for_one_setting_must_agree_and_later_wins() -> None:
    steps, total = "task.trainer.max_steps", "task.trainer.optimizer.lr.total_steps"
    assert load(BASE, [f"{steps}=9", f"{total}=9"]).config.train.max_steps == 9
    assert f"{total}: 8, but {steps} is 9; here both are train.max_steps" in refusal([f"{steps}=9", f"{total}=8"])
    assert load(BASE, [f"{steps}=9", f"{steps}=8"]).config.train.max_steps == 8
    assert load(BASE, [f"{steps}=9", "train.max_steps=7"]).config.train.max_steps == 7


def test_our_own_names_are_left_alone() -> None:
    for key in ("tasks.fraction", "task", "env", "method.init_mag", "environment.x"):
        assert paragen.translate(key, "1") == (key, "1", "")
    assert "task: unknown key; did you mean tasks?" in refusal(["task=fake/mnli"])
    assert load(BASE, ["tasks.fraction=0.5"]).notes == []
