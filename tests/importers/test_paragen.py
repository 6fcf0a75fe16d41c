"""ParaGen's dotted names: `sweep import` translates them; on a command line the error names our key."""

from typing import Any

import pytest

from encodery.config.load import load
from encodery.config.reference import schema
from encodery.core.yaml import value
from encodery.errors import UserError
from encodery.importers import paragen
from encodery.methods.freelb import FreeLB

BASE = {"model": "bert", "tasks": "fake/rte", "method": "freelb"}


def refusal(name: str, text: str) -> str:
    with pytest.raises(UserError) as error:
        paragen.translate(name, text)
    return str(error.value)


@pytest.mark.slow
def test_every_name_leads_to_a_key_that_exists() -> None:
    whole = schema()
    for ours in paragen.KEYS.values():
        first, _, rest = ours.partition(".")
        part: Any = whole["properties"][first]
        if first == "method":
            assert rest in FreeLB.model_fields
        elif rest:
            refs = [one["$ref"] for one in [part, *part.get("anyOf", [])] if "$ref" in one]
            assert rest in whole["$defs"][refs[0].rpartition("/")[2]]["properties"], ours
    assert not paragen.KEYS.keys() & paragen.INSTEAD.keys()
    assert all(value(paragen.spelled(name, "3")) is not None for name in paragen.KEYS)


@pytest.mark.usefixtures("small_components")
@pytest.mark.parametrize("name", sorted(paragen.KEYS))
def test_W2_on_a_command_line_the_error_names_our_key(name: str) -> None:
    for words in ([f"--{name}", "3"], [f"--{name}=3"], [f"{name}=3"]):
        with pytest.raises(UserError) as error:
            load(BASE, words)
        assert error.value.exit_code == 2
        assert str(error.value) == f"command line: {name}: unknown key; did you mean {paragen.KEYS[name]}?"


@pytest.mark.usefixtures("small_components")
@pytest.mark.parametrize(
    "words", [["--task.model.adv_lr", "3", "--task", "rte"], ["task=glue/rte", "task.model.adv_lr=3"]]
)
def test_a_task_beside_them_does_not_hide_it(words: list[str]) -> None:
    with pytest.raises(UserError) as error:
        load(BASE, words)
    assert set(str(error.value).splitlines()) == {
        "command line: task.model.adv_lr: unknown key; did you mean method.adv_lr?",
        "command line: task: unknown key; did you mean tasks?",
    }


@pytest.mark.usefixtures("small_components")
def test_each_of_several_names_is_answered() -> None:
    with pytest.raises(UserError) as error:
        load(BASE, ["--task.model.adv_lr=3", "--task.trainer.optimizer.lr.max_rate=1e-5"])
    assert str(error.value).splitlines() == [
        "command line: task.model.adv_lr: unknown key; did you mean method.adv_lr?",
        "command line: task.trainer.optimizer.lr.max_rate: unknown key; did you mean optim.lr?",
    ]


def test_values_are_written_our_way() -> None:
    assert paragen.translate("task.trainer.optimizer.betas", "(0.9, 0.98)")[:2] == ("optim.betas", "[0.9, 0.98]")
    assert paragen.translate("task.trainer.validate_interval_epoch", "2")[:2] == ("train.evaluate", "2 epochs")
    assert paragen.translate("task.trainer.validate_interval_step", "500")[:2] == ("train.evaluate", "500 steps")
    assert paragen.translate("env.fp16", "False")[:2] == ("train.precision", "fp32")
    assert paragen.translate("env.fp16", "True")[:2] == ("train.precision", "fp16")
    key, text, note = paragen.translate("task.trainer.optimizer.lr.max_rate", "2e-5")
    assert (key, text) == ("optim.lr", "2e-5")
    assert "task.trainer.optimizer.lr.max_rate" in note
    assert paragen.translate("optim.lr", "1") == ("optim.lr", "1", "")


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
    assert refusal(typed, "1").endswith(f"did you mean {meant}?")


def test_W2_a_name_like_no_other_lists_them_all() -> None:
    assert "there are: task.model.pretrained_model, " in refusal("env.zzzzzzzzzz", "1")


def test_names_without_a_counterpart_say_what_to_do() -> None:
    assert "multiply" in refusal("task.trainer.optimizer.update_frequency", "4")
    assert "--method freelb" in refusal("task.model.class", "AdvHuggingfaceSequenceClassificationModel")


@pytest.mark.parametrize("zero", ["0", "0.0", ".0", "0e5"])
def test_a_zero_that_means_the_opposite_is_refused(zero: str) -> None:
    """F8 of the adversarial facts: in ParaGen it forces the perturbation to 0, here it is no limit."""
    assert "in ParaGen 0 means no perturbation, here no limit" in refusal("task.model.max_norm", zero)
    assert paragen.translate("task.model.max_norm", "0.01")[:2] == ("method.max_norm", "0.01")
