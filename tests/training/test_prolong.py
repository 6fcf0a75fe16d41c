"""A finished run is trained for more steps from its last checkpoint, if that was kept."""

from pathlib import Path

import pytest

from encodery.config import load
from encodery.core.progress import Progress
from encodery.errors import UserError
from encodery.runs.directory import RunDir
from encodery.training.run import train_run

STORED = Path(__file__).parents[1] / "stored_runs" / "stopped.yaml"
KEEP = "train.keep_checkpoints=true"


def settings(*words: str) -> load.Resolved:
    return load.load(STORED, ["method=plain", "optim.schedule=constant", "optim.warmup=0", *words])


def trained(out: Path, *words: str, allow_change: bool = False) -> RunDir:
    return train_run(settings(*words), out, allow_change=allow_change)


def losses(run: RunDir) -> list[tuple[int, float]]:
    return [(record["step"], record["loss"]) for record in run.metrics() if "loss" in record]


@pytest.mark.slow
def test_R18_more_steps_go_on_from_the_last_checkpoint(tmp_path: Path) -> None:
    out = tmp_path / "run"
    first = trained(out, "train.max_steps=4", KEEP)
    assert first.is_done
    with pytest.raises(UserError, match=r"train\.max_steps: 4 there, 8 now"):
        trained(out, "train.max_steps=8", KEEP)
    longer = trained(out, "train.max_steps=8", KEEP, allow_change=True)
    assert "resuming at step 4 of 8" in longer.log_file.read_text()
    assert longer.is_done
    assert longer.info()["steps"] == 8
    assert longer.read_scores()["chosen"]["step"] == 8
    # With a constant rate the steps are those of a run that was as long from the start.
    assert losses(longer) == losses(trained(tmp_path / "whole", "train.max_steps=8"))


@pytest.mark.slow
def test_R18_without_a_checkpoint_a_sentence_says_what_to_keep(tmp_path: Path) -> None:
    out = tmp_path / "run"
    trained(out, "train.max_steps=2")
    before = (out / "scores.json").read_bytes()
    with pytest.raises(UserError, match=r"checkpoints were not kept.*train\.keep_checkpoints=true"):
        trained(out, "train.max_steps=4", allow_change=True)
    with pytest.raises(UserError, match=r"Nothing is left.* with --fresh \(its checkpoints were not kept"):
        trained(out, "train.max_steps=2", "optim.lr=1e-4", allow_change=True)
    assert RunDir(out).is_done
    assert (out / "scores.json").read_bytes() == before


@pytest.mark.slow
def test_R18_fewer_steps_and_other_changes_leave_a_finished_run_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    trained(out, "train.max_steps=4", KEEP)
    before = (out / "DONE").read_bytes(), (out / "config.yaml").read_bytes()
    train_run(settings("train.max_steps=3", KEEP), out, allow_change=True, progress=Progress())
    assert "is done already with 4 steps" in capsys.readouterr().err
    with pytest.raises(
        UserError, match=r"is done, and was made with other settings:\n.*optim\.lr.*\nNothing is left.*more steps too"
    ):
        trained(out, "train.max_steps=4", "optim.lr=1e-4", KEEP, allow_change=True)
    assert ((out / "DONE").read_bytes(), (out / "config.yaml").read_bytes()) == before
