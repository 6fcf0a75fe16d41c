"""The run directory: what is written can be read back, whatever killed the writer."""

import itertools
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from encodery.core.environment import environment
from encodery.core.files import below, check_name
from encodery.errors import RunFailed, UserError
from encodery.runs import directory
from encodery.runs.directory import RunDir, default_path, find_runs
from tests.toolbox.faults import at_call, dies_at, disk_full

ROOT = Path(__file__).parents[2]


def make_run(path: Path, *, done: bool = True) -> RunDir:
    run = RunDir.create(path)
    run.write_config("seed: 1\n")
    run.update_info(started="now")
    run.record(1, loss=0.5)
    run.write_scores({"glue/rte": {"accuracy": 0.5}})
    if done:
        run.mark_done()
    return run


def timeless(run: RunDir) -> list[dict[str, Any]]:
    return [{key: value for key, value in record.items() if key != "time"} for record in run.metrics()]


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    run.update_info(device="cpu")
    run.notice("another thread count")
    run.log("a line")
    path = run.write_predictions("glue/rte", "dev", [{"id": "0", "label": "é"}, {"id": "1", "label": None}])
    again = RunDir.open(tmp_path / "run")
    assert again.config_text() == "seed: 1\n"
    assert again.info()["device"] == "cpu"
    assert again.info()["started"] == "now"
    assert again.info()["notices"][0]["text"] == "another thread count"
    assert again.read_scores() == {"glue/rte": {"accuracy": 0.5}}
    assert path == tmp_path / "run/predictions/glue-rte-dev.jsonl"
    assert json.loads(path.read_text().splitlines()[0]) == {"id": "0", "label": "é"}
    assert (tmp_path / "run/log.txt").read_text().endswith("Z a line\n")
    assert again.is_done


@pytest.mark.slow
def test_rundir_needs_no_heavy_import() -> None:
    names = "encodery.runs.directory, encodery.core.environment as e"
    code = f"import sys, {names}; e.environment(); print('torch' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True, cwd=ROOT) == "False\n"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_metrics_that_are_no_numbers_are_null(tmp_path: Path, value: float) -> None:
    run = RunDir.create(tmp_path / "run")
    run.record(3, loss=value)
    assert timeless(run) == [{"step": 3, "loss": None}]


steps_of_records = st.lists(st.integers(1, 30), max_size=40).map(sorted)


@pytest.mark.slow(0.5)
@settings(max_examples=50)
@given(steps=steps_of_records, checkpoint=st.integers(0, 30), killed=st.integers(0, 30), torn=st.floats(0, 1))
def test_R1_rewound_metrics_equal_an_undisturbed_runs(
    tmp_path_factory: pytest.TempPathFactory, steps: list[int], checkpoint: int, killed: int, torn: float
) -> None:
    folder = tmp_path_factory.mktemp("rewind")
    whole, resumed = RunDir.create(folder / "whole"), RunDir.create(folder / "resumed")
    checkpoint = min(checkpoint, killed)
    for number, step in enumerate(steps):
        whole.record(step, number=number, text="\u2028\n")
        if step <= killed:
            resumed.record(step, number=number, text="\u2028\n")
    late = json.dumps({"step": killed + 1, "torn": "x"}).encode()
    with open(resumed.path / "metrics.jsonl", "ab") as stream:
        stream.write(late[: int(torn * len(late))])
    again = RunDir(resumed.path)
    again.rewind_metrics(checkpoint)
    for number, step in enumerate(steps):
        if step > checkpoint:
            again.record(step, number=number, text="\u2028\n")
    assert timeless(again) == timeless(whole)


@given(cut=st.floats(0, 1))
def test_R1_torn_last_line_is_left_out_and_replaced(tmp_path_factory: pytest.TempPathFactory, cut: float) -> None:
    run = RunDir.create(tmp_path_factory.mktemp("torn") / "run")
    for step in (1, 2):
        run.record(step, loss=step / 3)
    path = run.path / "metrics.jsonl"
    data = path.read_bytes()
    path.write_bytes(data[: int(cut * len(data))])
    whole = path.read_bytes().count(b"\n")
    assert [record["step"] for record in run.metrics()] == [1, 2][:whole]
    RunDir(run.path).record(9, loss=0.0)
    assert [record["step"] for record in run.metrics()] == [*[1, 2][:whole], 9]


def test_damage_in_the_middle_of_metrics_is_named(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    (run.path / "metrics.jsonl").write_text('{"step": 1}\n{"st\n{"step": 2}\n')
    with pytest.raises(UserError, match=r"metrics\.jsonl is damaged: \d+ bytes instead of \d+, it was changed after"):
        run.metrics()
    run.done.path.unlink()
    with pytest.raises(UserError, match=r"metrics\.jsonl is damaged: line 2"):
        run.metrics()


@pytest.mark.slow
def test_R1_killed_anywhere_a_run_directory_goes_on(tmp_path: Path) -> None:
    for number in itertools.count():
        path = tmp_path / f"run-{number}"
        died = dies_at(number, lambda path=path: make_run(path))
        assert not died or not RunDir(path).is_done or RunDir(path).problem() is None
        again = make_run(path)
        again.clean()
        assert again.problem() is None
        assert [name for name in os.listdir(path) if name.startswith(".")] == []
        if not died:
            break
    assert number > 20


def test_R5_full_disk_is_named_by_every_writer(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", done=False)
    for write in (
        lambda: run.write_config("seed: 2\n"),
        lambda: run.update_info(a=1),
        lambda: run.record(2, loss=1.0),
        lambda: run.log("line"),
        lambda: run.write_scores({}),
        lambda: run.write_predictions("a", "dev", [{"id": "0"}]),
        run.move_aside,
        run.mark_done,
    ):
        with pytest.raises(RunFailed, match="No space left on device"), at_call(0, disk_full):
            write()
    assert run.problem() is None
    assert run.read_scores() == {"glue/rte": {"accuracy": 0.5}}


def test_done_comes_last_and_knows_the_scores(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    run.write_scores({"glue/rte": {"accuracy": 0.75}})  # by a later evaluation
    assert run.problem() is None
    (run.path / "scores.json").write_text('{"glue/rte": {"accuracy": 0.99}}')
    assert "changed after" in (run.problem() or "")
    assert "restore it from a copy, or train the run again" in (run.problem() or "")


def test_restart_moves_the_old_run_aside(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        make_run(tmp_path / "run")
        moved = RunDir(tmp_path / "run").move_aside()
        assert moved == tmp_path / f"run.old-{number}"
        assert RunDir.open(moved).is_done
    assert RunDir(tmp_path / "run").move_aside() is None
    assert find_runs(tmp_path) == []
    assert len(find_runs(tmp_path / "run.old-1")) == 1


def test_R8_restart_is_refused_while_the_run_is_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("encodery.core.lock.PATIENCE", 0.1)
    run = make_run(tmp_path / "run")
    with run.lock(), pytest.raises(UserError, match="in use by process"):
        RunDir(run.path).move_aside()
    assert run.path.exists()


def test_foreign_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(UserError, match=r"not a run directory and not empty \(thesis.tex\)"):
        RunDir.create(tmp_path)
    with pytest.raises(UserError, match=r"config\.yaml and run\.json missing"):
        RunDir.open(tmp_path)
    with pytest.raises(UserError, match="cannot be used"):
        RunDir.create(tmp_path / "thesis.tex")


def test_find_runs_reports_the_damaged(tmp_path: Path) -> None:
    make_run(tmp_path / "a/one")
    make_run(tmp_path / "a/two", done=False)
    make_run(tmp_path / "b/three").config.unlink()
    (make_run(tmp_path / "b/four").path / "run.json").write_text('{"a"')
    (tmp_path / "b/project").mkdir()
    (tmp_path / "b/project/loop").symlink_to(tmp_path)
    (tmp_path / "b/project/config.yaml").touch()  # somebody's own
    found = {item.run.path.name: item.problem for item in find_runs(tmp_path, tmp_path / "a", str(tmp_path / "b"))}
    assert set(found) == {"one", "two", "three", "four"}
    assert found["one"] is None
    assert found["two"] is None
    assert "config.yaml missing" in str(found["three"])
    assert "run.json is damaged" in str(found["four"])
    with pytest.raises(UserError, match="none is not a folder"):
        find_runs(tmp_path / "none")


@given(stem=st.text(max_size=150))
def test_S4_default_path_is_one_safe_name_below_runs(stem: str) -> None:
    path = default_path(stem, "0123456789abcdef")
    assert path.parent == Path("runs")
    assert check_name(path.name).endswith("-01234567")


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "a b", "-o", ".hidden", "é", "a\n", "a\0", "x" * 201])
def test_S4_unsafe_names_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match="cannot be a name"):
        check_name(name)
    with pytest.raises(UserError):
        RunDir(tmp_path).predictions_path("glue/rte", name)


def test_S4_task_names_cannot_lead_out_of_the_run(tmp_path: Path) -> None:
    with pytest.raises(UserError):
        RunDir(tmp_path).predictions_path("../../etc", "dev")


def test_S4_a_link_out_of_the_root_is_refused(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "link").symlink_to("/")
    with pytest.raises(UserError, match="points outside"):
        below(tmp_path / "root", "link")
    assert below(tmp_path / "root", "run") == tmp_path / "root/run"


def test_S6_no_token_reaches_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = ["plain-words-of-the-environment", "hf_ABCDEFGHIJKLMNOPQRSTUVWX", "under-a-telling-key"]
    monkeypatch.setenv("HF_TOKEN", planted[0])
    monkeypatch.setattr(sys, "argv", ["encodery", "train", "--hub.token", planted[2], f"api_key={planted[2]}"])
    run = make_run(tmp_path / "run")
    everything = " ".join(planted[:2])
    run.write_config(f"model: {planted[1]}\nnew: {{config: {{hf_token: {planted[2]}}}}}\nnote: {everything}\n")
    run.update_info(environment=environment(), nested=[{"password": planted[2], "text": everything}])
    run.notice(everything)
    run.log(everything)
    run.record(2, note=everything)
    run.write_scores({"note": everything})
    run.write_card(everything)
    run.mark_done()
    for path in run.path.rglob("*"):
        if path.is_file():
            assert not [word for word in planted if word in path.read_text()], path
    assert run.info()["environment"]["command"].startswith("encodery train --hub.token")


def test_time_is_utc_to_the_second() -> None:
    assert len(directory.now()) == len("2026-01-01T00:00:00Z")
