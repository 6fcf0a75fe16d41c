"""S9: a link in a run directory is never written through. S10: files get the mode that the umask leaves."""

import os
import stat
from pathlib import Path

import pytest

from encodery.core import files
from encodery.core.lock import RunLock, holder
from encodery.errors import EncoderyError
from encodery.runs.directory import RunDir
from tests.toolbox.faults import command, in_child
from tests.toolbox.runs import run, settings

NAMES = [".lock", "log.txt", "metrics.jsonl"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("content", ["precious\n", "precious, torn"])
def test_S9_a_link_in_a_run_directory_is_refused_and_its_target_stays(name, content, tmp_path) -> None:
    target = tmp_path / "precious"
    target.write_text(content)
    out = tmp_path / "out"
    out.mkdir()
    (out / name).symlink_to(target)
    words = ["recipe:toy/nli", "--train.max_steps", "2", "--device", "cpu", "-o", "out"]
    ended = command(["train", *words], tmp_path)
    assert target.read_text() == content
    assert not ended.is_bug
    if name != "metrics.jsonl":  # which is replaced when a run begins
        assert ended.code == 2, ended.output
        assert f"{name} is a link" in ended.output


@pytest.mark.parametrize("name", ["predictions", "checkpoints", "model", "code"])
def test_S9_a_folder_that_is_a_link_is_refused(name, tmp_path) -> None:
    target, out = tmp_path / "precious", tmp_path / "out"
    target.mkdir()
    out.mkdir()
    (out / name).symlink_to(target)
    ended = command(["train", "recipe:toy/nli", "--train.max_steps", "2", "--device", "cpu", "-o", "out"], tmp_path)
    assert (ended.code, list(target.iterdir())) == (2, []), ended.output
    assert f"{name} is a link to a folder" in ended.output


def test_S9_the_whole_run_directory_may_be_a_link(tmp_path) -> None:
    (tmp_path / "scratch").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "scratch")
    with RunDir(tmp_path / "out").lock():
        assert (tmp_path / "scratch" / ".lock").is_file()


def test_S9_a_link_that_leads_nowhere_makes_no_file(tmp_path) -> None:
    (tmp_path / ".lock").symlink_to(tmp_path / "new")
    assert holder(tmp_path) is None
    with pytest.raises(EncoderyError, match=r"\.lock is a link"):
        RunLock(tmp_path).acquire()
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", ["config.yaml", "run.json", "scores.json", "DONE", "README.md"])
def test_S9_files_that_are_replaced_replace_the_link(name, tmp_path) -> None:
    target = tmp_path / "precious"
    target.write_text("precious")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).symlink_to(target)
    files.write_atomic(tmp_path / "out" / name, "ours")
    assert target.read_text() == "precious"
    assert not (tmp_path / "out" / name).is_symlink()


@pytest.mark.timeout(30)
@pytest.mark.parametrize("name", NAMES)
def test_S9_a_pipe_does_not_make_a_command_wait(name, tmp_path) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(EncoderyError, match="not a regular file"):
        RunLock(tmp_path).acquire() if name == ".lock" else files.append_line(tmp_path / name, "x")


def test_S9_the_log_of_a_sweep_is_not_a_link(tmp_path) -> None:
    from encodery.sweep.processes import log_stream

    (tmp_path / "log.txt").symlink_to(tmp_path / "precious")
    with pytest.raises(EncoderyError, match="is a link"):
        log_stream(tmp_path / "log.txt")
    assert not (tmp_path / "precious").exists()


@pytest.mark.parametrize("mask", [0o022, 0o027, 0o002])
def test_S10_every_file_has_the_mode_of_the_umask(mask, tmp_path) -> None:
    tree = settings(tmp_path, train={"max_steps": 2, "dynamics": "train", "keep_at": [50]})

    def work() -> None:
        os.umask(mask)
        run(tree, tmp_path / "out")

    assert in_child(work) == 0
    paths = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert len(paths) > 12
    wrong = {
        str(p): oct(stat.S_IMODE(p.stat().st_mode)) for p in paths if stat.S_IMODE(p.stat().st_mode) != 0o666 & ~mask
    }
    assert wrong == {}
    assert RunDir(tmp_path / "out").is_done


def test_S10_export_and_tokenizer_too(tmp_path) -> None:
    run(settings(tmp_path, train={"max_steps": 2}), tmp_path / "out")
    ended = command(["export", "out", "exported"], tmp_path, before=lambda: os.umask(0o022))
    assert ended.code == 0, ended.output
    modes = {stat.S_IMODE(path.stat().st_mode) for path in Path(tmp_path, "exported").rglob("*") if path.is_file()}
    assert modes == {0o644}
