"""Trainings that cannot succeed: a loss that is no number ends the run, a bad row is named by its line."""

from pathlib import Path

import pytest

from encodery.errors import EncoderyError
from tests.toolbox.fault_counts import Tally
from tests.toolbox.runs import run, settings


def test_a_loss_that_is_no_number_ends_the_run(tmp_path: Path, tally: Tally) -> None:
    with pytest.raises(EncoderyError) as ended:
        run(settings(tmp_path, rows=32, optim={"lr": 1e30}), tmp_path / "out")
    named = any(word in str(ended.value).lower() for word in ("nan", "not a number", "infinite", "no number", "finite"))
    tally.case("loss that is no number ends the training", named, ended.value)


def test_bad_rows_are_named_by_their_line(tmp_path: Path, tally: Tally) -> None:
    tree = settings(tmp_path, rows=32)
    path = tmp_path / "train.csv"
    lines = path.read_text().splitlines()
    tree["tasks"][0]["labels"] = sorted({line.rsplit(",", 1)[1] for line in lines[1:]})
    for bad in ("7", "-3", "x", "", "1.5", "1e30"):
        changed = [*lines[:18], f"{lines[18].rsplit(',', 1)[0]},{bad}", *lines[19:]]
        path.write_text("\n".join(changed) + "\n")
        with pytest.raises(EncoderyError) as ended:
            run(tree, tmp_path / "out")
        tally.case("bad rows named", "train.csv:19" in str(ended.value) or "line 19" in str(ended.value), ended.value)
