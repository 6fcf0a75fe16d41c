"""The words of other programs lead to settings that exist."""

import pytest

from encodery.config import load as config_load
from encodery.config.components import find
from encodery.config.foreign_flags import SYNONYMS, ours
from encodery.config.load import load
from encodery.config.schema import Config
from encodery.config.validate import _sub_fields
from encodery.errors import UserError


@pytest.mark.parametrize("target", SYNONYMS)
def test_every_target_is_a_setting(target):
    section, _, key = target.partition(".")
    fields = (
        find("methods", "freelb").model_fields
        if section == "method"
        else _sub_fields(Config.model_fields[section].annotation)
    )
    assert section in Config.model_fields
    assert not key or key in fields


def test_no_word_is_given_two_meanings_and_none_is_a_key_of_its_own_section():
    words = [word for some in SYNONYMS.values() for word in some.split()]
    assert len(words) == len(set(words))
    for target, some in SYNONYMS.items():
        assert not set(some.split()) & set(_sub_fields(Config.model_fields[target.partition(".")[0]].annotation))


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("--learning_rate=3e-5", "optim.lr"),
        ("--learning-rate=3e-5", "optim.lr"),
        ("optim.learning_rate=3e-5", "optim.lr"),
        ("--num_train_epochs=3", "train.epochs"),
        ("per_device_train_batch_size=8", "train.batch_size"),
        ("train.max_seq_length=64", "train.max_length"),
        ("warmup_ratio=0.1", "optim.warmup"),
    ],
)
def test_a_word_of_another_program_is_answered_with_ours(typed, meant):
    with pytest.raises(UserError, match=rf"did you mean {meant}\?"):
        config_load.load({"model": "some-encoder", "tasks": "toy/nli"}, [typed])
    assert ours("nonsense") is None


def test_adv_steps_is_answered_with_both_of_its_meanings():
    for typed in ("adv_steps=2", "method.adv_steps=2"):
        with pytest.raises(UserError, match=r"did you mean method\.steps \(passes.* or method\.ascent_steps \(ascents"):
            load({"model": "x", "tasks": "toy/nli", "method": "freelb"}, [typed])
