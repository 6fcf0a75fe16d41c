"""The model card of a run: what it says about where the run is."""

from pathlib import Path

import pytest

from encodery.report.run_card import model_card
from encodery.runs.directory import RunDir
from tests.report.runs import run, tree


def card(path: Path) -> str:
    """The card of a run that was made by hand, opened by this path."""
    origins = {"train": {"digest": "d", "rows": 3, "source": "folder"}}
    made = RunDir(path if path.exists() else run(path, 0.5, origins=origins))
    made.update_info(seed={"init": 1}, method="plain", environment={})
    return model_card(made, tree(), made.read_scores())


def test_the_commands_of_a_card_work_where_the_run_was_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for path in (Path("my runs/mails"), tmp_path / "here" / "my runs" / "mails"):
        text = card(path)
        assert "model = en.load('my runs/mails')" in text
        assert "encodery train 'my runs/mails/config.yaml' -o another-folder" in text
    assert "en.load('../other/mails')" in card(Path("../other/mails"))


def test_a_card_has_no_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = card(tmp_path / "runs" / "mails")
    assert "en.load('mails')" in text
    assert str(tmp_path) not in text
    for place in (tmp_path / "runs" / "mails", Path("/")):
        monkeypatch.chdir(place)
        assert "en.load('mails')" in card(tmp_path / "runs" / "mails")
