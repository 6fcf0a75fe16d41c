"""The page about alarms has an entry for every alarm of a training, in the message's words, and messages name it."""

import pytest

from encodery.errors import AFTER_ALARM
from encodery.training.best_checkpoint import majority_warning
from tests.docs.pages import ROOT

PAGE = ROOT / AFTER_ALARM.split()[-1]
# What a message says -> the file that says it, and what the page calls it.
ALARMS = {
    "is not better than the": ("training/best_checkpoint.py", "is not better than the"),
    "ALARM: collapsed?": ("training/session.py", "ALARM: collapsed?"),
    "is near ln": ("training/best_checkpoint.py", "is near ln"),
    "is above ln": ("training/best_checkpoint.py", "is above ln"),
    "every prediction is": ("inference/outputs.py", "every prediction is"),
    "is not finite; task": ("training/loop.py", "is not finite; task"),
    "fp16 overflows in a row": ("training/loop.py", "fp16 overflows in a row"),
    "out of memory with a single sequence": ("training/loop.py", "## Out of memory"),
    "are cut at max_length": ("training/task_data.py", "are cut at max_length"),
    "a text that is in train too": ("training/task_data.py", "a text that is in train too"),
    "labels that differ in case": ("tasks/sources/labels.py", "differ in case only"),
    "labels are the numbers": ("training/task_data.py", "## Labels that are numbers"),
    "bad_rows.jsonl": ("training/run.py", "bad_rows.jsonl"),
    "bit-identity with an undisturbed run is not promised": ("training/resume.py", "is not promised"),
}


@pytest.mark.parametrize("message", ALARMS)
def test_an_alarm_is_on_the_page(message: str) -> None:
    file, entry = ALARMS[message]
    assert message in (ROOT / "encodery" / file).read_text(encoding="utf-8")
    assert entry in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("file", ["best_checkpoint", "session", "loop", "task_data"])
def test_messages_name_the_page(file: str) -> None:
    assert "{AFTER_ALARM}" in (ROOT / "encodery" / "training" / f"{file}.py").read_text(encoding="utf-8")


def test_the_warning_of_the_majority_names_the_page() -> None:
    scores = {"scores": {"a:dev": {"accuracy": 0.5}}, "main": {"a:dev": "accuracy"}}
    warning = majority_warning(scores | {"majority": {"a:dev": {"accuracy": 0.6}}}, "a:dev")
    assert warning is not None
    assert "docs/after-an-alarm.md" in warning
