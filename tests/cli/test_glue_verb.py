"""Which recipes a model gets, and which run of a task is sent."""

import argparse
from pathlib import Path

import pytest

from encodery.cli.glue import _submit, family_of
from encodery.errors import UserError
from tests.report.runs import seeds


def test_a_family_s_name_and_its_model_s_hub_name_mean_the_same_recipes() -> None:
    assert family_of("roberta-base", "bert-base") == ("roberta-base", [])
    assert family_of("FacebookAI/roberta-base", "bert-base") == ("roberta-base", [])


def test_a_model_without_recipes_takes_those_of_another() -> None:
    assert family_of("./mine", "electra-small") == ("electra-small", ["model.name=./mine"])
    with pytest.raises(UserError, match="there is no recipe family nobody"):
        family_of("./mine", "nobody")


def test_the_median_run_of_each_task_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[list[str]] = []
    monkeypatch.setattr("encodery.cli.submit.make", lambda folders, out, **options: sent.append(list(folders)))
    seeds(tmp_path / "rte", [0.6, 0.9, 0.7], task="glue/rte")
    seeds(tmp_path / "cola", [0.3, 0.1, 0.2, 0.4], task="glue/cola")
    _submit(str(tmp_path), argparse.Namespace(submit="x.zip", fill=None, quiet=True))
    assert sent == [[str(tmp_path / "cola" / "seed-3"), str(tmp_path / "rte" / "seed-3")]]
