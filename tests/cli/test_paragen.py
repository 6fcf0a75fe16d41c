"""ParaGen's names against the real components: what they lead to, and what a person sees of it."""

from pathlib import Path
from typing import Any

import pytest

from encodery import paragen
from encodery.config import load
from encodery.methods.freelb import FreeLB
from encodery.progress import Progress
from encodery.reference import schema
from encodery.run import train_run
from encodery.yaml_reader import value
from tests.helpers import settings


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


def test_the_note_is_printed_and_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tree = settings(tmp_path, rows=16, dev=8, method={"kind": "freelb"}, train={"max_steps": 1, "evaluate": "never"})
    run = train_run(load(tree, ["--task.model.init_mag", "0.03"]), tmp_path / "run", progress=Progress())
    line = "ParaGen's task.model.init_mag is method.init_mag here: method.init_mag=0.03."
    said = capsys.readouterr()
    assert line in said.out + said.err
    assert line in (run.path / "log.txt").read_text()
    assert "init_mag: 0.03" in run.config_text()


def test_the_verb_takes_a_paragen_command_line(encodery: Any) -> None:
    words = ["--task.model.adv_lr", "0.05", "--task.model.init_mag", "0.2", "--task.model.max_norm", "0.2"]
    said = encodery("config", "recipe:freelb/paragen/rte", *words)
    assert said.code == 0
    assert "adv_lr: 0.05" in said.out
    assert "ParaGen's task.model.adv_lr is method.adv_lr here" in said.out + said.err
    said = encodery("config", "recipe:freelb/paragen/rte", "--task.model.adv_rate", "0.05")
    assert said.code == 2
    assert "did you mean task.model." in said.err
