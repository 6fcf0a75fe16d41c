"""Runs of the version before the package was divided by subject: resumed, evaluated, tabled and reported.

stored_runs/before_packages/ was made by commit ab1b6da with the settings in it: a finished run, and the same run
stopped at step 24 of 48, with SMART's own state in the checkpoint. It is never made again.
"""

import json
import shutil
from pathlib import Path

import pytest

from encodery.cli import main
from encodery.runs.directory import RunDir

pytestmark = pytest.mark.slow  # resuming takes two seconds
STORED = Path(__file__).parents[1] / "stored_runs" / "before_packages"
NAME = "toy/sentiment:dev"


def predictions(file: Path) -> dict[str, list[float]]:
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    return {row["id"]: list(row["probabilities"].values()) for row in rows}


def same_predictions(one: Path, other: Path) -> None:
    assert predictions(one).keys() == predictions(other).keys()
    assert len(predictions(one)) == 24
    for id, expected in predictions(other).items():
        assert predictions(one)[id] == pytest.approx(expected, abs=1e-5)


def losses(run: Path) -> list[tuple[int, float]]:
    return [(line["step"], line["loss"]) for line in RunDir(run).metrics() if "loss" in line]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both runs, of which the stopped one has been resumed."""
    folder = tmp_path_factory.mktemp("earlier") / "runs"
    shutil.copytree(STORED, folder)
    assert main(["train", str(folder / "settings.yaml"), "-o", str(folder / "stopped"), "--quiet"]) == 0
    return folder


def test_R17_the_stopped_run_is_resumed_and_ends_as_it_did_then(runs: Path) -> None:
    resumed = RunDir(runs / "stopped")
    assert resumed.is_done
    assert "resuming at step 24 of 48" in resumed.log_file.read_text()
    assert resumed.info()["identity"] == RunDir(STORED / "stopped").info()["identity"]
    assert [step for step, _ in losses(resumed.path)] == [1, *range(4, 49, 4)]
    for (_, now), (_, then) in zip(losses(resumed.path), losses(STORED / "finished"), strict=True):
        assert now == pytest.approx(then, rel=1e-4)
    file = Path("predictions", "toy-sentiment-dev.jsonl")
    same_predictions(resumed.path / file, STORED / "finished" / file)


def test_R17_the_finished_run_is_recognised_and_left_as_it_is(runs: Path) -> None:
    before = {path: path.read_bytes() for path in (runs / "finished").rglob("*") if path.is_file()}
    assert main(["train", str(runs / "settings.yaml"), "-o", str(runs / "finished"), "--quiet"]) == 0
    assert {path: path.read_bytes() for path in (runs / "finished").rglob("*") if path.is_file()} == before


def test_R17_its_model_gives_the_predictions_that_it_gave_then(runs: Path, tmp_path: Path) -> None:
    out = tmp_path / "evaluated"
    entry = str(runs / "settings.yaml")  # the rows of its own task: a named one would have the usual number of rows
    assert main(["evaluate", str(runs / "finished"), "--on", f"{entry}:dev", "-o", str(out), "--quiet"]) == 0
    (file,) = out.rglob("*.jsonl")
    same_predictions(file, STORED / "finished" / "predictions" / "toy-sentiment-dev.jsonl")
    stored = RunDir(STORED / "finished").read_scores()["scores"][NAME]
    found = json.loads((out / "scores.json").read_text())["evaluations"][NAME]["scores"]
    assert found == pytest.approx(stored, abs=1e-5)


@pytest.mark.parametrize("name", ["finished", "stopped"])
def test_R17_it_is_a_row_of_a_table(runs: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table", str(runs / name), "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    stored = RunDir(STORED / "finished").read_scores()["scores"][NAME]
    assert (row["data"], row["metric"], row["n"], row["failed"]) == (NAME, "accuracy", 1, 0)
    assert row["mean"] == stored["accuracy"]


def test_R17_they_are_reported_on_a_page(runs: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert main(["report", str(runs), "-o", str(page)]) == 0
    text = page.read_text()
    assert "2 runs" in text
    assert "toy/sentiment" in text
