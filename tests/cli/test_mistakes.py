"""What people do wrong by accident is refused before anything is trained or overwritten."""

from pathlib import Path

import pytest

from encodery.cli import main
from encodery.config import load
from encodery.errors import UserError
from encodery.training.run import train_run
from tests.toolbox.runs import config_for
from tests.toolbox.tasks import pair_task, single_task


@pytest.mark.parametrize("split", ["train", "dev", "test"])
def test_a_mistyped_file_is_named_and_leaves_no_run(split: str, tmp_path: Path) -> None:
    task = single_task(tmp_path) | {split: "nowhere.csv"}
    with pytest.raises(UserError, match=r"nowhere\.csv, does not exist"):
        train_run(load.load(config_for(tmp_path, task)), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_refused_setting_leaves_no_run_behind(tmp_path: Path) -> None:
    settings = config_for(tmp_path, single_task(tmp_path))
    with pytest.raises(UserError, match="layers"):
        train_run(load.load(settings, ["model.tune=top:9"]), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    train_run(load.load(settings, ["model.tune=top:1"]), tmp_path / "run")


@pytest.mark.slow
def test_a_changed_own_file_is_named(tmp_path: Path) -> None:
    code = "from encodery.methods.plain import Plain\n\n\nclass Mine(Plain):\n    pass\n"
    (tmp_path / "mine.py").write_text(code)
    settings = config_for(tmp_path, single_task(tmp_path)) | {"method": {"kind": f"{tmp_path}/mine.py:Mine"}}
    train_run(load.load(settings), tmp_path / "run")
    (tmp_path / "mine.py").write_text(code + "\n\nextra = 1\n")
    with pytest.raises(UserError, match=r"mine\.py"):
        train_run(load.load(settings), tmp_path / "run")


@pytest.mark.slow
def test_a_failure_in_own_code_names_its_file_and_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.py").write_text(
        "from encodery.methods.plain import Plain\n\n\nclass Mine(Plain):\n"
        "    def __call__(self, *parts):\n        return nonsense\n"
    )
    task = single_task(tmp_path)
    settings = config_for(tmp_path, task) | {"method": {"kind": f"{tmp_path}/mine.py:Mine"}}
    (tmp_path / "run.yaml").write_text(load.dump(load.load(settings)))
    assert main(["train", str(tmp_path / "run.yaml"), "-o", str(tmp_path / "run"), "--quiet"]) == 1
    said = capsys.readouterr().err
    assert "mine.py:6: NameError" in said
    assert "Sorry" not in said


@pytest.mark.slow
def test_answers_to_other_rows_do_not_replace_a_run_s_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = config_for(tmp_path, pair_task(tmp_path))  # its dev part is set aside
    run = train_run(load.load(settings), tmp_path / "run")
    before = {path: path.read_bytes() for path in run.predictions.iterdir()}
    other = load.load(settings, ["tasks.split_seed=5"])
    (tmp_path / "other.yaml").write_text(load.dump(other))
    assert main(["evaluate", str(run.path), "--on", f"{tmp_path}/other.yaml:dev"]) == 2
    assert "other rows" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in run.predictions.iterdir()} == before


def test_what_a_newcomer_types_first_is_answered_with_what_to_type(tmp_path, monkeypatch, encodery):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    (tmp_path / "mails.csv").write_text("text,label\na b,x\nc d,y\n")
    (tmp_path / "mails.csv.gz").write_bytes(b"\x1f\x8b")
    for words, said in {
        ("train",): "tasks: is required: a file (`encodery train reviews.csv`) or a name",
        (
            "train",
            "runs",
        ): "runs: is a folder without config.yaml, so it is not a run; give a data file, a config or a run",
        ("train", "mails.csv.gz"): "mails.csv.gz: is compressed; unpack it",
        ("train", "mails.csv", "--quite"): "there is no option --quite; did you mean --quiet?",
        ("predict", "mails.csv", "--text", "x"): "model mails.csv: is a file; a model is a run, a model folder or",
    }.items():
        found = encodery(*words)
        assert (found.code, said in found.err) == (2, True), (words, found.err)


def test_an_option_is_not_the_value_of_a_setting(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "--optim.lr", "-o", str(tmp_path / "run"), "tasks=toy/nli", "method=freelb"]
    assert main(words) == 2
    assert "--optim.lr needs a value" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
