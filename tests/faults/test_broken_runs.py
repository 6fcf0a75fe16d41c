"""Tables, pages and watches of folders in which some runs are broken: each is a row with its reason."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from encodery.cli import main
from encodery.errors import UserError
from encodery.report import records
from encodery.report.watch import Watch
from encodery.runs import json_schemas
from encodery.runs.directory import RunDir

WRONG: list[Any] = [3, "x", [1], {"a": 1}, True, [], {"a": {"b": ["c"]}}, [{"text": 3}], None]


@pytest.fixture
def runs(trained: Callable[..., Path], tmp_path: Path) -> Path:
    """A folder with one sound run."""
    (tmp_path / "runs").mkdir()
    copy_of(trained("single"), tmp_path / "runs" / "sound")
    return tmp_path / "runs"


def copy_of(run: Path, target: Path) -> RunDir:
    leave = shutil.ignore_patterns("model", "checkpoints")
    return RunDir(shutil.copytree(run, target, ignore=leave))


def old_done(run: RunDir, done: bool = True) -> None:
    """As of earlier versions, which had no digests: what is wrong must be seen in the values."""
    run.done.path.write_text(json.dumps({"time": "2026-01-01T00:00:00Z", "scores_sha256": None}))
    if not done:
        run.done.path.unlink()


def mutated(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Each value of a mapping, and each one below it, replaced by values of other kinds."""
    for key, value in data.items():
        for wrong in WRONG:
            yield {**data, key: wrong}
        if isinstance(value, dict):
            yield from ({**data, key: below} for below in mutated(value))


def broken(runs: Path) -> int:
    """Make copies of the sound run with wrong values in run.json and scores.json; how many."""
    number = 0
    sound = RunDir(runs / "sound")
    scores = sound.read_scores() | {"evaluations": {"toy/nli:dev": {"scores": {"accuracy": 0.5}, "main": "accuracy"}}}
    small = {key: value for key, value in sound.info().items() if key not in ("environment", "hardware")}
    for name, data in (("run.json", small), ("scores.json", scores)):
        for content in mutated(data):
            number += 1
            one = copy_of(sound.path, runs / f"{name[:-5]}-{number}")
            (one.path / name).write_text(json.dumps(content))
            old_done(one, done=name == "scores.json" or number % 2 == 0)
    return number


def test_R26_wrong_values_in_run_json_or_scores_json_end_no_table(runs: Path, capsys: Any) -> None:
    number = broken(runs)
    assert number > 200
    assert main(["table", str(runs), "--format", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert "damaged" in json.dumps(shown)
    assert main(["watch", str(runs), "--once"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len([line for line in lines if "run-" in line or "scores-" in line or "sound" in line]) >= number
    assert any(line.startswith("damaged") and "is damaged" in line for line in lines)


@pytest.mark.slow
def test_R26_wrong_values_end_no_page(runs: Path, tmp_path: Path) -> None:
    broken(runs)
    assert main(["report", str(runs), "-o", str(tmp_path / "page.html")]) == 0


BAD_FILES: dict[str, bytes] = {
    "empty": b"", "torn": b'{"a', "bytes": b"\xff\xfe\x00", "list": b"[1, 2]", "number": b"3", "null": b"null",
    "deep": b"[" * 100_000,
}  # fmt: skip


@pytest.mark.parametrize("done", [True, False])
@pytest.mark.parametrize("name", ["config.yaml", "run.json", "scores.json", "DONE", "metrics.jsonl", "status.json"])
def test_R26_a_broken_file_is_a_row_with_its_reason(
    runs: Path, tmp_path: Path, capsys: Any, name: str, done: bool
) -> None:
    for kind, content in BAD_FILES.items():
        one = copy_of(runs / "sound", runs / f"broken-{kind}")
        old_done(one, done)
        (one.path / name).write_bytes(content)
    folder = copy_of(runs / "sound", runs / "broken-folder")
    old_done(folder, done)
    (folder.path / name).unlink(missing_ok=True)
    (folder.path / name).mkdir()
    sound = records.read([runs / "sound"])[0][0]
    found, _ = records.read([runs])
    assert next(one for one in found if one.path.name == "sound").scores == sound.scores
    assert len(found) == len(BAD_FILES) + 2
    for verb in (["table", str(runs)], ["watch", str(runs), "--once"]):
        assert main(verb) == 0, capsys.readouterr().err
        assert "bug" not in capsys.readouterr().err
    assert {one.path.name for one in Watch([runs]).look()} == {one.path.name for one in found}


@pytest.mark.parametrize(
    "text",
    ["tasks: 3", "tasks: [1]", "seed: [1, 2]", "seed: {init: {a: 1}}", "train: x", "tasks: [{name: [1]}]", "- 1"],
)
def test_R26_wrong_values_in_config_yaml_are_named(runs: Path, text: str, capsys: Any) -> None:
    one = copy_of(runs / "sound", runs / "broken")
    old_done(one, done=False)
    one.config.write_text(text + "\n")
    found = {record.path.name: record for record in records.read([runs])[0]}
    assert found["broken"].state == "damaged"
    assert "config.yaml is damaged" in found["broken"].why
    assert found["sound"].done
    assert main(["table", str(runs)]) == 0
    shown = capsys.readouterr().out
    assert "broken" in shown
    assert "damaged" in shown


def test_R26_a_place_is_named() -> None:
    assert json_schemas.mistake({"data": {"dev": []}}, json_schemas.INFO) == "data.dev is a list, not a mapping"
    assert (
        json_schemas.mistake({"notices": [{"text": 3}]}, json_schemas.INFO) == "notices[0].text is a number, not text"
    )
    assert json_schemas.mistake({"steps": True}, json_schemas.INFO) == "steps is true or false, not a number"
    assert json_schemas.mistake({"steps": None, "later": object()}, json_schemas.INFO) is None
    with pytest.raises(UserError, match=r"x is damaged: it is a list, not a mapping; mend it"):
        json_schemas.require([1], json_schemas.INFO, "x", "mend it")
