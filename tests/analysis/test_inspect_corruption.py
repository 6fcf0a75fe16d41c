"""What `encodery inspect` shows of a pretraining."""

import re
from typing import Any

import pytest

from encodery.analysis.inspect import FOUND, MASKED, PLAIN, REPLACED, Row, describe_run
from tests.toolbox.runs import resolve
from tests.training.test_pretraining import settings

ROW = Row(
    ["[CLS]", "the", "cat", "sat", "[SEP]"], ["[CLS]", "the", "[MASK]", "[MASK]", "[SEP]"],
    [False, False, True, True, False], ["[CLS]", "the", "dog", "sat", "[SEP]"], [0.0, 0.6, 0.9, 0.1, 0.2],
)  # fmt: skip


def test_a_row_says_what_was_asked_sampled_and_noticed() -> None:
    original, shown, sampled, judged = ROW.lines(colour=False)
    assert original.split()[1:] == ROW.original
    assert shown.split()[1:] == ROW.shown
    assert sampled.split()[1:] == ["[CLS]", "the", "cat→dog", "sat", "[SEP]"]
    assert judged.split()[1:] == ["(the", "60%)", "dog", "90%"]


def test_colours_mark_asked_replaced_and_found_tokens() -> None:
    _, shown, sampled, judged = ROW.lines(colour=True)
    assert shown.count(f"{MASKED}[MASK]{PLAIN}") == 2
    assert f"{REPLACED}cat→dog{PLAIN}" in sampled
    assert f"{MASKED}sat{PLAIN}" in sampled
    assert f"{FOUND}dog 90%{PLAIN}" in judged


@pytest.mark.parametrize("objective", [{"kind": "electra"}, {"kind": "mlm"}], ids=str)
@pytest.mark.parametrize("split", ["train", "dev"])
def test_inspect_shows_corrupted_rows(objective: dict[str, Any], split: str) -> None:
    lines = list(describe_run(resolve(settings(objective)), split, 2))
    text = "\n".join(lines)
    assert text.count("    original  [CLS]") == 2
    assert text.count("    sampled   ") == (2 if objective["kind"] == "electra" else 0)
    assert re.search(rf"blocks of {split}: \d+ of", text)
    assert "steps per epoch" in text
